/* What a rule of the network means: hosts, ports, addresses, names in other scripts, the guard, and
 * synthetic addresses. */
#include "unit.h"

#include <stdio.h>

#include "core/cleanup.h"
#include "net/guard.h"
#include "net/idn.h"
#include "net/names.h"
#include "net/settings.h"

/* ---- hosts ---- */

#define LABEL63 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

static void test_host_parse(void **state) {
  (void)state;
  static const struct {
    const char *text, *name; /* NULL: refused */
    size_t length;           /* 0: strlen */
  } rows[] = {
      {"example.org", "example.org", 0},
      {"EXAMPLE.Org", "example.org", 0},
      {"example.org.", "example.org", 0},
      {"xn--bcher-kva.example", "xn--bcher-kva.example", 0},
      {"a-b.c", "a-b.c", 0},
      {"localhost", "localhost", 0},
      {LABEL63 ".org", LABEL63 ".org", 0},
      {LABEL63 "a.org", NULL, 0},
      {"", NULL, 0},
      {".", NULL, 0},
      {"..", NULL, 0},
      {"example.org..", NULL, 0},
      {"a..b", NULL, 0},
      {".a", NULL, 0},
      {"-a.org", NULL, 0},
      {"a-.org", NULL, 0},
      {"a_b.org", NULL, 0},
      {"evil.com\0.good.org", NULL, 18},
      {"evil.com\0", NULL, 9},
      {"evil.com ", NULL, 0},
      {" evil.com", NULL, 0},
      {"evil.com%00.good.org", NULL, 0},
      {"evil.com\r\n", NULL, 0},
      {"evil.com\t", NULL, 0},
      {"evil.com:80", NULL, 0},
      {"evil.com/good.org", NULL, 0},
      {"user@evil.com", NULL, 0},
      {"b\xc3\xbc"
       "cher.example",
       NULL, 0},
      {"p\xd0\xb0ypal.com", NULL, 0}, /* a Cyrillic letter */
      {"127.0.0.1", NULL, 0},
      {"127.1", NULL, 0},
      {"2130706433", NULL, 0},
      {"0x7f000001", NULL, 0},
      {"0x7f.1", NULL, 0},
      {"127.0.0.0x1", NULL, 0},
      {"127.0.0.0X1.", NULL, 0},
      {"127.0x", NULL, 0},
      {"0x7f.org", "0x7f.org", 0},
      {"0xyz", "0xyz", 0},
      {"a.f00", "a.f00", 0},
      {"*.example.org", NULL, 0},
      {LABEL63 "." LABEL63 "." LABEL63 "." LABEL63, NULL, 0}, /* 255 */
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    char name[HOST_NAME_SIZE] = "untouched";
    size_t length = rows[i].length ? rows[i].length : strlen(rows[i].text);
    bool valid = host_parse(rows[i].text, length, name);
    if (valid != (rows[i].name != NULL))
      fail_msg("'%s' is %s", rows[i].text, valid ? "taken" : "refused");
    assert_string_equal(name, rows[i].name ? rows[i].name : "untouched");
  }
}

static void test_address_parse(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool valid;
  } rows[] = {
      {"1.2.3.4", true},
      {"::1", true},
      {"[::1]", true},
      {"2001:db8::1", true},
      {"::ffff:1.2.3.4", true},
      {"1.2.3", false},
      {"01.2.3.4", false},
      {"1.2.3.256", false},
      {"0x1.2.3.4", false},
      {"1.2.3.4 ", false},
      {"[1.2.3.4]", false},
      {"::1%lo", false},
      {"", false},
      {"[", false},
      {"[]", false},
      {":", false},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct address address;
    if (address_parse(rows[i].text, strlen(rows[i].text), &address) != rows[i].valid)
      fail_msg("'%s'", rows[i].text);
  }
}

static void test_ports(void **state) {
  (void)state;
  static const struct {
    const char *text;
    int port; /* 0: refused */
  } rows[] = {{"1", 1},  {"443", 443}, {"65535", 65535}, {"65536", 0}, {"0", 0},      {"", 0},
              {"-1", 0}, {"+1", 0},    {" 80", 0},       {"80 ", 0},   {"000080", 0}, {"8a", 0}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    uint16_t port = 0;
    bool valid = port_parse(rows[i].text, strlen(rows[i].text), &port);
    if (valid != (rows[i].port != 0) || port != rows[i].port)
      fail_msg("'%s' is %d", rows[i].text, port);
  }
}

