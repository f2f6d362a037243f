/* Rules for the drivers' networks, and nft's opinion of them. */
#include "unit.h"

#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/strv.h"
#include "net/drivers/classes.h"
#include "net/drivers/driver.h"
#include "net/drivers/egress.h"
#include "net/drivers/knocks.h"
#include "net/guard.h"

static struct host_rules *rules_of(const char *allow, const char *deny, bool everything) {
  _cleanup_strv_ struct strv allowed = {0}, denied = {0};
  if (allow)
    strv_add(&allowed, allow);
  if (deny)
    strv_add(&denied, deny);
  struct host_rules *rules;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(host_rules_new(&allowed, &denied, everything, &rules, &error), 0);
  return rules;
}

static char *egress_of(const char *allow, const char *deny, bool everything) {
  static const struct address servers[] = {{.family = 4, .bytes = {10, 0, 2, 3}},
                                           {.family = 6, .bytes = {0xfd, [15] = 3}}};
  static const struct own_network own[] = {
      {{.family = 4, .bytes = {203, 0, 113, 1}}, 32},
      {{.family = 4, .bytes = {198, 51, 100, 0}}, 24},
      {{.family = 4, .bytes = {198, 51, 100, 7}}, 32},
      {{.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, [15] = 1}}, 128},
      {{.family = 6, .bytes = {0x20, 1, 0xd, 0xb8, [15] = 1}}, 128}};
  struct host_rules *rules = rules_of(allow, deny, everything);
  struct egress egress = {.rules = rules,
                          .resolves = host_rules_have_names(rules),
                          .name_servers = servers,
                          .name_server_count = 2};
  _cleanup_free_ char *text = egress_rules(&egress), *addresses = egress_own(own, ARRAY_SIZE(own));
  host_rules_free(rules);
  return xasprintf("%s%s", text, addresses);
}

/* The first place of each, in this order; all must be there. */
static void assert_order(const char *text, const char *const *parts) {
  for (const char *at = text; *parts; parts++) {
    const char *found = strstr(at, *parts);
    if (!found)
      fail_msg("'%s' is missing, or comes too early, in:\n%s", *parts, text);
    at = found + strlen(*parts);
  }
}

static void test_order(void **state) {
  (void)state;
  _cleanup_free_ char *text = egress_of("10.1.0.0/16:5432", "203.0.113.0/24", true);
  assert_order(
      text, (const char *const[]){"policy drop;", "oifname \"lo\" accept",
                                  "ip daddr 203.0.113.0/24 goto refuse",
                                  "ip6 daddr 64:ff9b::cb00:7100/120 goto refuse",
                                  "ip6 daddr 2002:cb00:7100::/40 goto refuse",
                                  "ip daddr 10.0.2.3 meta l4proto { tcp, udp } th dport 53",
                                  "ip6 daddr fd00::3 meta l4proto",
                                  "ip daddr 10.1.0.0/16 meta l4proto { tcp, udp } "
                                  "th dport 5432-5432 goto permit",
                                  "ip daddr @guarded4 goto refuse",
                                  "ip6 daddr @guarded6 goto refuse", "ip daddr @own4 goto refuse",
                                  "ip6 daddr @own6 goto refuse", "\t\tgoto permit\n", NULL});
}

static void test_filtered(void **state) {
  (void)state;
  _cleanup_free_ char *text = egress_of("*:443", "*:25", false);
  assert_order(text,
               (const char *const[]){"\t\tmeta l4proto { tcp, udp } th dport 25-25 goto refuse",
                                     "@guarded4 goto refuse", "@guarded6 goto refuse",
                                     "\t\tmeta l4proto { tcp, udp } th dport 443-443 goto permit",
                                     "\t\tgoto refuse\n\t}", NULL});
  assert_null(strstr(text, "dport 53")); /* no question leaves */
  assert_null(strstr(text, "\t\tgoto permit\n"));
  _cleanup_free_ char *nothing = egress_of(NULL, NULL, false);
  assert_order(nothing, (const char *const[]){"@own6 goto refuse\n\t\tgoto refuse\n", NULL});
}

static void test_whole_families(void **state) {
  (void)state;
  _cleanup_free_ char *four = egress_of("0.0.0.0/0:80", NULL, false);
  _cleanup_free_ char *six = egress_of("::/0", NULL, false);
  assert_non_null(
      strstr(four, "meta nfproto ipv4 meta l4proto { tcp, udp } th dport 80-80 goto permit"));
  assert_non_null(strstr(six, "meta nfproto ipv6 goto permit"));
}

