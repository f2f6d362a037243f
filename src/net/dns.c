/* DNS messages; see dns.h. RFC 1035, 6891 (EDNS), 8914 (extended errors). */
#include "net/dns.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"

#define HEADER_SIZE 12
#define CLASS_IN    1
#define ANSWER_TTL  60 /* how long a synthetic address may be kept without asking again */

enum {
  FLAG_RESPONSE = 0x8000,
  FLAG_RECURSION_DESIRED = 0x0100,
  FLAG_RECURSION_AVAILABLE = 0x80,
  FLAG_CHECKING_DISABLED = 0x10,
};
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

/* A record behind the question, in place. */
struct record {
  bool is_of_root;
  uint16_t type, class, length;
  const uint8_t *ttl, *data;
};

/* Steps over one; false if it is not all there. */
static bool take_record(const uint8_t **at, const uint8_t *end, struct record *ret) {
  const uint8_t *head = skip_name(*at, end);
  if (!head || end - head < 10)
    return false;
  *ret = (struct record){**at == 0,       get16(head), get16(head + 2),
                         get16(head + 8), head + 4,    head + 10};
  if (ret->length > end - ret->data)
    return false;
  *at = ret->data + ret->length;
  return true;
}

/* Each option is a code, a length and so many bytes. */
static bool are_options_whole(const struct record *record) {
  const uint8_t *at = record->data, *end = at + record->length;
  while (end - at >= 4 && get16(at + 2) <= end - at - 4)
    at += 4 + get16(at + 2);
  return at == end;
}

/* The options are one record of the root. The class has the size of answers, the second byte of the
 * lifetime the version. */
static enum dns_code read_options(const struct record *record, struct dns_question *question) {
  if (question->has_options || !record->is_of_root || !are_options_whole(record))
    return DNS_FORMAT_ERROR;
  question->has_options = true;
  question->options_size = record->class;
  return record->ttl[1] == 0 ? DNS_OK : DNS_BAD_VERSION;
}

/* Options stand in the last section and nowhere else. A wrong message is worse than a version that
 * is not known. */
static enum dns_code read_records(const uint8_t *at, const uint8_t *end, unsigned authority,
                                  unsigned additional, struct dns_question *question) {
  enum dns_code worst = DNS_OK;
  for (unsigned i = 0; i < authority + additional; i++) {
    struct record record;
    if (!take_record(&at, end, &record))
      return DNS_FORMAT_ERROR;
    if (record.type != DNS_TYPE_OPT)
      continue;
    enum dns_code code = i < authority ? DNS_FORMAT_ERROR : read_options(&record, question);
    if (code == DNS_FORMAT_ERROR)
      return code;
    worst = code;
  }
  return worst;
}

/* What is no type of data but something to do. */
static enum dns_code judge_type(uint16_t type) {
  static const struct {
    uint16_t type;
    enum dns_code code;
  } types[] = {
      {0, DNS_FORMAT_ERROR},      {DNS_TYPE_OPT, DNS_FORMAT_ERROR},
      {249, DNS_NOT_IMPLEMENTED},                             /* TKEY */
      {250, DNS_FORMAT_ERROR},                                /* TSIG */
      {251, DNS_REFUSED},         {252, DNS_REFUSED},         /* zone transfers */
      {253, DNS_NOT_IMPLEMENTED}, {254, DNS_NOT_IMPLEMENTED}, /* MAILB, MAILA */
  };
  for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
    if (types[i].type == type)
      return types[i].code;
  }
  return DNS_OK;
}

/* "4.3.2.1.in-addr.arpa"; "04.3.2.1.in-addr.arpa" is another name. */
static bool read_reverse_v4(const char *name, struct address *ret) {
  unsigned bytes[4];
  char again[HOST_NAME_SIZE];
  if (sscanf(name, "%3u.%3u.%3u.%3u.", &bytes[3], &bytes[2], &bytes[1], &bytes[0]) != 4)
    return false;
  snprintf(again, sizeof again, "%u.%u.%u.%u.in-addr.arpa", bytes[3], bytes[2], bytes[1], bytes[0]);
  if (strcmp(name, again) != 0)
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
  question->is_root = written[0] == '\0';
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
  enum dns_code code =
      read_records(at + used + 4, end, get16(message + 8), get16(message + 10), &question);
  read_meaning(&question, written);
  *ret_question = question;
  if (code != DNS_OK)
    return code;
  return question.class == CLASS_IN ? judge_type(question.type) : DNS_REFUSED;
}

/* ---- writing ---- */

struct writer {
  uint8_t *start, *at;
};

static void write_record_head(struct writer *writer, uint16_t type, uint32_t ttl, unsigned length) {
  put16(writer->at, 0xc000 | HEADER_SIZE); /* the question's name */
  put16(writer->at + 2, type);
  put16(writer->at + 4, CLASS_IN);
  put16(writer->at + 6, (uint16_t)(ttl >> 16));
  put16(writer->at + 8, (uint16_t)ttl);
  put16(writer->at + 10, length);
  writer->at += 12;
}

static void write_address(struct writer *writer, const struct address *address, uint32_t ttl) {
  bool v6 = address->family == 6;
  unsigned length = v6 ? 16 : 4;
  write_record_head(writer, v6 ? DNS_TYPE_AAAA : DNS_TYPE_A, ttl ? ttl : ANSWER_TTL, length);
  memcpy(writer->at, address->bytes, length);
  writer->at += length;
}

static void write_pointer(struct writer *writer, const char *name) {
  write_record_head(writer, DNS_TYPE_PTR, ANSWER_TTL, (unsigned)strlen(name) + 2);
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
  put16(writer->at + 4, (unsigned)reply->code >> 4 << 8); /* and version 0 */
  put16(writer->at + 6, 0);
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
  size_t addresses = reply->code == DNS_OK ? reply->address_count : 0;
  bool pointed = reply->code == DNS_OK && addresses == 0 && reply->pointer;
  put16(ret_message, question->id);
  put16(ret_message + 2,
        FLAG_RESPONSE |
            (question->flags & (OPCODE_MASK | FLAG_RECURSION_DESIRED | FLAG_CHECKING_DISABLED)) |
            FLAG_RECURSION_AVAILABLE | (reply->code & 15));
  put16(ret_message + 4, question->question ? 1 : 0);
  put16(ret_message + 6, (unsigned)addresses + pointed);
  put16(ret_message + 8, 0);
  put16(ret_message + 10, question->has_options ? 1 : 0);
  if (question->question) {
    memcpy(writer.at, question->question, question->question_length);
    writer.at += question->question_length;
  }
  for (size_t i = 0; i < addresses; i++)
    write_address(&writer, &reply->addresses[i], reply->ttl);
  if (pointed)
    write_pointer(&writer, reply->pointer);
  if (question->has_options)
    write_options(&writer, reply);
  return (size_t)(writer.at - writer.start);
}

size_t dns_write_truncated(const struct dns_question *question,
                           uint8_t ret_message[DNS_ANSWER_SIZE]) {
  size_t length = dns_write(question, &(struct dns_reply){.code = DNS_OK}, ret_message);
  ret_message[2] |= 0x02;
  return length;
}
