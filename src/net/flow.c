/* One connection of the workload, from accept to close: what it wants, and what becomes of events
 * at its two ends. Whether it may is in flow-decide.c, the way there in flow-connect.c. */
#include "net/flow.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "net/proxy-http.h"
#include "net/upstream.h"

/* ---- birth and death ---- */

static void on_client(struct watch *watch, uint32_t events);
static void on_server(struct watch *watch, uint32_t events);

static struct flow *new_flow(struct relay *relay, int fd) {
  struct flow *flow = xcalloc(1, sizeof *flow);
  flow->relay = relay;
  flow->client = (struct end){
      .watch = {.fd = fd, .ready = on_client}, .flow = flow, .writable = true, .pipe = {-1, -1}};
  flow->server =
      (struct end){.watch = {.fd = -1, .ready = on_server}, .flow = flow, .pipe = {-1, -1}};
  flow->next = relay->flows;
  flow->link = &relay->flows;
  if (flow->next)
    flow->next->link = &flow->next;
  relay->flows = flow;
  relay->flow_count++;
  return flow;
}

/* Closing with a reset tells the client that this was no orderly end. */
void reset_on_close(int fd) {
  static const struct linger now = {.l_onoff = 1};
  if (fd >= 0)
    (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

void flow_close(struct flow *flow, bool reset) {
  struct relay *relay = flow->relay;
  if (flow->state == FLOW_CLOSED)
    return;
  flow_withdraw(flow);
  if (reset) {
    reset_on_close(flow->client.watch.fd);
    reset_on_close(flow->server.watch.fd);
  }
  loop_close(&relay->loop, &flow->client.watch);
  loop_close(&relay->loop, &flow->server.watch);
  ledger_closed(relay->input->ledger, flow->line);
  if (relay->is_annex)
    (*relay->annexed)--;
  flow->state = FLOW_CLOSED;
  *flow->link = flow->next;
  if (flow->next)
    flow->next->link = flow->link;
  relay->flow_count--;
  flow->next_dead = relay->dead; /* events of this round may still point here */
  relay->dead = flow;
}

/* ---- events ---- */

static void note_events(struct end *end, uint32_t events) {
  if (events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
    end->readable = true;
  if (events & (EPOLLOUT | EPOLLERR))
    end->writable = true;
  if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR | EPOLLPRI))
    end->unsure = true;
  if (events & (EPOLLRDHUP | EPOLLHUP))
    end->hung_up = true;
  if (events & EPOLLPRI)
    end->urgent = true;
}

static void read_request(struct flow *flow) {
  char first;
  if (flow->kind == FLOW_LED) { /* not known yet: the first byte tells */
    ssize_t got = recv(flow->client.watch.fd, &first, 1, MSG_PEEK);
    if (got < 0 && errno == EAGAIN)
      return;
    if (got <= 0) {
      flow_close(flow, false);
      return;
    }
    flow->kind = first == 5 ? FLOW_SOCKS : FLOW_HTTP;
  }
  if (flow->kind == FLOW_SOCKS)
    socks_read(flow);
  else
    http_read(flow);
}

/* While it waits. An end of file may be half of one, of who has said all it had to say; while it is
 * asked about we cannot wait to see, for the question would stay when its program has been killed.
 */
static bool is_gone(const struct flow *flow, uint32_t events) {
  bool asked_about = flow->state == FLOW_ASKING || questions_wait(flow);
  return (events & (EPOLLHUP | EPOLLERR)) || ((events & EPOLLRDHUP) && asked_about);
}

/* Nobody is there whom anything could be passed on to. The error itself may have been told to a
 * call that could do nothing about it; what stays is that both directions are shut, and we did not.
 */
static bool is_reset(const struct flow *flow, uint32_t events) {
  return (events & EPOLLERR) || ((events & EPOLLHUP) && !flow->server.passed_end);
}

static void on_client(struct watch *watch, uint32_t events) {
  struct flow *flow = ((struct end *)watch)->flow;
  note_events(&flow->client, events);
  if (is_reset(flow, events)) {
    flow_close(flow, true);
    return;
  }
  switch (flow->state) {
  case FLOW_READING:
    read_request(flow);
    return;
  case FLOW_QUESTIONS:
    if (questions_wait(flow) && is_gone(flow, events))
      flow_close(flow, true);
    else
      questions_read_stream(flow);
    return;
  case FLOW_RELAYING:
    pump(flow);
    return;
  case FLOW_HTTP_RELAYING:
    http_pump(flow);
    return;
  default:
    if (is_gone(flow, events))
      flow_close(flow, true);
  }
}

static void on_server(struct watch *watch, uint32_t events) {
  struct flow *flow = ((struct end *)watch)->flow;
  note_events(&flow->server, events);
  if (flow->state == FLOW_CONNECTING)
    flow_connect_event(flow, events);
  else if (flow->state == FLOW_UPSTREAM)
    upstream_read(flow);
  else if (flow->state == FLOW_RELAYING)
    pump(flow);
  else if (flow->state == FLOW_HTTP_RELAYING)
    http_pump(flow);
}

/* ---- arriving ---- */

/* A synthetic address becomes its name. */
static bool set_address(struct flow *flow, const struct address *address) {
  flow->address = address_unmapped(address);
  const char *name = names_find(flow->relay->names, &flow->address);
  flow->is_address = !name;
  if (name) {
    strcpy(flow->host, name);
    return true;
  }
  char shown[64];
  address_to_text(&flow->address, shown);
  strcpy(flow->host, shown);
  return !names_is_synthetic(&flow->address);
}

/* A name, or an address in its usual form. */
bool flow_set_host(struct flow *flow, const char *text, size_t length) {
  struct address address;
  if (address_parse(text, length, &address))
    return set_address(flow, &address);
  flow->is_address = false;
  return host_parse(text, length, flow->host);
}

static void begin(struct flow *flow, const struct address *target, uint16_t port) {
  static const struct address loopback4 = {.family = 4, .bytes = {127}},
                              loopback6 = {.family = 6, .bytes = {[15] = 1}};
  bool here = address_within(target, &loopback4, 8) || address_equal(target, &loopback6);
  flow->port = port;
  if (port == RESOLVER_PORT) {
    flow->state = FLOW_QUESTIONS; /* whoever it was for */
    flow->until_ms = loop_now_ms() + READ_MS;
  } else if (here) {
    flow->until_ms = loop_now_ms() + READ_MS; /* to the proxies */
  } else if (set_address(flow, target)) {
    flow_wanted(flow);
  } else {
    flow_refuse(flow, "an address of ours that no name has any more");
  }
}

void flow_accepted(struct relay *relay, int fd) {
  struct sockaddr_storage target;
  socklen_t size = sizeof target;
  uint16_t port = 0;
  if (getsockname(fd, (struct sockaddr *)&target, &size) < 0) {
    close(fd);
    return;
  }
  struct flow *flow = new_flow(relay, fd);
  struct address address = address_from_sockaddr(&target, &port);
  if (loop_add(&relay->loop, &flow->client.watch) < 0)
    flow_close(flow, true);
  else
    begin(flow, &address, port);
}

void flow_moved_in(struct relay *relay, int client, int server, struct ledger_line *line) {
  struct flow *flow = new_flow(relay, client);
  flow->server.watch.fd = server;
  flow->state = FLOW_RELAYING;
  flow->line = line;
  if (loop_add(&relay->loop, &flow->client.watch) < 0 ||
      loop_add(&relay->loop, &flow->server.watch) < 0)
    flow_close(flow, true);
}

/* ---- time ---- */

static void expire(struct flow *flow) {
  if (flow->state == FLOW_CONNECTING && flow_connect_late(flow))
    return;
  if (flow->state == FLOW_CONNECTING || flow->state == FLOW_RESOLVING ||
      flow->state == FLOW_RECORDING || flow->state == FLOW_UPSTREAM ||
      flow->state == FLOW_HTTP_RELAYING) {
    flow_withdraw(flow);
    flow->state = FLOW_CONNECTING;
    flow_fail(flow, "no answer in time");
  } else {
    flow_close(flow, true);
  }
}

void flow_tick(struct relay *relay, uint64_t now) {
  struct flow *next;
  for (struct flow *flow = relay->flows; flow; flow = next) {
    next = flow->next;
    if (flow->until_ms && now >= flow->until_ms)
      expire(flow);
  }
}
