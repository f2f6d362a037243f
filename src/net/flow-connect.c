/* The way of an allowed connection to its host: name, guard, audit log, one address after the
 * other. Nothing is connected to before the guard has seen its address and the log has its line. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "core/alloc.h"
#include "net/flow.h"
#include "net/guard.h"
#include "net/proxy-http.h"
#include "net/upstream.h"

#define RESOLVE_MS      15000
#define RECORD_MS       15000
#define CONNECT_MS      30000
#define CONNECT_NEXT_MS 3000 /* while there are more addresses to try */

/* ---- one address after the other ---- */

static int start_connecting(struct flow *flow, const struct address *address, uint16_t port) {
  struct sockaddr_storage target;
  socklen_t length = address_to_sockaddr(address, port, &target);
  int fd = socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    return -errno;
  static const int on = 1;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  if (connect(fd, (struct sockaddr *)&target, length) < 0 && errno != EINPROGRESS) {
    int result = -errno;
    close(fd);
    return result;
  }
  flow->server.watch.fd = fd;
  flow->server.readable = flow->server.writable = flow->server.hung_up = false;
  int result = loop_add(&flow->relay->loop, &flow->server.watch);
  if (result < 0)
    loop_close(&flow->relay->loop, &flow->server.watch);
  return result;
}

static bool is_last_target(const struct flow *flow) {
  return flow->next_target >= flow->targets->count;
}

/* A way of our own through an upstream proxy: policy named it, so it is not guarded. */
static bool uses_upstream(const struct flow *flow) {
  return flow->relay->input->upstream.kind != UPSTREAM_NONE;
}

static void note_opened(struct flow *flow, struct ledger_line *line) {
  flow->opened = true;
  flow->line = line;
  ledger_opened(flow->relay->input->ledger, line);
}

/* True if the connection may be made now: the audit log has it. */
static bool may_open(struct flow *flow) {
  struct relay *relay = flow->relay;
  if (flow->opened)
    return true; /* it tries one more address */
  struct ledger_line *line =
      ledger_find(relay->input->ledger, flow->host, flow->port, true, flow->allowed_by);
  if (flow->recorded || (line && line->recorded)) {
    note_opened(flow, line);
    return true;
  }
  flow->state = FLOW_RECORDING;
  flow->until_ms = loop_now_ms() + RECORD_MS;
  flow->question = record_ask(relay, flow->host, flow->port, flow->allowed_by);
  if (flow->question == 0)
    flow_refuse(flow, RECORD_FAILED);
  return false;
}

static void connect_next(struct flow *flow) {
  bool refused = false;
  int result = -EHOSTUNREACH;
  while (!is_last_target(flow)) {
    const struct address *address = &flow->targets->addresses[flow->next_target++];
    bool upstream = uses_upstream(flow);
    if (!upstream &&
        !guard_allows(flow->relay->input->rules, flow->host, address, flow->port, flow->reason)) {
      refused = true;
      continue;
    }
    if (!may_open(flow)) {
      flow->next_target--;
      return;
    }
    result =
        start_connecting(flow, address, upstream ? flow->relay->input->upstream.port : flow->port);
    if (result < 0)
      continue;
    flow->state = FLOW_CONNECTING;
    flow->until_ms = loop_now_ms() + (is_last_target(flow) ? CONNECT_MS : CONNECT_NEXT_MS);
    return;
  }
  flow->guarded = refused;
  if (refused)
    flow_refuse(flow, "%s", flow->reason);
  else
    flow_fail(flow, "connecting: %s", strerror(-result));
}

void flow_recorded(struct relay *relay, const struct link_message *message) {
  struct flow *next;
  for (struct flow *flow = relay->flows; flow; flow = next) {
    next = flow->next;
    if (flow->state != FLOW_RECORDING || flow->question != message->id)
      continue;
    flow->state = FLOW_CONNECTING;
    flow->recorded = message->allowed;
    if (message->allowed)
      connect_next(flow);
    else
      flow_refuse(flow, "%s", message->reason);
  }
}

/* ---- from a name to addresses ---- */

