/* What the relay reads of a connection: TLS, SOCKS, HTTP; and the packets it writes. */
#include "unit.h"

#include "core/cleanup.h"
#include "net/http.h"
#include "net/packet.h"
#include "net/socks.h"
#include "net/tls.h"

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

static void assert_first(const void *bytes, size_t length, enum tls_result expected) {
  struct tls_hello hello;
  assert_int_equal(tls_first(bytes, length, &hello), expected);
}

static void test_tls(void **state) {
  (void)state;
  uint8_t hello[1024], split[2048];
  struct tls_hello found;
  size_t length = make_hello(hello, "Good.Test", 9);
  assert_int_equal(tls_first(hello, length, &found), TLS_NAME);
  assert_string_equal(found.name, "good.test");
  assert_int_equal(found.length, length);
  assert_false(found.early_data);
  for (size_t cut = 0; cut < length; cut++)
    assert_first(hello, cut, TLS_MORE);
  /* The same message, one byte to a record. */
  size_t size = 0;
  for (size_t i = 5; i < length && size + 6 <= sizeof split; i++) {
    uint8_t record[] = {22, 3, 1, 0, 1, hello[i]};
    memcpy(split + size, record, sizeof record);
    size += sizeof record;
  }
  assert_int_equal(tls_first(split, size, &found), TLS_NAME);
  assert_string_equal(found.name, "good.test");
  assert_int_equal(found.length, size);
  length = make_hello(hello, NULL, 0);
  assert_first(hello, length, TLS_NO_NAME);
  length = make_hello(hello, "evil\0.good.test", 15);
  assert_first(hello, length, TLS_BROKEN);
  length = make_hello(hello, "", 0);
  assert_first(hello, length, TLS_BROKEN);
}

/* There are servers that do not look at a record's version. */
static void test_tls_versions(void **state) {
  (void)state;
  static const uint8_t versions[][2] = {{3, 9}, {2, 1}, {4, 1}, {0, 0}};
  uint8_t hello[1024];
  size_t length = make_hello(hello, "good.test", 9);
  for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
    memcpy(hello + 1, versions[i], 2);
    assert_first(hello, length, TLS_NAME);
    assert_first(hello, 4, TLS_MORE);
  }
}

