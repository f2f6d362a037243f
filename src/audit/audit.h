/* The audit log of a session: append-only JSON lines, each with the hash of the one before. A line
 * is on its way to the disk before what it speaks of takes effect; if it cannot be written, what it
 * speaks of must not happen. Beside the logs of the sessions the user's chain (`chain.jsonl`)
 * records which logs there are and how each one ended. docs/AUDIT.md describes the format. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"
#include "core/strv.h"

/* ---- writing ---- */

struct audit; /* an open log */

/* Opens the log of a session under `state_home`/sandbox/audit/. */
int audit_open(const char *state_home, const char *session_id, struct audit **ret_audit,
               struct sb_error *error);

/* The session begins: one record "session.start" in the user's chain. Steals `fields` (an object,
 * or NULL), as all of these do. */
int audit_start(struct audit *audit, json_t *fields, struct sb_error *error);

/* The session has ended: writes what is still only counted, and one record "session.end" in the
 * chain that says how the log ended. Nothing can be written afterwards. */
int audit_end(struct audit *audit, json_t *fields, struct sb_error *error);

/* Closes it, ending it if nobody has. NULL is nothing. */
void audit_close(struct audit *audit);

/* Makes the file of the log ahead of its first line: while a person thinks, not while the call
 * waits that he has answered. If it fails, the first line says so. */
void audit_prepare(struct audit *audit);

/* Appends one event; time, sequence number and hash are added. Steals `fields` (an object, or
 * NULL). Returns -1 if it cannot be written: the caller denies, and says so. */
int audit_write(struct audit *audit, const char *event, json_t *fields, struct sb_error *error);

/* The same under flood, for what is refused anyway (an approval always has a line of its own): the
 * first hundred lines of a second are written, the rest is counted, and one line "summary" with
 * the count and the last of them follows when the second is over, or at the end. */
int audit_summary(struct audit *audit, const char *event, json_t *fields, struct sb_error *error);

/* How large a file of the log may become before the next one is begun. */
enum { AUDIT_SEGMENT_BYTES = 16 << 20 };
void audit_set_segment_size(struct audit *audit, uint64_t bytes);

/* One event of the user that belongs to no session (trust, grants), in the user's chain. */
int audit_note(const char *state_home, const char *event, json_t *fields, struct sb_error *error);

/* Closes the log of a session whose monitor is gone without having closed it: marks a torn last
 * line and records the end it has now. 1 if done, 0 if its writer lives or there is none, -1 on
 * failure.
 */
int audit_seal(const char *state_home, const char *session_id, struct sb_error *error);

/* Removes closed logs whose last line is older than `before` (RFC 3339, UTC); the chain remembers
 * that it was us. */
int audit_prune(const char *state_home, const char *before, size_t *ret_count,
                struct sb_error *error);

/* ---- reading ---- */

struct audit_entry {
  const char *file; /* its name in the folder */
  size_t line;      /* from 1 */
  const char *text; /* as it stands in the file, without the newline */
  const json_t *json;
};
/* Returns false to stop. */
typedef bool audit_visit(void *context, const struct audit_entry *entry);

/* Every readable line of one session, or of all sessions and the user (session NULL), file by file,
 * the chain first. No line at all is an error only if a session was named. */
int audit_read(const char *state_home, const char *session_id, audit_visit *visit, void *context,
               struct sb_error *error);

struct audit_problem {
  char *file;
  size_t line; /* 0: the file as a whole */
  char *what;
};

struct audit_verdict {
  struct audit_problem *problems;
  size_t problem_count;
  bool known;           /* the chain speaks of the session that was asked for */
  struct strv notes;    /* nothing wrong, but worth saying: still open, torn by a crash */
  size_t logs, lines;   /* what was looked at */
  uint64_t chain_count; /* records of the user's chain */
  char chain_head[65];  /* hash of its last record; whoever notes it elsewhere can prove a change */
};
void audit_verdict_clear(struct audit_verdict *verdict);
#define _cleanup_verdict_ __attribute__((cleanup(audit_verdict_clear)))

/* Recomputes every hash of the chain and of one session's log, or of all. Returns -1 only if the
 * logs cannot be read; what is wrong with them is in the verdict. */
int audit_verify(const char *state_home, const char *session_id, struct audit_verdict *ret_verdict,
                 struct sb_error *error);

/* `state_home`/sandbox/audit. New string. */
char *audit_folder(const char *state_home);
