/* Lines of an audit log; see line.h. Pure but for the clock. */
#include "audit/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "core/text.h"

static const char hash_key[] = ",\"hash\":\"";
enum { HASH_SUFFIX = sizeof hash_key - 1 + SHA256_HEX_SIZE - 1 + 2 /* "} */ };

struct audit_position audit_position_start(const char *name) {
  struct audit_position position = {0};
  char seed[64 + AUDIT_NAME_MAX];
  int length = snprintf(seed, sizeof seed, "sandbox audit log 1 %s", name);
  sha256_hex(seed, (size_t)length, position.head);
  return position;
}

void audit_time(char ret_time[AUDIT_TIME_SIZE]) {
  utc_now(9, ret_time);
}

/* The fields between the braces, with a comma before them; "" if there are none. New string. */
static char *format_fields(json_t *fields) {
  static const char *const ours[] = {"seq", "time", "session", "event", "prev", "hash"};
  for (size_t i = 0; fields && i < ARRAY_SIZE(ours); i++)
    json_object_del(fields, ours[i]);
  char *dumped = json_object_size(fields) > 0 ? json_plain(fields, JSON_REAL_PRECISION(12)) : NULL;
  json_decref(fields);
  if (!dumped)
    return calloc(1, 1);
  dumped[0] = ',';
  dumped[strlen(dumped) - 1] = '\0';
  return dumped;
}

char *audit_line_format(struct audit_position *position, const char *session, const char *event,
                        json_t *fields, size_t *ret_length) {
  char stamp[AUDIT_TIME_SIZE], hash[SHA256_HEX_SIZE];
  audit_time(stamp);
  _cleanup_free_ char *body = format_fields(fields);
  struct text text = {0};
  text_appendf(&text, "{\"seq\":%llu,\"time\":\"%s\",\"session\":\"%s\",\"event\":\"%s\"",
               (unsigned long long)position->count + 1, stamp, session, event);
  text_append(&text, body);
  text_appendf(&text, ",\"prev\":\"%s\"", position->head);
  sha256_hex(text.data, text.length, hash);
  text_appendf(&text, "%s%s\"}\n", hash_key, hash);
  position->count++;
  memcpy(position->head, hash, sizeof hash);
  *ret_length = text.length;
  return text_steal(&text);
}

/* NULL if the hash at the end is that of what is before it. */
static const char *check_hash(const char *line, size_t length, char ret_hash[SHA256_HEX_SIZE]) {
  if (length <= HASH_SUFFIX)
    return "the line has no hash";
  size_t covered = length - HASH_SUFFIX;
  const char *written = line + covered + sizeof hash_key - 1;
  if (memcmp(line + covered, hash_key, sizeof hash_key - 1) != 0 ||
      memcmp(line + length - 2, "\"}", 2) != 0)
    return "the line has no hash at its end";
  sha256_hex(line, covered, ret_hash);
  return memcmp(written, ret_hash, SHA256_HEX_SIZE - 1) == 0
             ? NULL
             : "the line was changed: its hash is another";
}

const char *audit_line_parse(const char *line, size_t length, json_t **ret_json,
                             char ret_hash[SHA256_HEX_SIZE]) {
  *ret_json = json_loadb(line, length, JSON_REJECT_DUPLICATES, NULL);
  if (!json_is_object(*ret_json)) {
    json_decref(*ret_json);
    *ret_json = NULL;
    return "this is not a line of the log";
  }
  return check_hash(line, length, ret_hash);
}

const char *audit_text(const json_t *json, const char *key) {
  const char *text = json_string_value(json_object_get(json, key));
  return text ? text : "";
}

uint64_t audit_number(const json_t *json, const char *key) {
  json_int_t number = json_integer_value(json_object_get(json, key));
  return number > 0 ? (uint64_t)number : 0;
}

const char *audit_line_follows(struct audit_position *position, const json_t *json,
                               const char *hash) {
  const char *problem = NULL;
  if (audit_number(json, "seq") != position->count + 1)
    problem = audit_number(json, "seq") > position->count + 1
                  ? "lines are missing before this one"
                  : "the line is out of order or was inserted";
  else if (strcmp(audit_text(json, "prev"), position->head) != 0)
    problem = "the line does not follow the one before it: a line was changed, inserted or "
              "replaced";
  position->count = audit_number(json, "seq");
  memcpy(position->head, hash, SHA256_HEX_SIZE);
  return problem;
}

void audit_segment_name(const char *name, unsigned segment, char ret_file[AUDIT_NAME_MAX + 32]) {
  if (segment <= 1)
    snprintf(ret_file, AUDIT_NAME_MAX + 32, "%.*s.jsonl", AUDIT_NAME_MAX, name);
  else
    snprintf(ret_file, AUDIT_NAME_MAX + 32, "%.*s.%u.jsonl", AUDIT_NAME_MAX, name, segment);
}

enum audit_log_state audit_log_state(const json_t *record) {
  static const struct {
    const char *event;
    enum audit_log_state state;
  } events[] = {
      {"log.open", AUDIT_LOG_OPEN},    {"session.end", AUDIT_LOG_ENDED},
      {"log.seal", AUDIT_LOG_ENDED},   {"log.close", AUDIT_LOG_ENDED},
      {"log.prune", AUDIT_LOG_PRUNED},
  };
  const char *event = audit_text(record, "event");
  for (size_t i = 0; i < ARRAY_SIZE(events); i++)
    if (strcmp(events[i].event, event) == 0)
      return events[i].state;
  return AUDIT_LOG_UNKNOWN;
}
