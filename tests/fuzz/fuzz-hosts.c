/* libFuzzer target for everything that names a host: names, addresses, ports, rules with wildcards
 * and networks, upstream proxies. A text never has two meanings, and what a rule says it covers it
 * covers, unless it is denied. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/strv.h"
#include "net/guard.h"
#include "net/idn.h"
#include "net/settings.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

static void check_name(const char *text, size_t length) {
  char name[HOST_NAME_SIZE], again[HOST_NAME_SIZE];
  struct address address;
  if (!host_parse(text, length, name))
    return;
  if (address_parse(text, length, &address) || !host_parse(name, strlen(name), again) ||
      strcmp(name, again) != 0)
    abort();
}

static void check_address(const char *text, size_t length) {
  struct address address, again;
  char written[64];
  if (!address_parse(text, length, &address))
    return;
  address_to_text(&address, written);
  if (!address_parse(written, strlen(written), &again) || !address_equal(&address, &again))
    abort();
  struct address plain = address_unmapped(&address);
  if (guard_reason(&plain) && !guard_reason(&address)) /* no disguise */
    abort();
}

static void check_authority(const char *text, size_t length) {
  const char *host;
  size_t size;
  uint16_t port = 1;
  if (!authority_split(text, length, &host, &size, &port))
    return;
  if (size == 0 || host < text || host + size > text + length || port == 0)
    abort();
}

static struct host_rules *rules_of(const char *allow, const char *deny) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_strv_ struct strv allowed = {0}, denied = {0};
  struct host_rules *rules = NULL;
  if (allow)
    strv_add(&allowed, allow);
  if (deny)
    strv_add(&denied, deny);
  if (host_rules_new(&allowed, &denied, false, &rules, &error) < 0)
    abort();
  return rules;
}

static enum host_verdict judge(const char *allow, const char *deny, const struct host_rule *rule,
                               const char *name) {
  struct host_rules *rules = rules_of(allow, deny);
  uint16_t port = rule->last_port;
  enum host_verdict verdict = rule->kind == HOST_NETWORK
                                  ? host_rules_address(rules, &rule->network, port).verdict
                                  : host_rules_name(rules, name, port).verdict;
  host_rules_free(rules);
  return verdict;
}

static void check_rule(const char *text) {
  struct host_rule rule;
  char name[HOST_NAME_SIZE + 2] = "a.";
  if (host_rule_parse(text, &rule))
    return;
  if (rule.first_port == 0 || rule.first_port > rule.last_port)
    abort();
  strcpy(rule.kind == HOST_EXACT ? name : name + 2, rule.kind == HOST_ANY ? "b" : rule.name);
  if (judge(text, NULL, &rule, name) != HOST_ALLOWED ||
      judge(text, text, &rule, name) != HOST_DENIED)
    abort();
  if (judge(NULL, NULL, &rule, name) != HOST_UNKNOWN)
    abort();
  if (rule.kind == HOST_BELOW && judge(text, NULL, &rule, rule.name) != HOST_UNKNOWN)
    abort();
}

static void check_upstream(const char *text) {
  for (int socks = 0; socks < 2; socks++) {
    struct upstream upstream = {0};
    if (!upstream_parse(text, socks, &upstream) && (!upstream.host[0] || upstream.port == 0))
      abort();
  }
}

static void check_advice(const char *text) {
  _cleanup_free_ char *advice = idn_suggest(text);
  for (const char *at = advice; at && *at; at++) {
    if ((unsigned char)*at >= 0x80)
      abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  uint16_t port;
  _cleanup_free_ char *text = xstrndup((const char *)data, length); /* ends at a NUL */
  check_name((const char *)data, length);
  check_address((const char *)data, length);
  check_authority((const char *)data, length);
  if (port_parse((const char *)data, length, &port) && port == 0)
    abort();
  check_rule(text);
  check_upstream(text);
  check_advice(text);
  return 0;
}
