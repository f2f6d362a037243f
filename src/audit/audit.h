/* The audit log of a session: append-only JSON lines, each with the hash of the one before. A line
 * is on its way to the disk before what it speaks of takes effect; if it cannot be written, what it
 * speaks of must not happen. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "core/error.h"

struct audit; /* an open log */

/* Opens (creates) the log of a session under `state_home`/sandbox/audit/. */
int audit_open(const char *state_home, const char *session_id, struct audit **ret_audit,
               struct sb_error *error);
void audit_close(struct audit *audit);

/* Appends one event; time, sequence number and hash are added. Steals `fields` (an object). Returns
 * -1 if it cannot be written: the caller denies, and says so. */
int audit_write(struct audit *audit, const char *event, json_t *fields, struct sb_error *error);
