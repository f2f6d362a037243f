/* libFuzzer target for the sandbox's resolver: whatever a workload sends as a DNS message is
 * refused or is one question, and every answer to it fits and repeats that question. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "net/dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length);

#define LABEL "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa."

/* The answer is read as if it were a question: it must still be the same one. */
static void check_repeats(const struct dns_question *question, const uint8_t *bytes, size_t size) {
  uint8_t copy[DNS_ANSWER_SIZE];
  struct dns_question again;
  memcpy(copy, bytes, size);
  copy[2] &= 0x7f;
  memset(copy + 6, 0, 4); /* no answers */
  int code = dns_read(copy, size, &again);
  if (code < 0 || (question->question && strcmp(again.name, question->name) != 0) ||
      again.id != question->id)
    abort();
}

static void check_answer(const struct dns_question *question, const struct dns_reply *reply) {
  uint8_t *bytes = malloc(DNS_ANSWER_SIZE); /* so that a byte too many is seen */
  struct dns_question ignored;
  size_t size = dns_write(question, reply, bytes);
  if (size > DNS_ANSWER_SIZE || dns_read(bytes, size, &ignored) != -1)
    abort();
  check_repeats(question, bytes, size);
  if (dns_write_truncated(question, bytes) > DNS_UDP_SIZE)
    abort();
  free(bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t length) {
  static const struct address v4 = {4, {198, 18, 0, 1}},
                              many[DNS_ADDRESSES] = {[0 ... DNS_ADDRESSES - 1] = {6, {0xfd}}};
  static const struct dns_reply replies[] = {
      {.code = DNS_OK, .addresses = &v4, .address_count = 1},
      {.code = DNS_OK, .addresses = many, .address_count = DNS_ADDRESSES, .ttl = ~0u},
      {.code = DNS_OK, .pointer = LABEL LABEL LABEL LABEL "b"}, /* 253: none is longer */
      {.code = DNS_NO_SUCH_NAME, .blocked = true},
      {.code = DNS_FORMAT_ERROR},
      {.code = DNS_BAD_VERSION},
  };
  struct dns_question question;
  char name[HOST_NAME_SIZE];
  if (dns_read(data, length, &question) < 0)
    return 0;
  if (question.name[0] &&
      (!host_parse(question.name, strlen(question.name), name) || strcmp(name, question.name) != 0))
    abort();
  for (size_t i = 0; i < ARRAY_SIZE(replies); i++)
    check_answer(&question, &replies[i]);
  return 0;
}