/* What the relay's guard refuses is in the sets, also inside of IPv6 addresses. */
static void test_guarded(void **state) {
  (void)state;
  struct address network;
  unsigned bits;
  size_t count = 0;
  for (size_t i = 0; guard_network(i, &network, &bits); i++) {
    if (network.family == 0)
      continue;
    count++;
    assert_non_null(guard_reason(&network)); /* its first address, at least */
    assert_true(bits >= 1 && bits <= (network.family == 6 ? 128u : 32u));
  }
  assert_true(count > 70);
  _cleanup_free_ char *text = egress_of(NULL, NULL, true);
  static const char *const parts[] = {
      "127.0.0.0/8",
      "10.0.0.0/8",
      "169.254.0.0/16",
      "own4 { 203.0.113.1/32, 198.51.100.0/24 }",
      "fc00::/7",
      "64:ff9b::c633:6400/120, ::ffff:0:c633:6400/120, 2002:c633:6400::/40, 2001:db8::1/128 }",
      "64:ff9b::a00:0/104",
      "2002:7f00::/24",
      "64:ff9b::cb00:7101/128",
      "2002:cb00:7101::/48"};
  for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
    if (!strstr(text, parts[i]))
      fail_msg("%s is not guarded in:\n%s", parts[i], text);
  }
}

/* A rule about a name is no rule about packets: alone it would match all of them. */
static void test_names(void **state) {
  (void)state;
  _cleanup_free_ char *text = egress_of("*.example.org:443", "example.org", false);
  assert_order(text, (const char *const[]){"ip daddr @own4 goto refuse",
                                           "ct state established ct mark & 0x1 == 0x1 goto permit",
                                           "ip daddr @named4_0 meta l4proto { tcp, udp } th dport "
                                           "443-443 ct mark set ct mark | 0x1 goto permit",
                                           "ip6 daddr @named6_0 meta l4proto",
                                           "th dport 53 goto refuse\n\t\tgoto refuse\n", NULL});
  assert_null(strstr(text, "\t\tgoto permit"));
  assert_null(strstr(text, "\t\tmeta l4proto { tcp, udp } th dport 443"));
  _cleanup_free_ char *full = egress_of(NULL, "example.org", true);
  assert_order(full, (const char *const[]){"@own6 goto refuse",
                                           "th dport 53 goto refuse\n\t\tgoto permit\n", NULL});
  assert_null(strstr(full, "named"));
}

static void test_names_that_cannot_be_kept(void **state) {
  (void)state;
  static const struct {
    const char *allow, *deny;
    bool everything;
    int result;
  } rows[] = {
      {"example.org", NULL, false, 0},
      {"*.example.org:443", NULL, false, 0},
      {NULL, "example.org", true, 0},
      {NULL, "example.org:25", true, -1},
      {"*", "*.example.org:25", false, -1},
      {"*", "*:25", false, 0},
      {"*.org", "example.org:25", false, 0},
      {"10.0.0.0/8:1-2", "*", false, 0},
      {"*", "::/0", false, 0},
      {NULL, NULL, false, 0},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_error_ struct sb_error error = {0};
    struct host_rules *rules = rules_of(rows[i].allow, rows[i].deny, rows[i].everything);
    assert_int_equal(egress_check(rules, false, "pasta", &error), rows[i].result);
    assert_true(rows[i].result == 0 || strstr(error.hint, "auto"));
    host_rules_free(rules);
  }
}

/* ---- classes of ports ---- */

static struct host_rules *rules_of_lists(const char *const *allow, const char *const *deny) {
  _cleanup_strv_ struct strv allowed = {0}, denied = {0};
  for (; *allow; allow++)
    strv_add(&allowed, *allow);
  for (; *deny; deny++)
    strv_add(&denied, *deny);
  struct host_rules *rules;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(host_rules_new(&allowed, &denied, false, &rules, &error), 0);
  return rules;
}

/* What each port is decided for a name, by its classes and by its rules. */
static void assert_same(const struct host_rules *rules, const struct port_classes *classes,
                        const char *name) {
  uint32_t bits = port_classes_of(classes, rules, name, false);
  for (unsigned port = 1; port <= UINT16_MAX; port++) {
    bool open = false;
    for (size_t i = 0; i < classes->count; i++)
      open |= (bits & UINT32_C(1) << i) && port >= classes->items[i].first &&
              port <= classes->items[i].last;
    bool allowed = host_rules_name(rules, name, (uint16_t)port).verdict == HOST_ALLOWED;
    if (open != allowed)
      fail_msg("%s:%u is %s", name, port, open ? "open" : "closed");
  }
}

