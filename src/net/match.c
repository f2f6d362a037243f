/* Host rules; see match.h. */
#include "net/match.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "net/idn.h"

/* ":443" or ":8000-8999" */
static bool take_ports(const char *text, struct host_rule *rule) {
  const char *dash = strchr(text, '-');
  size_t length = dash ? (size_t)(dash - text) : strlen(text);
  if (!port_parse(text, length, &rule->first_port))
    return false;
  rule->last_port = rule->first_port;
  if (dash && !port_parse(dash + 1, strlen(dash + 1), &rule->last_port))
    return false;
  return rule->first_port <= rule->last_port;
}

/* Where the host ends and the ports begin; an IPv6 address with ports needs brackets. */
static bool split_ports(const char *text, size_t *ret_length, const char **ret_ports) {
  const char *close = text[0] == '[' ? strchr(text, ']') : NULL;
  if (text[0] == '[' && !close)
    return false;
  /* "[2001:db8::]/32:443": what follows the bracket may be a length, then a port */
  const char *colon = strchr(close ? close : text, ':');
  bool bare_v6 = !close && colon && strchr(colon + 1, ':');
  if (bare_v6)
    colon = NULL;
  *ret_length = colon ? (size_t)(colon - text) : strlen(text);
  *ret_ports = colon ? colon + 1 : NULL;
  return true;
}

static bool take_bits(const char *text, size_t length, unsigned most, unsigned *ret_bits) {
  unsigned bits = 0;
  if (length < 1 || length > 3)
    return false;
  for (size_t i = 0; i < length; i++) {
    if (!isdigit((unsigned char)text[i]))
      return false;
    bits = bits * 10 + (unsigned)(text[i] - '0');
  }
  *ret_bits = bits;
  return bits <= most;
}

static bool has_host_bits(const struct host_rule *rule) {
  struct address network = rule->network;
  for (unsigned bit = rule->bits; bit < (network.family == 6 ? 128 : 32); bit++) {
    if (network.bytes[bit / 8] & (0x80u >> (bit % 8)))
      return true;
  }
  return false;
}

/* No connection is ever to ::ffff:192.0.2.7, but to 192.0.2.7. */
static void unmap(struct host_rule *rule) {
  struct address plain = address_unmapped(&rule->network);
  if (rule->bits < 96 || plain.family == rule->network.family)
    return;
  rule->network = plain;
  rule->bits -= 96;
}

static const char *take_network(const char *host, size_t length, struct host_rule *rule) {
  const char *slash = memchr(host, '/', length);
  size_t size = slash ? (size_t)(slash - host) : length;
  if (!address_parse(host, size, &rule->network))
    return slash ? "is not ADDRESS/BITS" : NULL;
  unsigned most = rule->network.family == 6 ? 128 : 32;
  rule->kind = HOST_NETWORK;
  rule->bits = most;
  if (slash && !take_bits(slash + 1, length - size - 1, most, &rule->bits))
    return "has a wrong number of bits after the slash";
  if (has_host_bits(rule))
    return "is an address inside a network: write the network's first address";
  unmap(rule);
  return NULL;
}

static const char *take_name(const char *host, size_t length, struct host_rule *rule) {
  if (length == 1 && host[0] == '*') {
    rule->kind = HOST_ANY;
    return NULL;
  }
  bool below = length > 2 && host[0] == '*' && host[1] == '.';
  rule->kind = below ? HOST_BELOW : HOST_EXACT;
  if (host_parse(below ? host + 2 : host, below ? length - 2 : length, rule->name))
    return NULL;
  for (size_t i = 0; i < length; i++) {
    if ((unsigned char)host[i] >= 0x80)
      return "has characters outside ASCII; write the name in its xn-- form";
  }
  return memchr(host, '*', length)
             ? "has a * that is not a whole first label; write *.DOMAIN"
             : "is not a host name (letters, digits, hyphens and dots), *.DOMAIN or ADDRESS/BITS";
}

const char *host_rule_parse(const char *text, struct host_rule *ret_rule) {
  struct host_rule rule = {.first_port = 1, .last_port = 65535};
  size_t length;
  const char *ports, *problem = NULL;
  if (!split_ports(text, &length, &ports))
    return "has a [ without a ]";
  if (ports && !take_ports(ports, &rule))
    return "has a wrong port; write :PORT or :FIRST-LAST, from 1 to 65535";
  bool address = memchr(text, '/', length) || memchr(text, ':', length) || text[0] == '[';
  struct address literal;
  if (address || address_parse(text, length, &literal))
    problem = take_network(text, length, &rule);
  else
    problem = take_name(text, length, &rule);
  if (!problem && address && rule.kind != HOST_NETWORK)
    problem = "is not an address";
  if (problem)
    return problem;
  *ret_rule = rule;
  return NULL;
}

static int compile_list(const struct strv *list, const char *key, struct host_rule **ret_rules,
                        size_t *ret_count, struct sb_error *error) {
  STRV_FOREACH (item, list) {
    struct host_rule rule;
    const char *problem = host_rule_parse(*item, &rule);
    if (problem) {
      _cleanup_free_ char *shown = escape_string(*item);
      sb_fail(error, SB_CODE_POLICY, 0, "%s: '%s' %s", key, shown, problem);
      _cleanup_free_ char *ascii = idn_suggest(*item);
      if (ascii)
        return sb_hint(error, "write %s", ascii);
      return sb_hint(error, "write HOST, *.DOMAIN or ADDRESS/BITS, each with or without :PORT");
    }
    rule.written = xasprintf("%s: %s", key, *item);
    ARRAY_GROW(*ret_rules, *ret_count);
    (*ret_rules)[(*ret_count)++] = rule;
  }
  return 0;
}