static void test_tls_other_first_records(void **state) {
  (void)state;
  static const struct {
    const char *bytes;
    size_t length;
    enum tls_result expected;
  } rows[] = {
      {"\x14\3\3\0\1\1", 6, TLS_BROKEN},     /* a change of ciphers */
      {"\x15\3\1\0\2\1\x70", 7, TLS_BROKEN}, /* a warning */
      {"\x15\0\0\0\2\1\x70", 7, TLS_BROKEN},   {"\x16\3\3\0\0", 5, TLS_BROKEN}, /* empty */
      {"\x16\3\3\0\4\2\0\0\0", 9, TLS_BROKEN}, {"\x17\3\3\0\1\1", 6, TLS_BROKEN},
      {"\x18\3\3\0\3\1\0\0", 8, TLS_BROKEN},   {"\x14\3", 2, TLS_MORE},
      {"GET / HTTP/1.1", 14, TLS_NOT_TLS},     {"SSH-2.0-x", 9, TLS_NOT_TLS},
      {"\x14\1\0\1\x85\xa6", 6, TLS_NOT_TLS}, /* MySQL: lengths of 276 and more */
      {"\x15\1\0\1\x85\xa6", 6, TLS_NOT_TLS},  {"\x16\1\0\1\x85\xa6", 6, TLS_NOT_TLS},
      {"\x17\1\0\1\x85\xa6", 6, TLS_NOT_TLS},  {"\x16\1\0\0\1\0\0\0", 8, TLS_NOT_TLS}, /* MongoDB */
      {"\x16\1\0\0\0\0\0\0", 8, TLS_NOT_TLS},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_first(rows[i].bytes, rows[i].length, rows[i].expected);
}

/* Nothing may follow in the record in which a hello ends. */
static void test_tls_more_in_the_record(void **state) {
  (void)state;
  uint8_t hello[1024];
  size_t length = make_hello(hello, "good.test", 9);
  hello[4]++;
  hello[length] = 1;
  assert_first(hello, length, TLS_BROKEN);
  assert_first(hello, length + 1, TLS_BROKEN);
}

static void assert_next(const void *bytes, size_t length, bool early_data,
                        enum tls_result expected) {
  struct tls_hello hello;
  assert_int_equal(tls_next(bytes, length, early_data, &hello), expected);
}

static void test_tls_later_records(void **state) {
  (void)state;
  uint8_t hello[1024];
  struct tls_hello found;
  size_t length = make_hello(hello, "other.test", 10);
  assert_int_equal(tls_next(hello, length, false, &found), TLS_NAME);
  assert_string_equal(found.name, "other.test");
  for (size_t cut = 0; cut < length; cut++)
    assert_next(hello, cut, false, TLS_MORE);
  assert_int_equal(tls_next((const uint8_t *)"\x14\3\3\0\1\1", 6, false, &found), TLS_RECORD);
  assert_int_equal(found.length, 6);
  assert_next("\x15\3\3\0\2", 5, false, TLS_RECORD);
  assert_next("\x17", 1, false, TLS_NOT_TLS);
  assert_int_equal(tls_next((const uint8_t *)"\x17\3\3\1\0", 5, true, &found), TLS_RECORD);
  assert_int_equal(found.length, 5 + 256);
  assert_next("\x16\3\3\0\x46\x10", 6, false, TLS_NOT_TLS);   /* ClientKeyExchange */
  assert_next("\x16\3\3\0\x28\1\xa7", 7, false, TLS_NOT_TLS); /* encrypted */
  assert_next("\x16\3\3\0\1\1\x16", 7, false, TLS_MORE);      /* one byte of a hello */
  assert_next("\x16\3\3\0\0", 5, false, TLS_BROKEN);
  assert_next("GET /", 5, false, TLS_BROKEN);
}

static void test_tls_early_data(void **state) {
  (void)state;
  uint8_t hello[1024];
  struct tls_hello found;
  size_t length = make_hello(hello, NULL, 0);
  hello[length - 4] = 42; /* in place of the other extension, which is the last */
  assert_int_equal(tls_first(hello, length, &found), TLS_NO_NAME);
  assert_true(found.early_data);
}

/* Every byte of a hello changed in turn: any answer will do, a crash or a wrong name will not. */
static void test_tls_damage(void **state) {
  (void)state;
  uint8_t hello[1024], damaged[1024];
  size_t length = make_hello(hello, "good.test", 9);
  for (size_t i = 0; i < length; i++) {
    for (unsigned value = 0; value < 256; value += 5) {
      struct tls_hello found;
      memcpy(damaged, hello, length);
      damaged[i] = (uint8_t)value;
      if (tls_first(damaged, length, &found) == TLS_NAME)
        assert_int_not_equal(strlen(found.name), 0);
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
      {"GET http://a/ HTTP/1.1\r\nHost: a\r", HTTP_MORE},
      {"GET http://a/ HTTP/1.1\nHost: a\n\n", HTTP_WRONG},
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_tls),
    cmocka_unit_test(test_tls_versions),
    cmocka_unit_test(test_tls_other_first_records),
    cmocka_unit_test(test_tls_more_in_the_record),
    cmocka_unit_test(test_tls_later_records),
    cmocka_unit_test(test_tls_early_data),
    cmocka_unit_test(test_tls_damage),
    cmocka_unit_test(test_socks),
    cmocka_unit_test(test_socks_every_byte),
    cmocka_unit_test(test_http_requests),
    cmocka_unit_test(test_http_bodies),
    cmocka_unit_test(test_http_responses),
    cmocka_unit_test(test_packets),
};

UNIT_MAIN(tests)
