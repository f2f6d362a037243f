/* DNS messages; see dns.h. RFC 1035, 6891 (EDNS), 8914 (extended errors). */
#include "net/dns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

#define HEADER_SIZE 12
#define CLASS_IN    1
#define ANSWER_TTL  60 /* how long a synthetic address may be kept without asking again */

enum { FLAG_RESPONSE = 0x8000, FLAG_RECURSION_DESIRED = 0x0100, FLAG_RECURSION_AVAILABLE = 0x80 };
enum { OPCODE_MASK = 0x7800, EDE_OPTION = 15, EDE_BLOCKED = 15 };

static uint16_t get16(const uint8_t *at) {
  return (uint16_t)(at[0] << 8 | at[1]);
}

static void put16(uint8_t *at, unsigned value) {
  at[0] = (uint8_t)(value >> 8);
  at[1] = (uint8_t)value;
}

/* ---- reading ---- */

/* The name of a question stands in full: a pointer there can only be a trick. Returns its length in
 * the message, 0 if it is wrong. */
static size_t read_name(const uint8_t *at, const uint8_t *end, char ret_text[HOST_NAME_SIZE]) {
  const uint8_t *start = at;
  size_t used = 0;
  while (at < end && *at != 0) {
    size_t label = *at++;
    if (label > 63 || label > (size_t)(end - at) || used + label + 1 >= HOST_NAME_SIZE)
      return 0;
    if (memchr(at, '.', label) || memchr(at, '\0', label))
      return 0; /* "a.b" as one label would be read as two */
    if (used > 0)
      ret_text[used++] = '.';
    memcpy(ret_text + used, at, label);
    used += label;
    at += label;
  }
  if (at >= end)
    return 0;
  ret_text[used] = '\0';
  return (size_t)(at - start) + 1;
}

/* Names in additional records may be compressed; they are only stepped over. */
static const uint8_t *skip_name(const uint8_t *at, const uint8_t *end) {
  while (at < end) {
    if (*at == 0)
      return at + 1;
    if ((*at & 0xc0) == 0xc0)
      return end - at >= 2 ? at + 2 : NULL;
    if (*at > 63 || *at >= end - at)
      return NULL;
    at += *at + 1;
  }
  return NULL;
}

static void read_options(const uint8_t *at, const uint8_t *end, unsigned count,
                         struct dns_question *question) {
  for (; count > 0 && at; count--) {
    at = skip_name(at, end);
    if (!at || end - at < 10)
      return;
    uint16_t type = get16(at), size = get16(at + 2), length = get16(at + 8);
    if (length > end - at - 10)
      return;
    if (type == DNS_TYPE_OPT) {
      question->has_options = true;
      question->options_size = size;
    }
    at += 10 + length;
  }
}

/* "4.3.2.1.in-addr.arpa" */
static bool read_reverse_v4(const char *name, struct address *ret) {
  unsigned bytes[4];
  int used = 0;
  if (sscanf(name, "%3u.%3u.%3u.%3u.in-addr.arpa%n", &bytes[3], &bytes[2], &bytes[1], &bytes[0],
             &used) != 4 ||
      used == 0 || name[used] != '\0')
    return false;
  *ret = (struct address){.family = 4};
  for (int i = 0; i < 4; i++) {
    if (bytes[i] > 255)
      return false;
    ret->bytes[i] = (uint8_t)bytes[i];
  }
  return true;
}

/* 32 nibbles, the last one first, then "ip6.arpa" */
static bool read_reverse_v6(const char *name, struct address *ret) {
  static const char digits[] = "0123456789abcdef";
  if (strlen(name) != 64 + strlen("ip6.arpa") || strcmp(name + 64, "ip6.arpa") != 0)
    return false;
  *ret = (struct address){.family = 6};
  for (int i = 0; i < 32; i++) {
    const char *digit = name[2 * i] ? strchr(digits, name[2 * i]) : NULL;
    if (!digit || name[2 * i + 1] != '.')
      return false;
    int nibble = 31 - i;
    ret->bytes[nibble / 2] |= (uint8_t)((digit - digits) << (nibble % 2 ? 0 : 4));
  }
  return true;
}

static void read_meaning(struct dns_question *question, const char *written) {
  if (!host_parse(written, strlen(written), question->name))
    question->name[0] = '\0';
  question->is_reverse = read_reverse_v4(question->name, &question->reversed) ||
                         read_reverse_v6(question->name, &question->reversed);
}

