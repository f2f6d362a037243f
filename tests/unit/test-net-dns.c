/* DNS: questions as a hostile program may write them, and our answers. */
#include "unit.h"

#include "net/dns.h"

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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dns_read),    cmocka_unit_test(test_dns_tricks),
    cmocka_unit_test(test_dns_options), cmocka_unit_test(test_dns_types),
    cmocka_unit_test(test_dns_write),
};

UNIT_MAIN(tests)
