/* One connection of the workload: what it wants, whether it may, and the way there. */
#include "net/flow.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "net/guard.h"
#include "net/proxy-http.h"
#include "net/upstream.h"

#define RESOLVE_MS      15000
#define RECORD_MS       15000
#define CONNECT_MS      30000
#define CONNECT_NEXT_MS 3000 /* while there are more addresses to try */
#define DENIALS_TOLD    20   /* a second; the others are counted */

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

/* A question that nobody waits for must not stay before the person who is asked: it is tried again
 * until the monitor has been told. */
struct withdrawal {
  struct withdrawal *next;
  uint32_t id;
};

void flow_send_withdrawals(struct relay *relay) {
  while (relay->withdrawals) {
    struct withdrawal *first = relay->withdrawals;
    struct link_message message = {.kind = LINK_WITHDRAW, .id = first->id};
    if (send(relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
      return;
    relay->withdrawals = first->next;
    free(first);
  }
}

void relay_withdraw(struct relay *relay, uint32_t question) {
  struct withdrawal *withdrawal = xcalloc(1, sizeof *withdrawal);
  *withdrawal = (struct withdrawal){.next = relay->withdrawals, .id = question};
  relay->withdrawals = withdrawal;
  flow_send_withdrawals(relay);
}

static void withdraw(struct flow *flow) {
  struct relay *relay = flow->relay;
  if (flow->state == FLOW_RESOLVING)
    resolver_withdraw(relay->resolver, flow);
  if (flow->asked)
    questions_forget(flow);
  if (flow->state != FLOW_ASKING)
    return;
  for (struct flow *other = relay->flows; other; other = other->next) {
    if (other != flow && other->state == FLOW_ASKING && other->question == flow->question)
      return; /* somebody else still waits for it */
  }
  relay_withdraw(relay, flow->question);
}

void flow_close(struct flow *flow, bool reset) {
  struct relay *relay = flow->relay;
  if (flow->state == FLOW_CLOSED)
    return;
  withdraw(flow);
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

/* ---- refusing ---- */

void relay_note_denied(struct relay *relay, const struct refusal *refusal) {
  struct ledger_line *line =
      ledger_find(relay->input->ledger, refusal->host, refusal->port, false, refusal->reason);
  uint64_t now = loop_now_ms();
  if (line) {
    line->connections++;
    line->asked |= refusal->asked;
  }
  if (refusal->asked)
    return;
  if (now >= relay->denial_window_ms) {
    relay->denial_window_ms = now + 1000;
    relay->denials_told = 0;
  }
  relay->denials_untold++;
  if (relay->denials_told >= DENIALS_TOLD)
    return;
  relay->denials_told++;
  struct link_message message = {
      .kind = LINK_DENIED, .port = refusal->port, .count = relay->denials_untold};
  snprintf(message.host, sizeof message.host, "%s", refusal->host);
  snprintf(message.reason, sizeof message.reason, "%s", refusal->reason);
  if (send(relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
    relay->denials_untold = 0;
}

static void say_no(struct flow *flow, bool by_policy) {
  if (flow->state == FLOW_RELAYING)
    flow_close(flow, true); /* it was told yes already */
  else if (flow->kind == FLOW_SOCKS)
    socks_say(flow, by_policy ? 2 : 4); /* not allowed; host unreachable */
  else if (flow->kind == FLOW_CONNECT || flow->kind == FLOW_HTTP)
    http_say_refused(flow, by_policy);
  else
    flow_close(flow, true);
}

__attribute__((format(printf, 2, 0))) static void set_reason(struct flow *flow, const char *format,
                                                             va_list arguments) {
  char reason[sizeof flow->reason]; /* the old one may be an argument */
  vsnprintf(reason, sizeof reason, format, arguments);
  strcpy(flow->reason, reason);
}

void flow_refuse(struct flow *flow, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_reason(flow, format, arguments);
  va_end(arguments);
  flow->relay->input->ledger->denied++;
  relay_note_denied(flow->relay, &(struct refusal){.host = flow->host,
                                                   .port = flow->port,
                                                   .reason = flow->reason,
                                                   .asked = flow->asked_for});
  say_no(flow, true);
}

void flow_fail(struct flow *flow, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  set_reason(flow, format, arguments);
  va_end(arguments);
  flow->relay->input->ledger->failed++;
  say_no(flow, false);
}

/* ---- connecting ---- */

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
  flow->server.readable = flow->server.writable = false;
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

/* An upstream proxy resolves names, but what an address means we know as well. */
static bool upstream_may_have(struct flow *flow) {
  if (!flow->is_address ||
      guard_allows(flow->relay->input->rules, flow->host, &flow->address, flow->port, flow->reason))
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

/* ---- deciding ---- */

static void proceed(struct flow *flow, const char *why) {
  flow->allowed_by = why;
  flow->opened = flow->recorded = false;
  resolve(flow);
}

/* Those who want the same wait for the same answer. */
static void ask(struct flow *flow) {
  struct relay *relay = flow->relay;
  flow->until_ms = 0; /* the monitor has a clock of its own for questions */
  for (struct flow *other = relay->flows; other; other = other->next) {
    if (other != flow && other->state == FLOW_ASKING && other->port == flow->port &&
        strcmp(other->host, flow->host) == 0) {
      flow->question = other->question;
      flow->state = FLOW_ASKING;
      return;
    }
  }
  struct sockaddr_storage peer;
  socklen_t size = sizeof peer;
  struct link_message message = {
      .kind = LINK_ASK, .id = ++relay->last_question, .port = flow->port, .stream = true};
  if (getpeername(flow->client.watch.fd, (struct sockaddr *)&peer, &size) == 0)
    message.client = address_from_sockaddr(&peer, &message.client_port);
  strcpy(message.host, flow->host);
  flow->question = message.id;
  if (send(relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    flow_refuse(flow, "too many questions at once");
    return;
  }
  flow->state = FLOW_ASKING;
}

static bool may_be_asked(const struct flow *flow) {
  return flow->relay->input->may_ask && !(flow->is_address && guard_reason(&flow->address));
}

void flow_wanted(struct flow *flow) {
  const struct host_rules *rules = flow->relay->input->rules;
  struct host_decision decision = flow->is_address
                                      ? host_rules_address(rules, &flow->address, flow->port)
                                      : host_rules_name(rules, flow->host, flow->port);
  if (decision.verdict == HOST_ALLOWED)
    proceed(flow, decision.rule ? decision.rule->written : "network.mode: full");
  else if (decision.verdict == HOST_DENIED)
    flow_refuse(flow, "%s", decision.rule->written);
  else if (may_be_asked(flow))
    ask(flow);
  else
    flow_refuse(flow, "not in network.allow");
}

void flow_answered(struct relay *relay, const struct link_message *message) {
  struct flow *next;
  for (struct flow *flow = relay->flows; flow; flow = next) {
    next = flow->next;
    if (flow->state != FLOW_ASKING || flow->question != message->id)
      continue;
    flow->state = FLOW_READING;
    flow->asked_for = !message->allowed;
    if (message->allowed)
      proceed(flow, "approved");
    else
      flow_refuse(flow, "%s", message->reason);
  }
}

/* ---- events ---- */

/* A connection that is up: proxies are told, then bytes may pass. */
void flow_connected(struct flow *flow) {
  flow->until_ms = 0;
  flow->state = FLOW_RELAYING;
  flow->inspect = !flow->is_address;
  if (flow->kind == FLOW_SOCKS)
    socks_say(flow, 0);
  else if (flow->kind == FLOW_CONNECT || flow->kind == FLOW_HTTP)
    http_say_connected(flow);
  if (flow->state == FLOW_RELAYING)
    pump(flow);
}

static void on_connect_event(struct flow *flow, uint32_t events) {
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
    on_connect_event(flow, events);
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

static void expire(struct flow *flow) {
  if (flow->state == FLOW_CONNECTING && !is_last_target(flow)) {
    loop_close(&flow->relay->loop, &flow->server.watch);
    connect_next(flow);
  } else if (flow->state == FLOW_CONNECTING || flow->state == FLOW_RESOLVING ||
             flow->state == FLOW_RECORDING || flow->state == FLOW_UPSTREAM) {
    withdraw(flow);
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