int host_rules_new(const struct strv *allow, const struct strv *deny, bool everything,
                   struct host_rules **ret_rules, struct sb_error *error) {
  struct host_rules *rules = xcalloc(1, sizeof *rules);
  rules->everything = everything;
  if (compile_list(allow, "network.allow", &rules->allow, &rules->allow_count, error) < 0 ||
      compile_list(deny, "network.deny", &rules->deny, &rules->deny_count, error) < 0) {
    host_rules_free(rules);
    return -1;
  }
  *ret_rules = rules;
  return 0;
}

static void free_list(struct host_rule *rules, size_t count) {
  for (size_t i = 0; i < count; i++)
    free(rules[i].written);
  free(rules);
}

void host_rules_free(struct host_rules *rules) {
  if (!rules)
    return;
  free_list(rules->allow, rules->allow_count);
  free_list(rules->deny, rules->deny_count);
  free(rules);
}

void host_rules_forget(struct host_rules *rules, const char *entry) {
  for (size_t i = 0; i < rules->allow_count; i++) {
    struct host_rule *rule = &rules->allow[i];
    const char *text = strstr(rule->written, ": ");
    if (!text || strcmp(text + 2, entry) != 0)
      continue;
    rule->kind = HOST_EXACT;
    rule->name[0] = '\0'; /* nobody's */
  }
}

/* ---- deciding ---- */

/* Whole labels only: *.example.org covers a.example.org and a.b.example.org, neither example.org
 * nor evilexample.org. */
static bool is_below(const char *name, const char *domain) {
  size_t length = strlen(name), tail = strlen(domain);
  return length > tail + 1 && name[length - tail - 1] == '.' &&
         strcmp(name + length - tail, domain) == 0;
}

static bool covers_port(const struct host_rule *rule, uint16_t port) {
  return port >= rule->first_port && port <= rule->last_port;
}

bool host_rule_covers_name(const struct host_rule *rule, const char *name) {
  switch (rule->kind) {
  case HOST_EXACT:
    return strcmp(rule->name, name) == 0;
  case HOST_BELOW:
    return is_below(name, rule->name);
  case HOST_ANY:
    return true;
  case HOST_NETWORK:
    return false;
  }
  return false;
}

static bool covers_address(const struct host_rule *rule, const struct address *address) {
  return rule->kind == HOST_ANY ||
         (rule->kind == HOST_NETWORK && address_within(address, &rule->network, rule->bits));
}

static bool covers_all_ports(const struct host_rule *rule) {
  return rule->first_port == 1 && rule->last_port == 65535;
}

static struct host_decision unknown(const struct host_rules *rules) {
  return (struct host_decision){rules->everything ? HOST_ALLOWED : HOST_UNKNOWN, NULL};
}

struct host_decision host_rules_name(const struct host_rules *rules, const char *name,
                                     uint16_t port) {
  for (size_t i = 0; i < rules->deny_count; i++) {
    const struct host_rule *rule = &rules->deny[i];
    if (host_rule_covers_name(rule, name) &&
        (port ? covers_port(rule, port) : covers_all_ports(rule)))
      return (struct host_decision){HOST_DENIED, rule};
  }
  for (size_t i = 0; i < rules->allow_count; i++) {
    const struct host_rule *rule = &rules->allow[i];
    if (host_rule_covers_name(rule, name) && (port == 0 || covers_port(rule, port)))
      return (struct host_decision){HOST_ALLOWED, rule};
  }
  return unknown(rules);
}

/* Port 0 is all of them together: what has none, such as an echo request. */
static bool applies(const struct host_rule *rule, uint16_t port) {
  return port ? covers_port(rule, port) : covers_all_ports(rule);
}

static const struct host_rule *find_address(const struct host_rule *rules, size_t count,
                                            const struct address *address, uint16_t port) {
  for (size_t i = 0; i < count; i++) {
    if (covers_address(&rules[i], address) && applies(&rules[i], port))
      return &rules[i];
  }
  return NULL;
}

struct host_decision host_rules_address(const struct host_rules *rules,
                                        const struct address *address, uint16_t port) {
  struct address carried;
  const struct host_rule *rule = find_address(rules->deny, rules->deny_count, address, port);
  if (!rule && address_carried(address, &carried))
    rule = find_address(rules->deny, rules->deny_count, &carried, port);
  if (rule)
    return (struct host_decision){HOST_DENIED, rule};
  rule = find_address(rules->allow, rules->allow_count, address, port);
  return rule ? (struct host_decision){HOST_ALLOWED, rule} : unknown(rules);
}

bool host_rules_deny_names(const struct host_rules *rules) {
  for (size_t i = 0; i < rules->deny_count; i++) {
    if (rules->deny[i].kind == HOST_EXACT || rules->deny[i].kind == HOST_BELOW)
      return true;
  }
  return false;
}

bool host_rules_list_address(const struct host_rules *rules, const struct address *address,
                             uint16_t port) {
  for (size_t i = 0; i < rules->allow_count; i++) {
    const struct host_rule *rule = &rules->allow[i];
    if (rule->kind == HOST_NETWORK && covers_address(rule, address) && applies(rule, port))
      return true;
  }
  return false;
}
