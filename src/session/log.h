/* The structured log: one JSON object a line, for programs. Names and paths are escaped by the one
 * escaper; environment values and file contents never come here. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "core/error.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct log {
  int fd; /* -1: nothing is logged */
  enum log_level level;
  const char *session_id;
};
#define LOG_NONE ((struct log){.fd = -1})

/* Opens for appending. */
int log_open(struct log *log, const char *path, enum log_level level, struct sb_error *error);

/* Writes one line: time, level, session, pid, operation and the fields (takes the reference, may
 * be NULL). latency_us below 0 is left out. */
void log_write(const struct log *log, enum log_level level, const char *operation,
               double latency_us, json_t *fields);
void log_close(struct log *log);
