/* See flow.h. */
#include "backend/vm/flow.h"

#include <errno.h>
#include <unistd.h>

void flow_watch(const struct flow *flow, struct pollfd watched[2]) {
  bool empty = flow_is_empty(flow);
  watched[0] = (struct pollfd){.fd = !flow->ended && empty ? flow->from : -1, .events = POLLIN};
  watched[1] = (struct pollfd){.fd = empty ? -1 : flow->to, .events = POLLOUT};
}

static void take(struct flow *flow) {
  ssize_t got = read(flow->from, flow->buffer, sizeof flow->buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (got <= 0) { /* EIO: a terminal that nobody has open any more */
    flow->ended = true;
    return;
  }
  flow->taken += (uint64_t)got;
  flow->start = 0;
  flow->end = flow->broken ? 0 : (size_t)got;
}

static void give(struct flow *flow) {
  size_t size = flow->end - flow->start;
  if (flow->chunk && size > flow->chunk)
    size = flow->chunk;
  ssize_t written = write(flow->to, flow->buffer + flow->start, size);
  if (written < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (written < 0) {
    flow->broken = true;
    flow->start = flow->end = 0;
    return;
  }
  flow->start += (size_t)written;
}

void flow_move(struct flow *flow, const struct pollfd watched[2]) {
  if (watched[1].fd >= 0 && watched[1].revents)
    give(flow);
  if (watched[0].fd >= 0 && watched[0].revents)
    take(flow);
}