/* ---- rules ---- */

static struct host_rules *rules_of(const char *allow, const char *deny, bool everything) {
  struct host_rules *rules = NULL;
  struct strv lists[2] = {0};
  const char *texts[] = {allow, deny};
  _cleanup_error_ struct sb_error error = {0};
  for (size_t i = 0; i < 2; i++) {
    char copy[512], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", texts[i]);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
      strv_add(&lists[i], word);
  }
  int result = host_rules_new(&lists[0], &lists[1], everything, &rules, &error);
  strv_clear(&lists[0]);
  strv_clear(&lists[1]);
  assert_int_equal(result, 0);
  return rules;
}

static void test_rules(void **state) {
  (void)state;
  static const struct {
    const char *allow, *deny, *host;
    uint16_t port;
    bool everything;
    enum host_verdict verdict;
  } rows[] = {
      {"", "", "example.org", 443, false, HOST_UNKNOWN}, /* an empty list allows nothing */
      {"", "", "example.org", 443, true, HOST_ALLOWED},
      {"example.org", "", "example.org", 443, false, HOST_ALLOWED},
      {"EXAMPLE.org.", "", "example.org", 443, false, HOST_ALLOWED},
      {"example.org", "", "www.example.org", 443, false, HOST_UNKNOWN},
      {"*.example.org", "", "www.example.org", 443, false, HOST_ALLOWED},
      {"*.example.org", "", "a.b.example.org", 443, false, HOST_ALLOWED},
      {"*.example.org", "", "example.org", 443, false, HOST_UNKNOWN},
      {"*.example.org", "", "evilexample.org", 443, false, HOST_UNKNOWN},
      {"*.example.org", "", "example.org.evil.com", 443, false, HOST_UNKNOWN},
      {"example.org:443", "", "example.org", 443, false, HOST_ALLOWED},
      {"example.org:443", "", "example.org", 80, false, HOST_UNKNOWN},
      {"example.org:8000-8999", "", "example.org", 8500, false, HOST_ALLOWED},
      {"example.org:8000-8999", "", "example.org", 9000, false, HOST_UNKNOWN},
      {"*.example.org", "evil.example.org", "evil.example.org", 443, false, HOST_DENIED},
      {"evil.example.org", "*.example.org", "evil.example.org", 443, false, HOST_DENIED},
      {"*", "*:25", "example.org", 25, false, HOST_DENIED},
      {"*", "*:25", "example.org", 443, false, HOST_ALLOWED},
      {"", "*.bad.org", "x.bad.org", 443, true, HOST_DENIED},
      {"10.1.0.0/16:5432", "", "10.1.2.3", 5432, false, HOST_ALLOWED},
      {"10.1.0.0/16:5432", "", "10.1.2.3", 80, false, HOST_UNKNOWN},
      {"10.1.0.0/16", "", "10.2.0.1", 80, false, HOST_UNKNOWN},
      {"10.0.0.0/8", "10.1.2.3", "10.1.2.3", 80, false, HOST_DENIED},
      {"[2001:db8::]/32:443", "", "2001:db8:1::1", 443, false, HOST_ALLOWED},
      {"2001:db8::/32", "", "2001:db8:1::1", 443, false, HOST_ALLOWED},
      {"[::1]:80", "", "::1", 80, false, HOST_ALLOWED},
      {"1.2.3.4", "", "1.2.3.4", 1, false, HOST_ALLOWED},
      {"example.org", "", "1.2.3.4", 1, false, HOST_UNKNOWN},
      /* What leads to an IPv4 address is denied with it, and not allowed with it. */
      {"", "1.2.3.4", "::ffff:1.2.3.4", 1, true, HOST_DENIED},
      {"", "1.2.3.4", "64:ff9b::1.2.3.4", 1, true, HOST_DENIED},
      {"", "1.2.3.4", "::ffff:0:1.2.3.4", 1, true, HOST_DENIED},
      {"", "1.2.3.0/24:80", "2002:102:304::1", 80, true, HOST_DENIED},
      {"", "1.2.3.0/24:80", "2002:102:304::1", 81, true, HOST_ALLOWED},
      {"", "1.2.3.4", "64:ff9b::1.2.3.5", 1, true, HOST_ALLOWED},
      {"1.2.3.4", "", "64:ff9b::1.2.3.4", 1, false, HOST_UNKNOWN},
      /* IPv4, written as IPv6 */
      {"", "::ffff:1.2.3.4", "1.2.3.4", 1, true, HOST_DENIED},
      {"", "::ffff:1.2.3.4", "1.2.3.5", 1, true, HOST_ALLOWED},
      {"", "[::ffff:1.2.3.0]/120:80", "1.2.3.4", 80, true, HOST_DENIED},
      {"::ffff:1.2.3.4", "", "1.2.3.4", 1, false, HOST_ALLOWED},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct host_rules *rules = rules_of(rows[i].allow, rows[i].deny, rows[i].everything);
    struct address address;
    struct host_decision decision = address_parse(rows[i].host, strlen(rows[i].host), &address)
                                        ? host_rules_address(rules, &address, rows[i].port)
                                        : host_rules_name(rules, rows[i].host, rows[i].port);
    if (decision.verdict != rows[i].verdict)
      fail_msg("row %zu: %s:%d is %d", i, rows[i].host, rows[i].port, decision.verdict);
    host_rules_free(rules);
  }
}

