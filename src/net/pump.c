/* Moving bytes between the two ends of a connection. Small amounts go through one shared buffer:
 * that costs two calls and no memory. Who sends much gets a pipe and is spliced, so that its bytes
 * never come into our memory. */
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/alloc.h"
#include "net/flow.h"
#include "net/tls.h"

#define TURN_CALLS  16        /* then others have their turn */
#define PIPE_SIZE   (1 << 19) /* a good compromise on loopback */
#define PIPE_LEAST  (1 << 16) /* through smaller ones splicing is slower than copying */
#define SPLICE_SIZE (1 << 20)
#define PIPE_LIMIT  64           /* connections beyond that are copied */
#define PIPE_TRY_MS 1000         /* after the kernel gave none */
#define SPARE_LIMIT 8            /* empty pipes that are kept for the next who needs one */
#define COPY_SIZE   16384        /* as much may wait for a slow reader; so many at once is much */
#define NEAR_RTT_US 100          /* then such a window carries 5 GB/s */
#define NEAR_BUFFER (512 * 1024) /* what a core's own cache holds, or so */

#define MOST_FILES  ((rlim_t)1 << 20)
#define OWN_FILES   96 /* sockets inside, lines, the resolver's */
#define LEAST_FLOWS 32

char shared_buffer[SHARED_SIZE];
static unsigned pipe_count; /* in use and spare */
static unsigned pipe_limit = PIPE_LIMIT;
static struct { int ends[2]; } spare_pipes[SPARE_LIMIT];
static unsigned spare_count;
static uint64_t no_pipes_until_ms;

size_t pump_raise_files(void) {
  struct rlimit files = {1024, 1024};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &files);
    (void)getrlimit(RLIMIT_NOFILE, &files);
  }
  return (size_t)(files.rlim_cur < MOST_FILES ? files.rlim_cur : MOST_FILES);
}

size_t pump_most_flows(size_t others) {
  size_t files = pump_raise_files();
  pipe_limit = files / 16 < PIPE_LIMIT ? (unsigned)files / 16 : PIPE_LIMIT;
  size_t kept = OWN_FILES + 2 * pipe_limit + others;
  return files > kept + 2 * LEAST_FLOWS ? (files - kept) / 2 : LEAST_FLOWS;
}

enum moved { MOVED_SOME, MOVED_NOTHING, MOVED_BROKEN };

/* ---- what could not be written yet ---- */

/* On a real network each packet of a long stream may find its connection idle: making a pipe for
 * every one of them would cost more than moving its bytes. */
static void drop_pipe(struct end *end) {
  if (end->pipe[0] >= 0 && end->piped == 0 && spare_count < SPARE_LIMIT) {
    memcpy(spare_pipes[spare_count++].ends, end->pipe, sizeof end->pipe);
  } else if (end->pipe[0] >= 0) {
    close(end->pipe[0]);
    close(end->pipe[1]);
    pipe_count--;
  }
  end->pipe[0] = end->pipe[1] = -1;
  end->piped = 0;
}

void end_clear(struct end *end) {
  drop_pipe(end);
  free(end->pending);
  end->pending = NULL;
  end->pending_length = end->pending_done = 0;
}

static void keep(struct end *from, const char *bytes, size_t length) {
  size_t left = from->pending_length - from->pending_done;
  char *all = xmalloc(left + length);
  if (left > 0)
    memcpy(all, from->pending + from->pending_done, left);
  memcpy(all + left, bytes, length);
  free(from->pending);
  from->pending = all;
  from->pending_length = left + length;
  from->pending_done = 0;
}

bool end_flush(struct end *to, struct end *from) {
  while (from->pending) {
    ssize_t sent = send(to->watch.fd, from->pending + from->pending_done,
                        from->pending_length - from->pending_done, MSG_NOSIGNAL);
    if (sent < 0) {
      to->writable = false;
      return false; /* an error shows when it is read from */
    }
    from->pending_done += (size_t)sent;
    if (from->pending_done == from->pending_length) {
      free(from->pending);
      from->pending = NULL;
      from->pending_length = from->pending_done = 0;
    }
  }
  return true;
}

void end_write(struct end *to, struct end *from, const void *bytes, size_t length) {
  ssize_t sent = 0;
  if (!from->pending) {
    sent = send(to->watch.fd, bytes, length, MSG_NOSIGNAL);
    if (sent < 0)
      sent = 0;
  }
  if ((size_t)sent == length)
    return;
  to->writable = false;
  keep(from, (const char *)bytes + sent, length - (size_t)sent);
}

void end_skip(struct end *end, size_t length) {
  (void)recv(end->watch.fd, NULL, length, MSG_TRUNC); /* TCP: without a copy */
}

