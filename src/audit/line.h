/* One line of an audit log, and where in the chain of hashes it stands. Pure. Private to src/audit.
 *
 *   {"seq":1,"time":"…","session":"…","event":"…",FIELDS,"prev":"HASH","hash":"HASH"}
 *
 * `hash` is the SHA-256 of the bytes of the line before `,"hash":`. They contain `prev`, so a line
 * stands for everything before it, and it is bytes that are compared, not what they mean. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sha256.h"
#include "core/utc.h"

enum { AUDIT_NAME_MAX = 32, AUDIT_TIME_SIZE = UTC_SIZE };

/* The end of a log: how many lines, and the hash of the last one. */
struct audit_position {
  uint64_t count;
  char head[SHA256_HEX_SIZE];
};

/* The name of the user's chain, and what stands in place of a session's id where there is none. */
#define AUDIT_CHAIN      "chain"
#define AUDIT_NO_SESSION "-"

/* Before the first line: a hash of the log's name, so that no log can pass for another. */
struct audit_position audit_position_start(const char *name);

/* Now, in UTC, with nanoseconds. */
void audit_time(char ret_time[AUDIT_TIME_SIZE]);

/* Formats an event as the next line (newline included) and moves the position on. Steals `fields`;
 * those that have a name of ours are dropped. New string. */
char *audit_line_format(struct audit_position *position, const char *session, const char *event,
                        json_t *fields, size_t *ret_length);

/* Reads one line without its newline. NULL if it is whole, else what is wrong with it. *ret_json
 * is new, and NULL unless the line is JSON. */
const char *audit_line_parse(const char *line, size_t length, json_t **ret_json,
                             char ret_hash[SHA256_HEX_SIZE]);

/* NULL if the line follows the position, which is moved on to it; else what is wrong. */
const char *audit_line_follows(struct audit_position *position, const json_t *json,
                               const char *hash);

const char *audit_text(const json_t *json, const char *key); /* "" if it is not there */
uint64_t audit_number(const json_t *json, const char *key);  /* 0 if it is not there */

/* "NAME.jsonl", "NAME.2.jsonl", … */
void audit_segment_name(const char *name, unsigned segment, char ret_file[AUDIT_NAME_MAX + 32]);

/* What a record of the chain says about the log of its session. */
enum audit_log_state {
  AUDIT_LOG_UNKNOWN, /* nothing */
  AUDIT_LOG_OPEN,
  AUDIT_LOG_ENDED,
  AUDIT_LOG_PRUNED
};
enum audit_log_state audit_log_state(const json_t *record);