int dns_read(const uint8_t *message, size_t length, struct dns_question *ret_question) {
  if (length < HEADER_SIZE)
    return -1;
  struct dns_question question = {.id = get16(message), .flags = get16(message + 2)};
  if (question.flags & FLAG_RESPONSE)
    return -1;
  *ret_question = question;
  if (question.flags & OPCODE_MASK)
    return DNS_NOT_IMPLEMENTED;
  if (get16(message + 4) != 1 || get16(message + 6) != 0)
    return DNS_FORMAT_ERROR;
  const uint8_t *at = message + HEADER_SIZE, *end = message + length;
  char written[HOST_NAME_SIZE];
  size_t used = read_name(at, end, written);
  if (used == 0 || (size_t)(end - at) < used + 4)
    return DNS_FORMAT_ERROR;
  question.question = at;
  question.question_length = used + 4;
  question.type = get16(at + used);
  question.class = get16(at + used + 2);
  unsigned records = (unsigned)get16(message + 8) + get16(message + 10);
  read_options(at + used + 4, end, records, &question);
  read_meaning(&question, written);
  *ret_question = question;
  return question.class == CLASS_IN ? DNS_OK : DNS_REFUSED;
}

/* ---- writing ---- */

struct writer {
  uint8_t *start, *at;
};

static void write_record_head(struct writer *writer, uint16_t type, unsigned length) {
  put16(writer->at, 0xc000 | HEADER_SIZE); /* the question's name */
  put16(writer->at + 2, type);
  put16(writer->at + 4, CLASS_IN);
  put16(writer->at + 6, 0);
  put16(writer->at + 8, ANSWER_TTL);
  put16(writer->at + 10, length);
  writer->at += 12;
}

static void write_address(struct writer *writer, const struct address *address) {
  bool v6 = address->family == 6;
  unsigned length = v6 ? 16 : 4;
  write_record_head(writer, v6 ? DNS_TYPE_AAAA : DNS_TYPE_A, length);
  memcpy(writer->at, address->bytes, length);
  writer->at += length;
}

static void write_pointer(struct writer *writer, const char *name) {
  write_record_head(writer, DNS_TYPE_PTR, (unsigned)strlen(name) + 2);
  for (const char *label = name;; label++) {
    size_t length = strcspn(label, ".");
    *writer->at++ = (uint8_t)length;
    memcpy(writer->at, label, length);
    writer->at += length;
    label += length;
    if (*label == '\0')
      break;
  }
  *writer->at++ = 0;
}

static void write_options(struct writer *writer, const struct dns_reply *reply) {
  static const char text[] = "denied by the sandbox's network policy";
  size_t size = reply->blocked ? 4 + 2 + strlen(text) : 0;
  *writer->at++ = 0; /* the root */
  put16(writer->at, DNS_TYPE_OPT);
  put16(writer->at + 2, DNS_ANSWER_SIZE);
  memset(writer->at + 4, 0, 4);
  put16(writer->at + 8, (unsigned)size);
  writer->at += 10;
  if (!reply->blocked)
    return;
  put16(writer->at, EDE_OPTION);
  put16(writer->at + 2, (unsigned)(2 + strlen(text)));
  put16(writer->at + 4, EDE_BLOCKED);
  memcpy(writer->at + 6, text, strlen(text));
  writer->at += size;
}

/* A question is at most 255 + 4 bytes, a record 12 + 255, the options 11 + 44: all fit. */
size_t dns_write(const struct dns_question *question, const struct dns_reply *reply,
                 uint8_t ret_message[DNS_ANSWER_SIZE]) {
  struct writer writer = {ret_message, ret_message + HEADER_SIZE};
  bool answered = reply->code == DNS_OK && (reply->address || reply->pointer);
  put16(ret_message, question->id);
  put16(ret_message + 2, FLAG_RESPONSE |
                             (question->flags & (OPCODE_MASK | FLAG_RECURSION_DESIRED)) |
                             FLAG_RECURSION_AVAILABLE | reply->code);
  put16(ret_message + 4, question->question ? 1 : 0);
  put16(ret_message + 6, answered ? 1 : 0);
  put16(ret_message + 8, 0);
  put16(ret_message + 10, question->has_options ? 1 : 0);
  if (question->question) {
    memcpy(writer.at, question->question, question->question_length);
    writer.at += question->question_length;
  }
  if (answered && reply->address)
    write_address(&writer, reply->address);
  else if (answered)
    write_pointer(&writer, reply->pointer);
  if (question->has_options)
    write_options(&writer, reply);
  return (size_t)(writer.at - writer.start);
}

size_t dns_write_truncated(const struct dns_question *question,
                           uint8_t ret_message[DNS_ANSWER_SIZE]) {
  struct dns_question bare = *question;
  bare.has_options = false;
  size_t length = dns_write(&bare, &(struct dns_reply){.code = DNS_OK}, ret_message);
  ret_message[2] |= 0x02;
  return length;
}
