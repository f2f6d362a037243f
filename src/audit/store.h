/* The files of the audit logs: appending to one, and the user's chain. Private to src/audit. */
#pragma once

#include <stdint.h>

#include "audit/line.h"
#include "core/error.h"

/* Allocated ahead, so that a disk that somebody else fills still has room for the last lines. */
enum { AUDIT_READ_MAX = 64 << 20, AUDIT_RESERVE = 64 << 10 };

/* The folder, made if need be. Returns a descriptor or a negative errno. */
int audit_folder_open(const char *state_home, bool create);

/* One file that only we append to. */
struct audit_file {
  int folder, fd;
  char name[AUDIT_NAME_MAX + 1];
  const char *session; /* what its own lines name: the id, or AUDIT_NO_SESSION in the chain */
  unsigned segment;
  uint64_t size, segment_limit;
  uint64_t allocated; /* bytes that the file system holds for the file; may be ahead of the size */
  struct audit_position position;
};

/* Opens a segment for appending. 0 or a negative errno. */
int audit_file_open(struct audit_file *file, unsigned segment, int flags);

/* Appends one line whole or not at all. Steals `fields`. 0 or a negative errno. */
int audit_file_append(struct audit_file *file, const char *session, const char *event,
                      json_t *fields);

/* Brings `position` to the end of the open segment, reading from `from` on. A torn last line, left
 * by a crash, is ended and described by a line of its own, and *ret_torn is set. Stops before a
 * line that does not follow. 0 or a negative errno. */
int audit_file_catch_up(struct audit_file *file, uint64_t from, bool *ret_torn);

/* Opens the segment after the open one, with lines that it may have: whoever began it may have
 * died, or had no room, before anybody knew of it. -ENOENT if there is none and `flags` do not make
 * it. */
int audit_file_open_next(struct audit_file *file, int flags);

/* Opens and reads all its segments up to `last`, which stays open. */
int audit_file_reread(struct audit_file *file, unsigned last);

/* Gives back what was allocated ahead. */
void audit_file_trim(struct audit_file *file);

/* The highest segment that exists, 0 if there is none. */
unsigned audit_last_segment(int folder, const char *name);

/* What `chain.head` says about the user's chain. */
struct chain_head {
  struct audit_position position;
  unsigned segment;
  uint64_t size; /* of the segment, in bytes */
};

/* Appends one record to the user's chain, under its lock. Steals `fields`. 0 or a negative errno.
 */
int audit_chain_append(int folder, const char *session, const char *event, json_t *fields);

/* Where the chain ends in this moment; segment 0 if nothing says so. */
void audit_chain_head(int folder, struct chain_head *ret_head);

/* Describes a failed append for people. Returns -1. */
int audit_fail_write(struct sb_error *error, int errnum);