static void on_resolved(void *context, const struct resolved *resolved) {
  struct flow *flow = context;
  flow->state = FLOW_CONNECTING; /* nothing to withdraw any more */
  if (resolved->status == RESOLVE_NO_SUCH_NAME) {
    flow_fail(flow, "there is no such name");
    return;
  }
  if (resolved->status == RESOLVE_NO_ADDRESS) {
    flow_fail(flow, "the name has no address");
    return;
  }
  if (resolved->status != RESOLVE_OK) {
    flow_fail(flow, "the name servers of this machine do not answer");
    return;
  }
  flow->targets = xmalloc(sizeof *flow->targets);
  *flow->targets = *resolved;
  flow->next_target = 0;
  connect_next(flow);
}

/* RFC 6761: it and every name below it is loopback, whoever resolves. */
static bool is_localhost(const char *name) {
  static const char localhost[] = "localhost";
  size_t length = strlen(name), tail = strlen(localhost);
  return length >= tail && strcmp(name + length - tail, localhost) == 0 &&
         (length == tail || name[length - tail - 1] == '.');
}

/* An upstream proxy resolves names, but what an address means we know as well. */
static bool upstream_may_have(struct flow *flow) {
  static const struct address loopback = {.family = 4, .bytes = {127, 0, 0, 1}};
  const struct address *address = flow->is_address           ? &flow->address
                                  : is_localhost(flow->host) ? &loopback
                                                             : NULL;
  if (!address ||
      guard_allows(flow->relay->input->rules, flow->host, address, flow->port, flow->reason))
    return true;
  flow->guarded = true;
  flow_refuse(flow, "%s", flow->reason);
  return false;
}

static void resolve(struct flow *flow) {
  if (uses_upstream(flow) && !upstream_may_have(flow))
    return;
  const struct upstream *upstream = &flow->relay->input->upstream;
  const char *host = uses_upstream(flow) ? upstream->host : flow->host;
  struct address literal;
  if (address_parse(host, strlen(host), &literal)) {
    struct resolved one = {.addresses = {literal}, .count = 1};
    on_resolved(flow, &one);
    return;
  }
  flow->state = FLOW_RESOLVING;
  flow->until_ms = loop_now_ms() + RESOLVE_MS;
  resolver_ask(flow->relay->resolver, host, on_resolved, flow);
}

void flow_connect(struct flow *flow, const char *allowed_by) {
  flow->allowed_by = allowed_by;
  flow->opened = flow->recorded = false;
  resolve(flow);
}

/* ---- what comes of it ---- */

/* A connection that is up: proxies are told, then bytes may pass. */
void flow_connected(struct flow *flow) {
  flow->until_ms = 0;
  flow->state = FLOW_RELAYING;
  flow->inspect = !flow->is_address || host_rules_deny_names(flow->relay->input->rules);
  if (flow->kind == FLOW_SOCKS)
    socks_say(flow, 0);
  else if (flow->kind == FLOW_CONNECT || flow->kind == FLOW_HTTP)
    http_say_connected(flow);
  if (flow->state == FLOW_RELAYING)
    pump(flow);
}

void flow_connect_event(struct flow *flow, uint32_t events) {
  int result = 0;
  socklen_t size = sizeof result;
  if (events & (EPOLLERR | EPOLLHUP))
    (void)getsockopt(flow->server.watch.fd, SOL_SOCKET, SO_ERROR, &result, &size);
  if (result != 0) {
    loop_close(&flow->relay->loop, &flow->server.watch);
    if (is_last_target(flow))
      flow_fail(flow, "connecting: %s", strerror(result));
    else
      connect_next(flow);
    return;
  }
  if (!flow->server.writable)
    return;
  free(flow->targets);
  flow->targets = NULL;
  if (uses_upstream(flow))
    upstream_begin(flow);
  else
    flow_connected(flow);
}

bool flow_connect_late(struct flow *flow) {
  if (is_last_target(flow))
    return false;
  loop_close(&flow->relay->loop, &flow->server.watch);
  connect_next(flow);
  return true;
}