static void test_classes(void **state) {
  (void)state;
  struct host_rules *rules = rules_of_lists(
      (const char *const[]){"a.test", "b.test:443", "*.c.test:80-90", "c.test:85-65535", "*.d.test",
                            "e.test:1-100", "e.test:101-65535", NULL},
      (const char *const[]){"x.c.test:82", "*.no.d.test", "mail.d.test:25", NULL});
  struct port_classes classes;
  assert_int_equal(port_classes_new(rules, false, &classes), 0);
  static const char *const names[] = {
      "a.test", "b.test", "c.test", "x.c.test",    "y.c.test", "w.d.test", "mail.d.test",
      "d.test", "e.test", "f.test", "x.no.d.test", "ac.test",  "a.a.test"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++)
    assert_same(rules, &classes, names[i]);
  assert_int_equal(port_classes_of(&classes, rules, "a.test", false),
                   1); /* and what has no ports */
  assert_int_equal(port_classes_of(&classes, rules, "e.test", false) & 1, 0);
  assert_int_equal(port_classes_of(&classes, rules, "f.test", false), 0);
  host_rules_free(rules);
}

static void test_too_many_classes(void **state) {
  (void)state;
  char texts[40][32];
  const char *allow[41] = {NULL};
  struct port_classes classes;
  for (unsigned i = 0; i < 40; i++) {
    snprintf(texts[i], sizeof texts[i], "a.test:%u", 100 + 2 * i);
    allow[i] = texts[i];
  }
  struct host_rules *rules = rules_of_lists(allow, (const char *const[]){NULL});
  assert_int_equal(port_classes_new(rules, false, &classes), -1);
  host_rules_free(rules);
}

static void test_table(void **state) {
  (void)state;
  assert_null(net_driver_find("auto"));
  assert_null(net_driver_find("relay"));
  for (size_t i = 0; net_drivers[i]; i++)
    assert_ptr_equal(net_driver_find(net_drivers[i]->name), net_drivers[i]);
  assert_string_equal(net_driver_find("veth")->tools[0].program, "ip");
}

/* What somebody approves is open at every port that is not denied. */
static void test_approved_classes(void **state) {
  (void)state;
  struct host_rules *rules = rules_of_lists((const char *const[]){"a.test:80", NULL},
                                            (const char *const[]){"*.b.test:25", NULL});
  struct port_classes classes;
  assert_int_equal(port_classes_new(rules, true, &classes), 0);
  uint32_t all = port_classes_of(&classes, rules, "other.test", true);
  uint32_t most = port_classes_of(&classes, rules, "www.b.test", true);
  assert_int_equal(port_classes_of(&classes, rules, "other.test", false), 0);
  assert_int_equal(all, 1);
  assert_int_equal(classes.items[0].first, 1);
  assert_int_equal(classes.items[0].last, UINT16_MAX);
  for (unsigned port = 1; port <= UINT16_MAX; port++) {
    bool open = false;
    for (size_t i = 0; i < classes.count; i++)
      open |= (most & UINT32_C(1) << i) && classes.items[i].first <= port &&
              classes.items[i].last >= port;
    assert_int_equal(open, port != 25);
  }
  host_rules_free(rules);
}

/* ---- packets that were told of ---- */

static void test_sightings(void **state) {
  (void)state;
  uint8_t four[64] = {0x45, [9] = 6, [12] = 198, 18, 0, 2, 203, 0, 113, 11, 0x80, 0, 1, 0xbb};
  uint8_t six[64] = {0x60, [6] = 17, [8] = 0xfd, [23] = 2, [24] = 0x20, 1, [39] = 1, 0, 7, 0, 9};
  struct sighting sighting;
  assert_true(sighting_parse(four, 24, &sighting));
  assert_int_equal(sighting.port, 443);
  assert_int_equal(sighting.client_port, 0x8000);
  assert_memory_equal(sighting.address.bytes, ((const uint8_t[]){203, 0, 113, 11}), 4);
  assert_false(sighting_parse(four, 23, &sighting));
  four[0] = 0x4f;                                    /* with options */
  assert_false(sighting_parse(four, 64, &sighting)); /* no port there */
  assert_false(sighting_parse(four, 63, &sighting));
  for (int size = 0; size < 5; size++) {
    four[0] = (uint8_t)(0x40 | size);
    assert_false(sighting_parse(four, 64, &sighting));
  }
  assert_true(sighting_parse(six, 44, &sighting));
  assert_int_equal(sighting.protocol, 17);
  assert_int_equal(sighting.port, 9);
  assert_int_equal(sighting.address.family, 6);
  six[6] = 60; /* something lies between */
  assert_false(sighting_parse(six, 64, &sighting));
  assert_false(sighting_parse(six, 0, &sighting));
}

static struct sighting knock_at(uint16_t port) {
  return (struct sighting){.unknown = true, .address = {.family = 4, .bytes = {203}}, .port = port};
}

