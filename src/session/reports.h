/* What is known about a session after its end, kept as one JSON file per session. */
#pragma once

#include <jansson.h>
#include <time.h>

#include "changes/changes.h"
#include "core/error.h"
#include "plan/project.h"

struct session_report {
  const char *session_id;
  char *const *command; /* NULL-terminated */
  struct timespec started;
  int exit_code;
  const struct changes *changes;
  json_t *denied; /* array, or NULL if nothing is known about denials; not taken */
};

json_t *session_report_to_json(const struct host_context *host,
                               const struct session_report *report);

/* Writes it, atomically, where `sandbox report` finds it. */
int session_report_save(const struct host_context *host, const char *session_id, const json_t *json,
                        struct sb_error *error);

/* Reads the one of the session whose id starts with `prefix`. */
int session_report_load(const struct host_context *host, const char *prefix, json_t **ret_json,
                        struct sb_error *error);
