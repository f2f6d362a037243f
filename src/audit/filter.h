/* Which lines of the audit log are wanted, and one of them as a line for people. Pure but for the
 * clock. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "core/error.h"

struct audit_filter {
  char *since, *until;  /* RFC 3339 in UTC; until is exclusive */
  char *path;           /* absolute: this path and everything below */
  const char *event;    /* "decision", or "session" for all that start so */
  const char *decision; /* "allow" or "deny" */
};
void audit_filter_clear(struct audit_filter *filter);
#define _cleanup_filter_ __attribute__((cleanup(audit_filter_clear)))

bool audit_matches(const struct audit_filter *filter, const json_t *line);

/* "1h" (ago) or "2026-11-15", "2026-11-15T10:30", "2026-11-15T10:30:00Z" (UTC) as a time that
 * compares with those of the log. New string; NULL with the error set. */
char *audit_parse_time(const char *option, const char *value, struct sb_error *error);

/* What happened, without time and session, everything escaped. New string. */
char *audit_describe(const json_t *line);

/* True for lines about the logs themselves, which nobody asked for by name. */
bool audit_is_housekeeping(const json_t *line);