/* Before a connection there is only the name: could any port be allowed? */
static void test_rules_without_port(void **state) {
  (void)state;
  struct host_rules *rules = rules_of("a.org:443 b.org", "b.org:25 c.org", false);
  assert_int_equal(host_rules_name(rules, "a.org", 0).verdict, HOST_ALLOWED);
  assert_int_equal(host_rules_name(rules, "b.org", 0).verdict, HOST_ALLOWED);
  assert_int_equal(host_rules_name(rules, "c.org", 0).verdict, HOST_DENIED);
  assert_int_equal(host_rules_name(rules, "d.org", 0).verdict, HOST_UNKNOWN);
  host_rules_free(rules);
}

static void test_wrong_rules(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "",          "*a.org",        "a.*.org",    "a.org:0",   "a.org:65536", "a.org:",
      "a.org:9-8", "10.0.0.0/33",   "10.0.0.1/8", "10.0.0.0/", "10.0.0.0/8x", "[::1",
      "a_b.org",   "b\xc3\xbc.org", "a b",        "::1/129",   "[::1]x",      "a.org/8",
      "1.2.3.4.5", "300.1.1.1",     "*.",         "*.*.org",   "999",         "[a.org]"};
  for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
    struct host_rule rule;
    if (!host_rule_parse(wrong[i], &rule))
      fail_msg("'%s' is taken", wrong[i]);
  }
}

/* What is advised for names that are not ASCII; in doubt nothing. */
static void test_idn(void **state) {
  (void)state;
  static const struct {
    const char *name, *advice;
  } rows[] = {
      {"example.org", NULL},
      {"b\xc3\xbc"
       "cher.example",
       "xn--bcher-kva.example"},
      {"*.B\xc3\xbc"
       "cher.example:443",
       "*.xn--bcher-kva.example:443"},
      {"fa\xc3\x9f.de", "xn--fa-hia.de"},
      {"\xd0\xbf\xd1\x80\xd0\xb8\xd0\xbc\xd0\xb5\xd1\x80.\xd1\x80\xd1\x84",
       "xn--e1afmkfd.xn--p1ai"},
      {"\xe4\xbe\x8b\xe3\x81\x88.\xe3\x83\x86\xe3\x82\xb9\xe3\x83\x88", "xn--r8jz45g.xn--zckzah"},
      {"\xed\x95\x9c\xea\xb5\xad.kr", "xn--3e0b707e.kr"},
      {"\xd1\x80\xd0\xb0ypal.com", NULL}, /* Cyrillic and Latin */
      {"u\xcc\x88.org", NULL},            /* in two pieces */
      {"\xc3\x9c.org", NULL},             /* a large letter */
      {"\xe2\x98\x83.com", NULL},         /* a snowman */
      {"\xc3.org", NULL},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    char *advice = idn_suggest(rows[i].name);
    if (rows[i].advice ? !advice || strcmp(advice, rows[i].advice) != 0 : advice != NULL)
      fail_msg("row %zu: %s", i, advice ? advice : "nothing");
    free(advice);
  }
}

static void test_upstream(void **state) {
  (void)state;
  struct upstream upstream;
  assert_null(upstream_parse("http://proxy.corp:3128", false, &upstream));
  assert_string_equal(upstream.host, "proxy.corp");
  assert_int_equal(upstream.port, 3128);
  assert_null(upstream_parse("8080", false, &upstream));
  assert_string_equal(upstream.host, "127.0.0.1");
  assert_null(upstream_parse("socks5h://[::1]:1080/", true, &upstream));
  assert_string_equal(upstream.host, "::1");
  static const char *const wrong[] = {
      "proxy", "http://proxy", "https://p:1", "p:0", "u@p:1", "p:1/x", "", "socks5://p:1", "0"};
  for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
    if (!upstream_parse(wrong[i], false, &upstream))
      fail_msg("'%s' is taken", wrong[i]);
}

