/* The pure half of the relay: hosts, rules, guard, synthetic addresses, DNS, TLS, SOCKS, HTTP. */
#include "unit.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/landlock.h"
#include "net/confine.h"
#include "net/dns.h"
#include "net/guard.h"
#include "net/http.h"
#include "net/idn.h"
#include "net/ledger.h"
#include "net/names.h"
#include "net/packet.h"
#include "net/settings.h"
#include "net/socks.h"
#include "net/tls.h"

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
      {"0x7f000001", "0x7f000001", 0}, /* a name like any other: it is resolved, then guarded */
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

/* ---- DNS ---- */

static size_t make_query(uint8_t *message, const char *name, uint16_t type, bool options) {
  static const uint8_t head[] = {0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  size_t length = sizeof head;
  memcpy(message, head, length);
  for (const char *label = name; *label;) {
    size_t size = strcspn(label, ".");
    message[length++] = (uint8_t)size;
    memcpy(message + length, label, size);
    length += size;
    label += size + (label[size] == '.');
  }
  uint8_t tail[] = {0, (uint8_t)(type >> 8), (uint8_t)type, 0, 1};
  memcpy(message + length, tail, sizeof tail);
  length += sizeof tail;
  static const uint8_t opt[] = {0, 0, 41, 0x10, 0, 0, 0, 0, 0, 0, 0};
  if (options) {
    message[11] = 1;
    memcpy(message + length, opt, sizeof opt);
    length += sizeof opt;
  }
  return length;
}

static void test_dns_read(void **state) {
  (void)state;
  uint8_t message[512];
  struct dns_question question;
  size_t length = make_query(message, "WWW.Example.org", DNS_TYPE_AAAA, true);
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  assert_string_equal(question.name, "www.example.org");
  assert_int_equal(question.type, DNS_TYPE_AAAA);
  assert_true(question.has_options);
  assert_int_equal(question.options_size, 4096);
  for (size_t cut = 0; cut < length; cut++) /* whatever is missing, it is no question */
    assert_int_not_equal(dns_read(message, cut, &question), DNS_OK);
  length = make_query(message, "4.3.2.1.in-addr.arpa", DNS_TYPE_PTR, false);
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  assert_true(question.is_reverse);
  assert_int_equal(question.reversed.bytes[0], 1);
  assert_int_equal(question.reversed.bytes[3], 4);
}

static void test_dns_tricks(void **state) {
  (void)state;
  uint8_t message[512];
  struct dns_question question;
  size_t length = make_query(message, "example.org", DNS_TYPE_A, false);
  message[2] |= 0x80; /* an answer: no answer to that, or two resolvers talk for ever */
  assert_int_equal(dns_read(message, length, &question), -1);
  message[2] = 0x29; /* an update */
  assert_int_equal(dns_read(message, length, &question), DNS_NOT_IMPLEMENTED);
  message[2] = 1;
  message[5] = 2; /* two questions, one there */
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[5] = 1;
  message[12] = 0xc0; /* a name that points at itself */
  message[13] = 12;
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[12] = 64;
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  make_query(message, "example.org", DNS_TYPE_A, false);
  message[15] = '.'; /* "ex.mple": one label that looks like two */
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[15] = '\0';
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[15] = ' ';
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  assert_string_equal(question.name, ""); /* no host name */
}

/* RFC 6891: what is wrong with the options, and the answer to it. */
static void test_dns_options(void **state) {
  (void)state;
  uint8_t message[512], answer[DNS_ANSWER_SIZE];
  struct dns_question question;
  size_t length = make_query(message, "example.org", DNS_TYPE_A, true), at = length - 11;
  for (unsigned version = 1; version < 256; version++) {
    message[at + 6] = (uint8_t)version;
    assert_int_equal(dns_read(message, length, &question), DNS_BAD_VERSION);
  }
  size_t written = dns_write(&question, &(struct dns_reply){.code = DNS_BAD_VERSION}, answer);
  assert_int_equal(answer[3] & 15, 0);
  assert_int_equal(answer[11], 1);
  assert_memory_equal(answer + written - 11, ((uint8_t[]){0, 0, 41, 4, 208, 1, 0, 0, 0, 0, 0}), 11);
  message[at + 6] = 0;
  message[at + 5] = 7;    /* the code's upper bits mean nothing in a question, */
  message[at + 7] = 0xff; /* and flags that are not known are none */
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  static const uint8_t option[] = {0, 10, 0, 2, 'a', 'b'};
  memcpy(message + length, option, sizeof option);
  for (size_t size = 0; size <= sizeof option; size++) { /* a part of an option is none */
    message[at + 10] = (uint8_t)size;
    assert_int_equal(dns_read(message, length + size, &question),
                     size == 0 || size == sizeof option ? DNS_OK : DNS_FORMAT_ERROR);
  }
  message[at + 10] = sizeof option; /* that is not there */
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[at + 10] = 0;
  memcpy(message + length, message + at, 11); /* twice */
  message[11] = 2;
  message[length + 6] = 1; /* and one of a version that nobody knows */
  assert_int_equal(dns_read(message, length + 11, &question), DNS_FORMAT_ERROR);
  message[11] = 0;
  message[9] = 1; /* as an authority */
  assert_int_equal(dns_read(message, length, &question), DNS_FORMAT_ERROR);
  message[9] = 0, message[11] = 1;
  memcpy(message + at, "\1a", 3); /* of another name */
  memcpy(message + at + 3, "\0\51\20\0\0\0\0\0\0\0", 10);
  assert_int_equal(dns_read(message, length + 2, &question), DNS_FORMAT_ERROR);
}

static void test_dns_types(void **state) {
  (void)state;
  uint8_t message[512];
  struct dns_question question;
  for (unsigned type = 0; type < 300; type++) {
    size_t length = make_query(message, "example.org", (uint16_t)type, true);
    bool is_data = type != 0 && type != DNS_TYPE_OPT && (type < 249 || type > 254);
    assert_int_equal(dns_read(message, length, &question) == DNS_OK, is_data);
    assert_true(question.has_options);
  }
  size_t length = make_query(message, "", DNS_TYPE_A, false);
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  assert_true(question.is_root);
  length = make_query(message, "04.3.2.1.in-addr.arpa", DNS_TYPE_PTR, false);
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  assert_false(question.is_reverse);
}

static void test_dns_write(void **state) {
  (void)state;
  uint8_t message[512], answer[DNS_ANSWER_SIZE];
  struct dns_question question;
  size_t length = make_query(message, "example.org", DNS_TYPE_A, true);
  assert_int_equal(dns_read(message, length, &question), DNS_OK);
  struct address address = {.family = 4, .bytes = {198, 18, 0, 1}};
  size_t written =
      dns_write(&question, &(struct dns_reply){.addresses = &address, .address_count = 1}, answer);
  assert_int_equal(answer[0], 0x12);
  assert_int_equal(answer[2] & 0x80, 0x80);
  assert_int_equal(answer[7], 1);
  assert_memory_equal(answer + written - 11 - 4, address.bytes, 4);
  written =
      dns_write(&question, &(struct dns_reply){.code = DNS_NO_SUCH_NAME, .blocked = true}, answer);
  assert_int_equal(answer[3] & 15, DNS_NO_SUCH_NAME);
  assert_non_null(memmem(answer, written, "denied", 6));
  dns_write_truncated(&question, answer);
  assert_int_equal(answer[2] & 2, 2);
  assert_int_equal(answer[11], 1); /* who came with options is answered with options */
}

/* ---- TLS ---- */

static size_t make_hello(uint8_t *bytes, const char *name, size_t name_length) {
  uint8_t body[600], *at = body;
  *at++ = 3, *at++ = 3;
  memset(at, 7, 32), at += 32;
  *at++ = 0;                                     /* session */
  *at++ = 0, *at++ = 2, *at++ = 0x13, *at++ = 1; /* one cipher suite */
  *at++ = 1, *at++ = 0;                          /* compression */
  size_t extension = name ? name_length + 9 : 0, all = extension + 5;
  *at++ = (uint8_t)(all >> 8), *at++ = (uint8_t)all;
  *at++ = 0, *at++ = 23, *at++ = 0, *at++ = 1, *at++ = 9; /* another extension */
  if (name) {
    *at++ = 0, *at++ = 0;
    *at++ = (uint8_t)((name_length + 5) >> 8), *at++ = (uint8_t)(name_length + 5);
    *at++ = (uint8_t)((name_length + 3) >> 8), *at++ = (uint8_t)(name_length + 3);
    *at++ = 0;
    *at++ = (uint8_t)(name_length >> 8), *at++ = (uint8_t)name_length;
    memcpy(at, name, name_length);
    at += name_length;
  }
  size_t size = (size_t)(at - body);
  uint8_t head[] = {22,
                    3,
                    1,
                    (uint8_t)((size + 4) >> 8),
                    (uint8_t)(size + 4),
                    1,
                    0,
                    (uint8_t)(size >> 8),
                    (uint8_t)size};
  memcpy(bytes, head, sizeof head);
  memcpy(bytes + sizeof head, body, size);
  return sizeof head + size;
}

static void test_tls(void **state) {
  (void)state;
  uint8_t hello[1024], split[2048];
  char name[HOST_NAME_SIZE];
  size_t length = make_hello(hello, "Good.Test", 9);
  assert_int_equal(tls_server_name(hello, length, name), TLS_NAME);
  assert_string_equal(name, "good.test");
  for (size_t cut = 0; cut < length; cut++)
    assert_int_equal(tls_server_name(hello, cut, name), TLS_MORE);
  /* The same message, one byte to a record. */
  size_t size = 0;
  for (size_t i = 5; i < length && size + 6 <= sizeof split; i++) {
    uint8_t record[] = {22, 3, 1, 0, 1, hello[i]};
    memcpy(split + size, record, sizeof record);
    size += sizeof record;
  }
  assert_int_equal(tls_server_name(split, size, name), TLS_NAME);
  assert_string_equal(name, "good.test");
  hello[2] = 9; /* servers do not look at it */
  assert_int_equal(tls_server_name(hello, length, name), TLS_NAME);
  length = make_hello(hello, NULL, 0);
  assert_int_equal(tls_server_name(hello, length, name), TLS_NO_NAME);
  length = make_hello(hello, "evil\0.good.test", 15);
  assert_int_equal(tls_server_name(hello, length, name), TLS_BROKEN);
  length = make_hello(hello, "", 0);
  assert_int_equal(tls_server_name(hello, length, name), TLS_BROKEN);
  assert_int_equal(tls_server_name((const uint8_t *)"GET / HTTP/1.1", 14, name), TLS_NOT_TLS);
  assert_int_equal(tls_server_name((const uint8_t *)"SSH-2.0-x", 9, name), TLS_NOT_TLS);
}

/* Every byte of a hello changed in turn: any answer will do, a crash or a wrong name will not. */
static void test_tls_damage(void **state) {
  (void)state;
  uint8_t hello[1024], damaged[1024];
  size_t length = make_hello(hello, "good.test", 9);
  for (size_t i = 0; i < length; i++) {
    for (unsigned value = 0; value < 256; value += 5) {
      char name[HOST_NAME_SIZE] = "";
      memcpy(damaged, hello, length);
      damaged[i] = (uint8_t)value;
      if (tls_server_name(damaged, length, name) == TLS_NAME)
        assert_int_not_equal(strlen(name), 0);
    }
  }
}

/* ---- SOCKS ---- */

static void test_socks(void **state) {
  (void)state;
  struct socks_request request;
  const uint8_t greeting[] = {5, 2, 2, 0};
  assert_int_equal(socks_parse(greeting, 4, false, &request), SOCKS_GREETED);
  assert_int_equal(request.used, 4);
  assert_int_equal(socks_parse(greeting, 3, false, &request), SOCKS_MORE);
  assert_int_equal(socks_parse((const uint8_t[]){5, 1, 2}, 3, false, &request), SOCKS_NO_METHOD);
  assert_int_equal(socks_parse((const uint8_t[]){4, 1}, 2, false, &request), SOCKS_WRONG);
  const uint8_t name[] = {5, 1, 0, 3, 3, 'a', '.', 'b', 1, 187};
  for (size_t cut = 0; cut < sizeof name; cut++)
    assert_int_equal(socks_parse(name, cut, true, &request), SOCKS_MORE);
  assert_int_equal(socks_parse(name, sizeof name, true, &request), SOCKS_REQUEST);
  assert_memory_equal(request.host, "a.b", 3);
  assert_int_equal(request.port, 443);
  const uint8_t v4[] = {5, 1, 0, 1, 1, 2, 3, 4, 0, 80};
  assert_int_equal(socks_parse(v4, sizeof v4, true, &request), SOCKS_REQUEST);
  assert_string_equal(request.host, "1.2.3.4");
  const struct {
    uint8_t bytes[10];
    enum socks_result result;
  } wrong[] = {
      {{5, 2, 0, 1, 1, 2, 3, 4, 0, 80}, SOCKS_NO_COMMAND}, /* BIND */
      {{5, 3, 0, 1, 1, 2, 3, 4, 0, 80}, SOCKS_NO_COMMAND}, /* UDP */
      {{5, 1, 1, 1, 1, 2, 3, 4, 0, 80}, SOCKS_NO_COMMAND},
      {{5, 1, 0, 2, 1, 2, 3, 4, 0, 80}, SOCKS_NO_COMMAND},
      {{5, 1, 0, 1, 1, 2, 3, 4, 0, 0}, SOCKS_WRONG},  /* port 0 */
      {{5, 1, 0, 3, 0, 0, 80, 0, 0, 0}, SOCKS_WRONG}, /* no name */
      {{6, 1, 0, 1, 1, 2, 3, 4, 0, 80}, SOCKS_WRONG},
  };
  for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
    assert_int_equal(socks_parse(wrong[i].bytes, 10, true, &request), wrong[i].result);
}

/* What a byte of the greeting may be, for each of its values. */
static enum socks_result expect_greeting(size_t at, unsigned value) {
  if (at == 0)
    return value == 5 ? SOCKS_GREETED : SOCKS_WRONG;
  if (at == 1) /* how many ways to authenticate follow: two do */
    return value > 2 ? SOCKS_MORE : value == 2 ? SOCKS_GREETED : SOCKS_NO_METHOD;
  return at == 3 ? (value == 0 ? SOCKS_GREETED : SOCKS_NO_METHOD) : SOCKS_GREETED;
}

/* The same for a request that names "a.b". */
static enum socks_result expect_request(size_t at, unsigned value) {
  switch (at) {
  case 0: /* version */
    return value == 5 ? SOCKS_REQUEST : SOCKS_WRONG;
  case 1: /* command */
    return value == 1 ? SOCKS_REQUEST : SOCKS_NO_COMMAND;
  case 2: /* reserved */
    return value == 0 ? SOCKS_REQUEST : SOCKS_NO_COMMAND;
  case 3: /* kind of address: the same bytes are an IPv4 address, and too few for IPv6 */
    return value == 1 || value == 3 ? SOCKS_REQUEST : value == 4 ? SOCKS_MORE : SOCKS_NO_COMMAND;
  case 4: /* length: the port is then made of what follows */
    return value == 0 ? SOCKS_WRONG : value <= 3 ? SOCKS_REQUEST : SOCKS_MORE;
  default: /* any name, and any port: its other byte is not 0 */
    return SOCKS_REQUEST;
  }
}

static void test_socks_every_byte(void **state) {
  (void)state;
  const uint8_t greeting[] = {5, 2, 2, 0}, name[] = {5, 1, 0, 3, 3, 'a', '.', 'b', 1, 187};
  struct socks_request request;
  uint8_t bytes[sizeof name];
  for (size_t at = 0; at < sizeof greeting; at++) {
    for (unsigned value = 0; value < 256; value++) {
      memcpy(bytes, greeting, sizeof greeting);
      bytes[at] = (uint8_t)value;
      assert_int_equal(socks_parse(bytes, sizeof greeting, false, &request),
                       expect_greeting(at, value));
    }
  }
  for (size_t at = 0; at < sizeof name; at++) {
    for (unsigned value = 0; value < 256; value++) {
      memcpy(bytes, name, sizeof name);
      bytes[at] = (uint8_t)value;
      enum socks_result result = socks_parse(bytes, sizeof name, true, &request);
      assert_int_equal(result, expect_request(at, value));
      if (result == SOCKS_REQUEST && at >= 5) { /* what it says is what was read */
        assert_memory_equal(request.host, bytes + 5, 3);
        assert_int_equal(request.port, bytes[8] << 8 | bytes[9]);
      }
    }
  }
}

/* ---- HTTP ---- */

static void test_http_requests(void **state) {
  (void)state;
  static const struct {
    const char *text;
    enum http_result result;
  } rows[] = {
      {"GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", HTTP_OK},
      {"CONNECT a:443 HTTP/1.1\r\n\r\n", HTTP_OK},
      {"GET http://a/ HTTP/1.1\r\nHost: a\r\n", HTTP_MORE},
      {"GET http://a/ HTTP/2.0\r\n\r\n", HTTP_WRONG},
      {"GET http://a/\r\n\r\n", HTTP_WRONG},
      {"GET  HTTP/1.1\r\n\r\n", HTTP_WRONG},
      {"G T http://a/ HTTP/1.1\r\n\r\n", HTTP_WRONG},
      {"GET http://a/ HTTP/1.1\nHost: a\r\n\r\n", HTTP_WRONG},
      {"GET http://a/ HTTP/1.1\r\nHost : a\r\n\r\n", HTTP_WRONG},
      {"GET http://a/ HTTP/1.1\r\nX: a\r\n b\r\n\r\n", HTTP_WRONG},
      {"GET http://a/ HTTP/1.1\r\nno colon\r\n\r\n", HTTP_WRONG},
      {"GET http://a/ HTTP/1.1\r\nX: \x01\r\n\r\n", HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n", HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nContent-Length: -5\r\n\r\n", HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
       HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
       HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", HTTP_WRONG},
      {"POST http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", HTTP_OK},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct http_request request;
    enum http_result result = http_request_parse(rows[i].text, strlen(rows[i].text), &request);
    if (result != rows[i].result)
      fail_msg("%zu: %d: %s", i, result, rows[i].text);
  }
}

static void test_http_bodies(void **state) {
  (void)state;
  static const char chunked[] = "5\r\nhello\r\na;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\nNEXT";
  size_t whole = strlen(chunked) - 4;
  struct http_body body = {.kind = BODY_CHUNKED};
  assert_int_equal(http_body_take(&body, chunked, strlen(chunked)), whole);
  assert_true(http_body_is_over(&body));
  body = (struct http_body){.kind = BODY_CHUNKED}; /* byte by byte */
  size_t taken = 0;
  while (!http_body_is_over(&body)) {
    assert_int_equal(http_body_take(&body, chunked + taken, 1), 1);
    taken++;
  }
  assert_int_equal(taken, whole);
  static const char *const wrong[] = {
      "x\r\n", "\r\n", "5\nhello", "5\r\nhelloX\r\n", "-1\r\n", "fffffffffffffffff\r\n", "5 5 \n"};
  for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
    body = (struct http_body){.kind = BODY_CHUNKED};
    if (http_body_take(&body, wrong[i], strlen(wrong[i])) >= 0)
      fail_msg("'%s'", wrong[i]);
  }
  body = (struct http_body){.kind = BODY_LENGTH, .left = 3};
  assert_int_equal(http_body_take(&body, "abcdef", 6), 3);
  assert_true(http_body_is_over(&body));
}

static void test_http_responses(void **state) {
  (void)state;
  struct http_response response;
  const char *text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
  assert_int_equal(http_response_parse(text, strlen(text), false, &response), HTTP_OK);
  assert_int_equal(response.status, 200);
  assert_int_equal(response.head.body.left, 5);
  assert_int_equal(http_response_parse(text, strlen(text), true, &response), HTTP_OK);
  assert_true(http_body_is_over(&response.head.body));
  text = "HTTP/1.0 200 OK\r\n\r\n";
  assert_int_equal(http_response_parse(text, strlen(text), false, &response), HTTP_OK);
  assert_int_equal(response.head.body.kind, BODY_TO_END);
  assert_true(response.head.close);
  text = "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n";
  assert_int_equal(http_response_parse(text, strlen(text), false, &response), HTTP_OK);
  assert_true(http_body_is_over(&response.head.body));
  text = "SSH-2.0-OpenSSH\r\n\r\n";
  assert_int_equal(http_response_parse(text, strlen(text), false, &response), HTTP_WRONG);
}

/* ---- packets ---- */

static void test_packets(void **state) {
  (void)state;
  uint8_t packet[PACKET_OVERHEAD + 16];
  struct endpoint from = {{.family = 4, .bytes = {192, 0, 2, 1}}, 53};
  struct endpoint to = {{.family = 4, .bytes = {192, 0, 2, 2}}, 4096};
  assert_int_equal(packet_write(&from, &to, "abc", 3, packet), 31);
  assert_int_equal(packet[0], 0x45);
  assert_int_equal(packet[3], 31);
  assert_memory_equal(packet + 28, "abc", 3);
  for (int family = 4; family <= 6; family += 2) {
    from.address.family = to.address.family = (uint8_t)family;
    size_t head = family == 6 ? 40 : 20, size = family == 6 ? 16 : 4;
    assert_int_equal(packet_write(&from, &to, "abc", 3, packet), head + 11);
    uint32_t sum = 17 + 11; /* with its checksum, everything adds up to ones */
    for (size_t i = 0; i < size; i += 2)
      sum += (uint32_t)(from.address.bytes[i] << 8 | from.address.bytes[i + 1]) +
             (uint32_t)(to.address.bytes[i] << 8 | to.address.bytes[i + 1]);
    for (size_t i = 0; i < 11; i++)
      sum += (uint32_t)packet[head + i] << (i % 2 ? 0 : 8);
    assert_int_equal((sum & 0xffff) + (sum >> 16), 0xffff);
  }
}

/* ---- the ledger ---- */

/* The relay writes it, and may have been taken over. */
static void test_leads(void **state) {
  (void)state;
  struct ledger *ledger = ledger_new();
  const struct address here = {.family = 4, .bytes = {203, 0, 113, 10}}, there = {.family = 4};
  char reason[REASON_SIZE] = "untouched";
  _cleanup_strv_ struct strv none = {0}, one = {0}, many = {0}, after = {0};
  ledger_names(ledger, &here, &none, reason);
  assert_int_equal(none.count, 0);
  assert_string_equal(reason, "untouched");
  struct ledger_line *line = ledger_find(ledger, "good.test", 0, true, "network.allow: good.test");
  ledger_lead(ledger, line, &here);
  ledger_lead(ledger, line, &here);
  ledger_names(ledger, &here, &one, reason);
  assert_int_equal(one.count, 1);
  assert_string_equal(one.items[0], "good.test");
  assert_string_equal(reason, "network.allow: good.test");
  struct address found;
  uint32_t index = 0;
  assert_true(ledger_next_address(ledger, "good.test", &index, &found));
  assert_true(address_equal(&found, &here));
  assert_false(ledger_next_address(ledger, "good.test", &index, &found));
  index = 0;
  assert_false(ledger_next_address(ledger, "other.test", &index, &found));
  for (int i = 0; i < 2 * LEDGER_LEADS; i++) {
    char name[16];
    snprintf(name, sizeof name, "%d.test", i % LEDGER_LINES);
    line = ledger_find(ledger, name, 0, true, "");
    const struct address next = {.family = 4, .bytes = {203, 0, 113, (uint8_t)(i / LEDGER_LINES)}};
    if (line)
      ledger_lead(ledger, line, i < LEDGER_LINES ? &here : &next);
  }
  ledger_names(ledger, &here, &many, reason);
  assert_int_equal(many.count, LEDGER_NAMES);
  ledger->lead_count = UINT32_MAX;
  ledger->leads[0].line = UINT32_MAX;
  ledger_names(ledger, &here, &after, reason);
  assert_int_equal(after.count, LEDGER_NAMES);
  ledger->line_count = 0;
  ledger_names(ledger, &there, &after, reason);
  ledger_free(ledger);
}

/* ---- confinement ---- */

/* What a relay that was taken over could still do, as bits; all of it must fail but the first. */
static int try_everything(void) {
  static char *const nothing[] = {NULL};
  int tcp = socket(AF_INET, SOCK_STREAM, 0), unix_socket = socket(AF_UNIX, SOCK_STREAM, 0);
  int file = open("/etc/passwd", O_RDONLY), made = open("/tmp/relay-test", O_CREAT | O_RDWR, 0600);
  bool landlocked = landlock_abi() > 0;
  void *code = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  int result = (tcp >= 0) | (unix_socket >= 0) << 1 | (file >= 0 && landlocked) << 2 |
               (made >= 0 && landlocked) << 3 | (code != MAP_FAILED) << 4;
  syscall(SYS_execve, "/bin/true", nothing, nothing);
  return result | (kill(getppid(), 0) == 0) << 5 |
         (syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL) >= 0) << 6;
}

static void test_confinement(void **state) {
  (void)state;
  pid_t pid = fork();
  while (pid == 0) /* not _exit: a sanitizer does more there than the filter allows */
    syscall(SYS_exit_group, relay_confine() < 0 ? 128 : try_everything());
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 1);
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
    cmocka_unit_test(test_dns_read),
    cmocka_unit_test(test_dns_tricks),
    cmocka_unit_test(test_dns_options),
    cmocka_unit_test(test_dns_types),
    cmocka_unit_test(test_dns_write),
    cmocka_unit_test(test_tls),
    cmocka_unit_test(test_tls_damage),
    cmocka_unit_test(test_socks),
    cmocka_unit_test(test_socks_every_byte),
    cmocka_unit_test(test_http_requests),
    cmocka_unit_test(test_http_bodies),
    cmocka_unit_test(test_http_responses),
    cmocka_unit_test(test_packets),
    cmocka_unit_test(test_leads),
    cmocka_unit_test(test_confinement),
};
UNIT_MAIN(tests)
