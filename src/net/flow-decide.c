/* May this connection be made? By rules, or by whoever is asked; and how a refusal is told: to the
 * client, in the ledger, to the monitor, which must not be flooded by it. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "net/flow.h"
#include "net/guard.h"
#include "net/proxy-http.h"

#define DENIALS_TOLD 20 /* a second; the others are counted */

/* ---- refusing ---- */

/* The last of them speaks for all. */
void relay_tell_denials(struct relay *relay) {
  uint64_t now = loop_now_ms();
  if (now >= relay->denial_window_ms) {
    relay->denial_window_ms = now + 1000;
    relay->denials_told = 0;
  }
  if (relay->denied.count == 0 || relay->denials_told >= DENIALS_TOLD)
    return;
  relay->denials_told++;
  if (send(relay->line.fd, &relay->denied, sizeof relay->denied, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
    relay->denied.count = 0;
}

void relay_note_denied(struct relay *relay, const struct refusal *refusal) {
  struct ledger_line *line =
      ledger_find(relay->input->ledger, refusal->host, refusal->port, false, refusal->reason);
  if (line) {
    line->connections++;
    line->asked |= refusal->asked;
  }
  if (refusal->asked)
    return;
  struct link_message *denied = &relay->denied;
  *denied =
      (struct link_message){.kind = LINK_DENIED, .port = refusal->port, .count = denied->count + 1};
  snprintf(denied->host, sizeof denied->host, "%s", refusal->host);
  snprintf(denied->reason, sizeof denied->reason, "%s", refusal->reason);
  relay_tell_denials(relay);
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

/* ---- deciding ---- */

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
    flow_connect(flow, decision.rule ? decision.rule->written : "network.mode: full");
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
      flow_connect(flow, "approved");
    else
      flow_refuse(flow, "%s", message->reason);
  }
}

/* ---- nobody waits for it any more ---- */

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

void flow_withdraw(struct flow *flow) {
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
