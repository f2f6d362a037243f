/* The resolver's answers for a driver: real addresses, which the packet filter of the session lets
 * through before the workload knows them. */
#include <stdio.h>
#include <string.h>

#include "net/drivers/openings.h"
#include "net/guard.h"
#include "net/questions-private.h"

#define OPENINGS_AT_ONCE 64

/* Whether there is a port at which the packet filter could let it pass. What the guard keeps is not
 * opened, but a rule that lists it lets it through all the same. */
static bool may_be_answered(const struct relay *relay, const struct dns_question *question,
                            const struct address *address, char ret_reason[REASON_SIZE]) {
  const struct host_rules *rules = relay->input->rules;
  struct address unmapped = address_unmapped(address);
  if (unmapped.family != address->family) {
    snprintf(ret_reason, REASON_SIZE, "leads to an IPv4 address in the form of IPv6");
    return false; /* a program would use IPv4, which was not asked for */
  }
  for (size_t i = 0; i < rules->allow_count; i++) {
    const struct host_rule *rule = &rules->allow[i];
    if (rule->kind == HOST_NETWORK && address_within(address, &rule->network, rule->bits) &&
        guard_allows(rules, question->name, address, rule->first_port, ret_reason))
      return true;
  }
  return guard_allows(rules, question->name, address, 0, ret_reason);
}

static bool is_of_type(const struct address *address, uint16_t type) {
  return address->family == 6 ? type == DNS_TYPE_AAAA : type == DNS_TYPE_A || type == DNS_TYPE_ANY;
}

static void reply_real(struct asked *asked, const struct dns_question *question, bool opened) {
  struct asker asker = asked->asker;
  struct dns_reply reply = {.code = opened ? DNS_OK : DNS_SERVER_FAILURE,
                            .addresses = asked->addresses,
                            .address_count = opened ? asked->address_count : 0,
                            .ttl = asked->ttl};
  send_reply(&asker, question, &reply);
  asked_free(asked);
}

static uint32_t seconds_open(const struct asked *asked) {
  return (asked->ttl > OPENING_SHORTEST ? asked->ttl : OPENING_SHORTEST) + OPENING_GRACE;
}

static bool send_opening(struct asked *asked) {
  struct relay *relay = asked->asker.relay;
  struct opening opening = {.id = ++relay->last_question,
                            .classes = asked->classes,
                            .seconds = seconds_open(asked),
                            .count = (uint32_t)asked->address_count};
  memcpy(opening.addresses, asked->addresses, sizeof opening.addresses);
  asked->id = opening.id;
  asked->sent = send(relay->openings.fd, &opening, sizeof opening, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
  relay->openings_sent += asked->sent;
  return asked->sent;
}

/* No more at a time than certainly fit into the line, there and back; the others wait here. */
static void send_openings(struct relay *relay) {
  for (struct asked *at = relay->opening; at; at = at->next) {
    if (!at->sent && (relay->openings_sent >= OPENINGS_AT_ONCE || !send_opening(at)))
      return;
  }
}

static void ask_to_open(struct asked *asked) {
  struct relay *relay = asked->asker.relay;
  struct asked **last = &relay->opening;
  while (*last)
    last = &(*last)->next;
  *last = asked;
  send_openings(relay);
}

/* Keeps those that are asked for and may be answered. False: there were some, and none may be. */
static bool choose_addresses(struct asked *asked, const struct dns_question *question,
                             const struct resolved *resolved, char ret_reason[REASON_SIZE]) {
  size_t usable = 0;
  for (size_t i = 0; i < resolved->count; i++) {
    const struct address *address = &resolved->addresses[i];
    if (!may_be_answered(asked->asker.relay, question, address, ret_reason))
      continue;
    usable++;
    if (is_of_type(address, question->type))
      asked->addresses[asked->address_count++] = *address;
  }
  return usable > 0 || resolved->count == 0;
}

/* What becomes of the connections is not known here; that the name was found is. */
static void note_found(const struct asked *asked, const char *name) {
  struct relay *relay = asked->asker.relay;
  struct host_decision decision = host_rules_name(relay->input->rules, name, 0);
  struct ledger_line *line = ledger_find(relay->input->ledger, name, 0, true,
                                         asked->approved ? "approved"
                                         : decision.rule ? decision.rule->written
                                                         : "network.mode: full");
  if (!line)
    return;
  line->connections++;
  for (size_t i = 0; i < asked->address_count; i++)
    ledger_lead(relay->input->ledger, line, &asked->addresses[i]);
}

/* The packet filter knows the addresses before the workload does. */
void answer_real(struct asked *asked, const struct dns_question *question,
                 const struct resolved *resolved) {
  struct relay *relay = asked->asker.relay;
  struct asker asker = asked->asker;
  char reason[REASON_SIZE] = "";
  if (!choose_addresses(asked, question, resolved, reason)) {
    reply_refused(&asker, question, reason, false);
    asked_free(asked);
    return;
  }
  asked->classes =
      port_classes_of(&relay->classes, relay->input->rules, question->name, asked->approved);
  note_found(asked, question->name);
  asked->ttl = resolved->ttl < OPENING_TTL_MOST ? resolved->ttl : OPENING_TTL_MOST;
  if (asked->address_count == 0 || asked->classes == 0)
    reply_real(asked, question, true);
  else
    ask_to_open(asked);
}

void unlink_opening(const struct asked *asked) {
  struct asked **link = &asked->asker.relay->opening;
  while (*link && *link != asked)
    link = &(*link)->next;
  if (*link)
    *link = asked->next;
}

void questions_opened(struct relay *relay, uint32_t id, bool done) {
  struct asked *asked = relay->opening;
  struct dns_question question;
  while (asked && !(asked->sent && asked->id == id))
    asked = asked->next;
  if (asked)
    unlink_opening(asked);
  relay->openings_sent--;
  send_openings(relay);
  if (!asked)
    return; /* whoever asked has gone */
  struct flow *flow = asked->asker.flow;
  (void)dns_read(asked->message, asked->length, &question); /* it was read before */
  reply_real(asked, &question, done);
  if (flow)
    questions_read_stream(flow);
}