/* ---- guard ---- */

static void test_guard(void **state) {
  (void)state;
  static const char *const guarded[] = {"127.0.0.1",
                                        "127.9.9.9",
                                        "0.0.0.0",
                                        "10.0.0.1",
                                        "172.16.0.1",
                                        "172.31.255.255",
                                        "192.168.1.1",
                                        "169.254.169.254",
                                        "169.254.170.2",
                                        "100.64.0.1",
                                        "100.100.100.200",
                                        "192.0.0.192",
                                        "168.63.129.16",
                                        "198.18.0.1",
                                        "198.19.255.255",
                                        "224.0.0.1",
                                        "240.0.0.1",
                                        "255.255.255.255",
                                        "::",
                                        "::1",
                                        "fe80::1",
                                        "fc00::1",
                                        "fd00:ec2::254",
                                        "ff02::1",
                                        "::ffff:127.0.0.1",
                                        "::ffff:169.254.169.254",
                                        "::127.0.0.1",
                                        "64:ff9b::7f00:1",
                                        "64:ff9b::a9fe:a9fe",
                                        "64:ff9b:1::1",
                                        "::8.8.8.8",
                                        "100::1",
                                        "2002:7f00:1::",
                                        "2002:a00:1::1",
                                        "::ffff:0:10.0.0.1",
                                        "2001:0:1::1",
                                        "fec0::1"};
  static const char *const open[] = {
      "1.1.1.1",        "8.8.8.8",          "172.15.0.1",      "172.32.0.1",      "11.0.0.1",
      "100.128.0.1",    "203.0.113.1",      "198.20.0.1",      "223.255.255.255", "2606:4700::1111",
      "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1", "2001:db8::1"};
  for (size_t i = 0; i < ARRAY_SIZE(guarded) + ARRAY_SIZE(open); i++) {
    bool expected = i < ARRAY_SIZE(guarded);
    const char *text = expected ? guarded[i] : open[i - ARRAY_SIZE(guarded)];
    struct address address;
    assert_true(address_parse(text, strlen(text), &address));
    if ((guard_reason(&address) != NULL) != expected)
      fail_msg("%s is %s", text, expected ? "open" : "guarded");
  }
}

/* ---- synthetic addresses ---- */

static void test_names(void **state) {
  (void)state;
  struct names *names = names_new();
  unsigned first = names_add(names, "a.org");
  assert_int_equal(names_add(names, "a.org"), first);
  assert_int_not_equal(names_add(names, "b.org"), first);
  struct address v4 = names_v4(first), v6 = names_v6(first);
  assert_string_equal(names_find(names, &v4), "a.org");
  assert_string_equal(names_find(names, &v6), "a.org");
  assert_non_null(guard_reason(&v4)); /* never reached outside */
  assert_non_null(guard_reason(&v6));
  struct address unused = names_v4(5000);
  assert_null(names_find(names, &unused));
  assert_true(names_is_synthetic(&unused));
  names_free(names);
}

static void test_names_are_bounded(void **state) {
  (void)state;
  struct names *names = names_new();
  char name[32];
  for (unsigned i = 0; i < 3 * NAMES_LIMIT; i++) {
    snprintf(name, sizeof name, "n%u.org", i);
    unsigned number = names_add(names, name);
    assert_true(number < NAMES_LIMIT);
    struct address v4 = names_v4(number), v6 = names_v6(number);
    assert_string_equal(names_find(names, &v4), name);
    assert_string_equal(names_find(names, &v6), name);
    assert_true(names_is_synthetic(&v4));
  }
  unsigned last = names_add(names, name);
  assert_int_equal(names_add(names, name), last);
  names_free(names);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_host_parse),
    cmocka_unit_test(test_address_parse),
    cmocka_unit_test(test_ports),
    cmocka_unit_test(test_rules),
    cmocka_unit_test(test_rules_without_port),
    cmocka_unit_test(test_wrong_rules),
    cmocka_unit_test(test_idn),
    cmocka_unit_test(test_upstream),
    cmocka_unit_test(test_guard),
    cmocka_unit_test(test_names),
    cmocka_unit_test(test_names_are_bounded),
};

UNIT_MAIN(tests)
