/* The figures of a network driver as JSON: what was let through and what was refused, in the shape
 * that the relay's ledger has. */
#include <netinet/in.h>
#include <stdio.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "core/strv.h"
#include "net/drivers/figures.h"
#include "net/guard.h"
#include "session/drivers-ask.h"
#include "session/monitor.h"

/* null: it is not known. */
static json_t *number(int64_t value) {
  return value < 0 ? json_null() : json_integer(value);
}

static void set_protocol(json_t *object, uint8_t protocol) {
  char shown[16];
  const char *name = protocol == IPPROTO_TCP      ? "tcp"
                     : protocol == IPPROTO_UDP    ? "udp"
                     : protocol == IPPROTO_ICMP   ? "icmp"
                     : protocol == IPPROTO_ICMPV6 ? "icmpv6"
                                                  : NULL;
  snprintf(shown, sizeof shown, "%u", protocol);
  json_set_string(object, "protocol", name ? name : shown);
}

/* ---- what was refused ---- */

/* Why the rules have refused it, as far as an address tells. */
static void explain_refusal(const struct host_rules *rules, const struct driver_line *line,
                            char ret_reason[REASON_SIZE]) {
  char shown[64];
  address_to_text(&line->address, shown);
  struct host_decision decision = host_rules_address(rules, &line->address, line->port);
  if (decision.verdict == HOST_DENIED)
    snprintf(ret_reason, REASON_SIZE, "%s", decision.rule->written);
  else if (guard_allows(rules, shown, &line->address, line->port, ret_reason))
    snprintf(ret_reason, REASON_SIZE, "not in network.allow");
}

static json_t *refused_to_json(const struct monitor *monitor, const struct driver_line *line) {
  char shown[64], reason[REASON_SIZE] = "";
  address_to_text(&line->address, shown);
  explain_refusal(monitor->request->plan->network.rules, line, reason);
  json_t *object = json_pack("{s:s, s:i, s:s, s:I}", "host", shown, "port", (int)line->port,
                             "decision", "deny", "packets", (json_int_t)line->count);
  set_protocol(object, line->protocol);
  json_set_string(object, "reason", reason);
  /* What somebody denied is in the list of decisions already. */
  bool asked =
      line->protocol == IPPROTO_TCP && driven_was_denied(monitor, &line->address, line->port);
  json_object_set_new(object, "asked", json_boolean(asked));
  return object;
}

/* ---- what was let through ---- */

/* The rule, if an address tells it. False: a name or an answer has opened it. */
static bool explain_permission(const struct host_rules *rules, const struct address *address,
                               uint16_t port, char ret_reason[REASON_SIZE]) {
  struct host_decision decision = host_rules_address(rules, address, port);
  bool told = decision.verdict == HOST_ALLOWED && decision.rule;
  if (told)
    snprintf(ret_reason, REASON_SIZE, "%s", decision.rule->written);
  else if (rules->everything)
    snprintf(ret_reason, REASON_SIZE, "network.mode: full");
  else if (ret_reason[0] == '\0')
    snprintf(ret_reason, REASON_SIZE, "approved");
  return told;
}

/* A packet has no name. It is called by the one that has opened its address, if that is one. */
static json_t *peer_to_json(const struct monitor *monitor, const struct address *address,
                            uint8_t protocol, uint16_t port) {
  _cleanup_strv_ struct strv names = {0};
  char shown[64], reason[REASON_SIZE] = "";
  address_to_text(address, shown);
  if (monitor->network.ledger)
    ledger_names(monitor->network.ledger, address, &names, reason);
  bool listed = explain_permission(monitor->request->plan->network.rules, address, port, reason);
  json_t *object =
      json_pack("{s:s, s:i, s:s, s:o}", "address", shown, "port", (int)port, "decision", "allow",
                "names", json_string_array(names.items, names.count));
  json_set_string(object, "host", names.count == 1 && !listed ? names.items[0] : shown);
  set_protocol(object, protocol);
  json_set_string(object, "reason", reason);
  return object;
}

static json_t *permitted_to_json(const struct monitor *monitor, const struct driver_line *line) {
  json_t *object = peer_to_json(monitor, &line->address, line->protocol, line->port);
  json_t *figures =
      json_pack("{s:b, s:I, s:n, s:o, s:o}", "asked", false, "connections", (json_int_t)line->count,
                "active", "sent", number(line->sent), "received", number(line->received));
  json_object_update(object, figures);
  json_decref(figures);
  return object;
}

/* As the relay's lines in the audit log: there it is the rule. */
json_t *driven_opened_to_json(const struct monitor *monitor, const struct sighting *sighting) {
  json_t *object = peer_to_json(monitor, &sighting->address, sighting->protocol, sighting->port);
  json_object_set(object, "rule", json_object_get(object, "reason"));
  json_object_del(object, "reason");
  return object;
}

/* ---- lists ---- */

/* Appends them, and takes what they count from the number of all; unknown stays unknown, and what
 * came between the two looks is no less than nothing. */
static void append_lines(json_t *hosts, const struct monitor *monitor,
                         const struct driver_line *lines, size_t count, int64_t *unlisted,
                         json_t *(*to_json)(const struct monitor *, const struct driver_line *)) {
  int64_t listed = 0;
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(hosts, to_json(monitor, &lines[i]));
    listed += lines[i].count;
  }
  if (*unlisted >= 0)
    *unlisted = *unlisted > listed ? *unlisted - listed : 0;
}

/* What the resolver has to tell comes first: a name says more than an address. */
static json_t *names_to_json(const struct ledger *ledger, json_t *object) {
  json_t *told = ledger_to_json(ledger);
  json_object_set(object, "questions", json_object_get(told, "questions"));
  json_object_set(object, "denied_questions", json_object_get(told, "denied_questions"));
  json_t *hosts = json_incref(json_object_get(told, "hosts"));
  json_decref(told);
  return hosts;
}

json_t *driven_to_json(const struct monitor *monitor) {
  const struct driven *driven = &monitor->network.driven;
  struct driver_figures figures;
  driver_figures_read(driven->counters, driven->rules, &figures);
  json_t *object = json_pack("{s:s, s:b}", "driver", monitor->request->plan->network.driver->name,
                             "connected", driven->ready && !driven->gone);
  json_t *hosts =
      monitor->network.ledger ? names_to_json(monitor->network.ledger, object) : json_array();
  int64_t unlisted = figures.refused, unlisted_connections = figures.connections;
  append_lines(hosts, monitor, figures.allowed, figures.allowed_count, &unlisted_connections,
               permitted_to_json);
  append_lines(hosts, monitor, figures.denied, figures.denied_count, &unlisted, refused_to_json);
  const struct {
    const char *key;
    int64_t value;
  } rows[] = {{"sent", figures.sent},
              {"received", figures.received},
              {"connections", figures.connections},
              {"unlisted_connections", unlisted_connections},
              {"refused", figures.refused},
              {"unlisted", unlisted}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    json_object_set_new(object, rows[i].key, number(rows[i].value));
  json_object_set_new(object, "hosts", hosts);
  return object;
}