void end_say_last(struct flow *flow, const void *bytes, size_t length) {
  /* Into the socket's own buffer, which is empty or nearly so; then an orderly end. What the client
   * has sent and we have not read would turn it into a reset that overtakes the message. */
  for (int i = 0; i < TURN_CALLS; i++) { /* of who never stops */
    if (recv(flow->client.watch.fd, shared_buffer, SHARED_SIZE, MSG_DONTWAIT) <= 0)
      break;
  }
  (void)send(flow->client.watch.fd, bytes, length, MSG_NOSIGNAL);
  shutdown(flow->client.watch.fd, SHUT_WR);
  flow_close(flow, false);
}

/* ---- moving ---- */

static void count(struct flow *flow, const struct end *from, size_t bytes) {
  ledger_carried(flow->relay->input->ledger, flow->line, from == &flow->client, bytes);
}

static bool is_temporary(int error) {
  return error == EAGAIN || error == EINTR;
}

static enum moved drain_pipe(struct end *from, struct end *to) {
  while (from->piped > 0) {
    ssize_t moved = splice(from->pipe[0], NULL, to->watch.fd, NULL, from->piped,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (moved < 0 && is_temporary(errno)) {
      to->writable = false;
      return MOVED_NOTHING;
    }
    if (moved <= 0)
      return MOVED_BROKEN;
    from->piped -= (size_t)moved;
  }
  return MOVED_SOME;
}

/* The kernel counts pipes per user, and who has many gets pipes of two pages. */
static bool make_pipe(int ret_ends[2]) {
  if (pipe2(ret_ends, O_CLOEXEC | O_NONBLOCK) < 0)
    return false;
  for (int size = PIPE_SIZE; size >= PIPE_LEAST; size /= 2) {
    if (fcntl(ret_ends[0], F_SETPIPE_SZ, size) >= size)
      return true;
  }
  close(ret_ends[0]);
  close(ret_ends[1]);
  return false;
}

/* Behind it is this machine, or nearly so: what it has sent is here at once. */
static bool is_near(const struct end *end) {
  struct tcp_info info = {0};
  socklen_t size = sizeof info;
  return getsockopt(end->watch.fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         info.tcpi_min_rtt < NEAR_RTT_US;
}

/* Bytes of a near sender wait in memory for us. Are they more than the processor's cache holds,
 * everybody copies from and to main memory, which costs a tenth of the throughput. Over a network
 * they are on their way meanwhile, and the kernel finds out how many may be. */
static void bound_waiting(struct end *end) {
  static const int size = NEAR_BUFFER;
  if (!end->bounded && is_near(end)) {
    /* The first fixes the buffer; the window would stay what it is at the connection's begin. */
    (void)setsockopt(end->watch.fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
    (void)setsockopt(end->watch.fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &size, sizeof size);
  }
  end->bounded = true;
}

static bool open_pipe(struct end *end) {
  bound_waiting(end);
  if (end->pipe[0] >= 0)
    return true;
  if (spare_count > 0) {
    memcpy(end->pipe, spare_pipes[--spare_count].ends, sizeof end->pipe);
    return true;
  }
  if (pipe_count >= pipe_limit || loop_now_ms() < no_pipes_until_ms)
    return false;
  if (!make_pipe(end->pipe)) {
    end->pipe[0] = end->pipe[1] = -1;
    no_pipes_until_ms = loop_now_ms() + PIPE_TRY_MS;
    return false;
  }
  pipe_count++;
  return true;
}

static enum moved after_read(struct flow *flow, struct end *from, ssize_t got) {
  if (got < 0 && is_temporary(errno)) {
    from->readable = false;
    if (from->piped == 0)
      drop_pipe(from); /* idle connections hold no pipe */
    return MOVED_NOTHING;
  }
  if (got < 0)
    return MOVED_BROKEN;
  if (got == 0)
    from->ended = true;
  else
    count(flow, from, (size_t)got);
  return MOVED_SOME;
}

static enum moved splice_some(struct flow *flow, struct end *from, struct end *to) {
  ssize_t got = splice(from->watch.fd, NULL, from->pipe[1], NULL, SPLICE_SIZE,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
  enum moved moved = after_read(flow, from, got);
  if (moved != MOVED_SOME || got == 0)
    return moved;
  from->piped = (size_t)got;
  return drain_pipe(from, to);
}

static bool is_looked_at(const struct flow *flow, const struct end *from) {
  return flow->inspect && from == &flow->client;
}

static enum moved copy_some(struct flow *flow, struct end *from, struct end *to) {
  bool bounded = is_looked_at(flow, from);
  size_t most = bounded && flow->judged < COPY_SIZE ? flow->judged : COPY_SIZE;
  ssize_t got = recv(from->watch.fd, shared_buffer, most, 0);
  enum moved moved = after_read(flow, from, got);
  if (moved != MOVED_SOME || got == 0)
    return moved;
  if (bounded)
    flow->judged -= (size_t)got;
  from->bulk = got == COPY_SIZE;
  if ((size_t)got < most && !from->unsure)
    from->readable = false; /* that was all; what comes from now on is told anew */
  ssize_t sent = send(to->watch.fd, shared_buffer, (size_t)got, MSG_NOSIGNAL);
  if (sent < 0 && !is_temporary(errno))
    return MOVED_BROKEN;
  if (sent == got)
    return MOVED_SOME;
  to->writable = false;
  size_t done = sent < 0 ? 0 : (size_t)sent;
  keep(from, shared_buffer + done, (size_t)got - done);
  return MOVED_NOTHING;
}

/* ---- the first bytes ---- */

static void refuse_name(struct flow *flow, const char *name) {
  flow_refuse(flow, "TLS to %.60s inside a connection to %.60s", name, flow->host);
}

/* Who may have an address may have all that is there, but for names that are denied. */
static bool name_fits(const struct flow *flow, const char *name) {
  const struct host_rules *rules = flow->relay->input->rules;
  if (strcmp(name, flow->host) == 0)
    return true;
  enum host_verdict verdict = host_rules_name(rules, name, flow->port).verdict;
  return flow->is_address ? verdict != HOST_DENIED : rules->everything && verdict == HOST_ALLOWED;
}

static enum tls_result look(const struct flow *flow, size_t from, size_t to,
                            struct tls_hello *ret_hello) {
  const uint8_t *bytes = (const uint8_t *)shared_buffer;
  return flow->hello_seen ? tls_next(bytes + from, to - from, flow->early_data, ret_hello)
                          : tls_first(bytes + from, to - from, ret_hello);
}

/* What a TLS client says it wants must be what the connection was opened for (domain fronting), in
 * its first hello and in the one that a server may ask for. False: the flow is no more. */
static bool judge(struct flow *flow, size_t length) {
  while (flow->inspect && flow->judged < length) {
    struct tls_hello hello;
    switch (look(flow, flow->judged, length, &hello)) {
    case TLS_NOT_TLS:
      flow->inspect = false;
      return true;
    case TLS_MORE:
      if (flow->judged > 0 || (length < TLS_HELLO_LIMIT && !flow->client.hung_up))
        return true;
      flow_refuse(flow, "a TLS hello without an end");
      return false;
    case TLS_BROKEN:
      flow_refuse(flow, "a TLS hello that cannot be read");
      return false;
    case TLS_NAME:
      if (!name_fits(flow, hello.name)) {
        refuse_name(flow, hello.name);
        return false;
      }
      break;
    default:
      break;
    }
    flow->judged += hello.length;
    flow->hello_seen = true;
    flow->early_data |= hello.early_data;
  }
  return true;
}

/* False: nothing may pass yet, or the flow is no more. */
static bool inspect(struct flow *flow) {
  if (flow->judged > 0)
    return true;
  ssize_t got = recv(flow->client.watch.fd, shared_buffer, TLS_HELLO_LIMIT, MSG_PEEK);
  if (got <= 0) {
    flow->inspect = got < 0; /* at the end there is nothing to look at */
    flow->client.readable = got == 0;
    return got == 0;
  }
  if (!judge(flow, (size_t)got))
    return false;
  if (!flow->inspect)
    flow->judged = 0; /* all of it may */
  else if (flow->judged == 0)
    flow->client.readable = false;
  return !flow->inspect || flow->judged > 0;
}

/* ---- one direction, both directions ---- */

static enum moved pass_on(struct flow *flow, struct end *from, struct end *to) {
  for (int calls = 0; calls < TURN_CALLS; calls++) {
    enum moved moved = MOVED_SOME;
    if (!to->writable || (from->pending && !end_flush(to, from)))
      return MOVED_NOTHING;
    if (from->piped > 0)
      moved = drain_pipe(from, to);
    else if (from->ended || !from->readable)
      break;
    else if (is_looked_at(flow, from) && !inspect(flow))
      return MOVED_NOTHING;
    else if (from->bulk && !from->urgent && !is_looked_at(flow, from) && open_pipe(from))
      moved = splice_some(flow, from, to);
    else
      moved = copy_some(flow, from, to);
    if (moved != MOVED_SOME)
      return moved;
  }
  if (from->ended && !from->passed_end && !from->pending && from->piped == 0) {
    from->passed_end = true;
    if (!to->passed_end) /* else both are closed at once, which says the same */
      shutdown(to->watch.fd, SHUT_WR);
  }
  return from->readable && !from->ended ? MOVED_SOME : MOVED_NOTHING;
}

void want_turn(struct flow *flow) {
  if (flow->queued)
    return;
  flow->queued = true;
  flow->next_turn = flow->relay->turns;
  flow->relay->turns = flow;
}

void pump(struct flow *flow) {
  enum moved up = pass_on(flow, &flow->client, &flow->server);
  if (flow->state != FLOW_RELAYING)
    return; /* refused meanwhile */
  enum moved down = pass_on(flow, &flow->server, &flow->client);
  if (up == MOVED_BROKEN || down == MOVED_BROKEN)
    flow_close(flow, true);
  else if (flow->client.passed_end && flow->server.passed_end)
    flow_close(flow, false);
  else if (up == MOVED_SOME || down == MOVED_SOME)
    want_turn(flow);
}