/* Those who knock again wait; a new one is told of once, and no more than there is room for. */
static void test_knocks(void **state) {
  (void)state;
  static struct knocks knocks;
  struct knock gone;
  struct sighting first = knock_at(1);
  assert_true(knocks_add(&knocks, &first, 1000));
  assert_false(knocks_add(&knocks, &first, 2000));
  assert_false(knocks_take_gone(&knocks, 4000, &gone));
  for (uint16_t port = 2; port <= KNOCKS_LIMIT; port++) {
    struct sighting next = knock_at(port);
    assert_true(knocks_add(&knocks, &next, 60000));
  }
  struct sighting last = knock_at(KNOCKS_LIMIT + 1);
  assert_false(knocks_add(&knocks, &last, 60000));
  assert_true(knocks_take_gone(&knocks, 60000, &gone));
  assert_int_equal(gone.port, 1);
  assert_false(knocks_take_gone(&knocks, 60000, &gone));
  assert_true(knocks_add(&knocks, &last, 60000));
  knocks_forget(&knocks, &last.address, last.port);
  knocks_forget(&knocks, &last.address, last.port);
  assert_int_equal(knocks.count, KNOCKS_LIMIT - 1);
}

/* Without a kernel that tells nothing is asked about, and nothing more is let through. */
static void test_asking_rules(void **state) {
  (void)state;
  struct host_rules *rules = rules_of("10.0.0.0/8", NULL, false);
  struct egress egress = {.rules = rules, .resolves = true, .asks = true, .tells = true};
  _cleanup_free_ char *told = egress_rules(&egress);
  egress.tells = false;
  _cleanup_free_ char *untold = egress_rules(&egress);
  assert_order(told, (const char *const[]){"ip daddr @own4 goto refuse",
                                           "ip daddr . tcp dport @wanted4 ct mark set",
                                           "th dport 53 goto refuse", "@asks", "goto ask\n",
                                           "\t\tgoto refuse\n\t}", NULL});
  assert_null(strstr(untold, "log "));
  assert_null(strstr(untold, "wanted"));
  assert_null(strstr(untold, "goto ask"));
  host_rules_free(rules);
}

/* nft checks without loading; that takes a network of one's own. It must not need /etc/protocols,
 * which a small machine has not: tcp and the like are words of nft, ipv6-icmp is a name of that
 * file.
 */
static void check_by_nft(const char *rules) {
  FILE *pipe = popen("unshare -Urnm sh -c '[ ! -e /etc/protocols ] || "
                     "mount --bind /dev/null /etc/protocols; exec nft -c -f -' 2>&1",
                     "w");
  assert_non_null(pipe);
  fputs(rules, pipe);
  int status = pclose(pipe);
  if (status != 0)
    fail_msg("nft says %d to:\n%s", status, rules);
}

static void test_nft_takes_them(void **state) {
  (void)state;
  if (system("command -v nft >/dev/null && nft --version >/dev/null") != 0 ||
      system("unshare -Urn nft list tables >/dev/null 2>&1") != 0) {
    print_message("no usable nft on this machine\n");
    skip();
  }
  static const struct {
    const char *allow, *deny;
    bool everything;
  } rows[] = {{NULL, NULL, false},
              {NULL, NULL, true},
              {"*", "*:25", true},
              {"10.1.0.0/16:5432", "10.1.2.3", false},
              {"[2001:db8::]/32:1-1024", "::/0", false},
              {"0.0.0.0/0", NULL, true},
              {"*.example.org:443", "example.org:25", false}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *text = egress_of(rows[i].allow, rows[i].deny, rows[i].everything);
    check_by_nft(text);
    struct host_rules *rules = rules_of(rows[i].allow, rows[i].deny, rows[i].everything);
    for (int six = 0; six < 2; six++) {
      struct egress_host end = {"sandbox_abcdefgh", "sbabcdefgh", "198.18.0.4",
                                six ? "fd73:6264:1:2::" : NULL};
      _cleanup_free_ char *host = egress_translation(rules, &end);
      check_by_nft(host);
    }
    host_rules_free(rules);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_order),
    cmocka_unit_test(test_filtered),
    cmocka_unit_test(test_whole_families),
    cmocka_unit_test(test_guarded),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_names_that_cannot_be_kept),
    cmocka_unit_test(test_classes),
    cmocka_unit_test(test_too_many_classes),
    cmocka_unit_test(test_approved_classes),
    cmocka_unit_test(test_sightings),
    cmocka_unit_test(test_knocks),
    cmocka_unit_test(test_asking_rules),
    cmocka_unit_test(test_table),
    cmocka_unit_test(test_nft_takes_them),
};

UNIT_MAIN(tests)
