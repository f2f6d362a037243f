/* Writing the audit log of one session; see audit.h. Never says that a line was written when it was
 * not, and never leaves half a line behind. */
#include "audit/audit.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/store.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/escape.h"

enum { FLOOD_LINES = 100 };
#define FLOOD_WINDOW_NS (1000ull * 1000 * 1000)

struct audit {
  struct audit_file file;
  bool begun, ended; /* it has a file; its end is in the chain */
  /* What could not be written: told as soon as it can be. */
  uint64_t lost;
  char lost_since[AUDIT_TIME_SIZE];
  /* What is only counted in this second. */
  uint64_t window_ns, counted;
  unsigned written;
  char *counted_event;
  json_t *counted_last;
};

/* The id becomes a file's name and part of JSON. */
static bool is_name(const char *name) {
  size_t length = strlen(name);
  for (size_t i = 0; i < length; i++)
    if (!isalnum((unsigned char)name[i]) && name[i] != '-')
      return false;
  return length > 0 && length <= AUDIT_NAME_MAX && strcmp(name, AUDIT_CHAIN) != 0;
}

static int check_name(const char *name, struct sb_error *error) {
  if (is_name(name))
    return 0;
  _cleanup_free_ char *shown = escape_string(name);
  return sb_fail(error, SB_CODE_USAGE, 0, "'%s' is not the id of a session", shown);
}

/* A log that is there already is continued; that happens only to those who choose their own ids. */
static int open_existing(struct audit_file *file) {
  return audit_file_reread(file, audit_last_segment(file->folder, file->name));
}

/* The file comes with the first line: making one costs ten times what a line does, and most
 * sessions ask nothing. Before its record in the chain: an empty file without one is nobody's loss.
 */
static int begin_file(struct audit *audit) {
  struct audit_file *file = &audit->file;
  if (audit->begun)
    return 0;
  int result = file->fd < 0 ? audit_file_open(file, 1, O_CREAT | O_EXCL) : 0;
  if (result == -EEXIST)
    result = open_existing(file);
  if (result == 0)
    result = audit_chain_append(file->folder, file->session, "log.open", NULL);
  audit->begun = result == 0;
  return result;
}

int audit_open(const char *state_home, const char *session_id, struct audit **ret_audit,
               struct sb_error *error) {
  if (check_name(session_id, error) < 0)
    return -1;
  int folder = audit_folder_open(state_home, true);
  if (folder < 0)
    return audit_fail_write(error, -folder);
  struct audit *audit = xcalloc(1, sizeof *audit);
  audit->file = (struct audit_file){.folder = folder,
                                    .fd = -1,
                                    .segment_limit = AUDIT_SEGMENT_BYTES,
                                    .position = audit_position_start(session_id)};
  memcpy(audit->file.name, session_id, strlen(session_id));
  audit->file.session = audit->file.name;
  *ret_audit = audit;
  return 0;
}

int audit_start(struct audit *audit, json_t *fields, struct sb_error *error) {
  int result = audit_chain_append(audit->file.folder, audit->file.session, "session.start", fields);
  return result < 0 ? audit_fail_write(error, -result) : 0;
}

void audit_set_segment_size(struct audit *audit, uint64_t bytes) {
  audit->file.segment_limit = bytes;
}

/* ---- events ---- */

static int write_gap(struct audit *audit) {
  int result = audit_file_append(
      &audit->file, audit->file.session, "log.gap",
      json_pack("{s:I, s:s}", "count", (json_int_t)audit->lost, "since", audit->lost_since));
  if (result == 0)
    audit->lost = 0;
  return result;
}

void audit_prepare(struct audit *audit) {
  (void)begin_file(audit);
}

int audit_write(struct audit *audit, const char *event, json_t *fields, struct sb_error *error) {
  int result = begin_file(audit);
  if (result == 0 && audit->lost > 0)
    result = write_gap(audit);
  if (result == 0)
    result = audit_file_append(&audit->file, audit->file.session, event, fields);
  else
    json_decref(fields);
  if (result == 0)
    return 0;
  if (audit->lost++ == 0)
    audit_time(audit->lost_since);
  return audit_fail_write(error, -result);
}

static int write_counted(struct audit *audit, struct sb_error *error) {
  if (audit->counted == 0)
    return 0;
  json_t *fields = json_object();
  json_object_set_new(fields, "of", json_string(audit->counted_event));
  json_object_set_new(fields, "count", json_integer((json_int_t)audit->counted));
  json_object_set(fields, "last", audit->counted_last ? audit->counted_last : json_null());
  if (audit_write(audit, "summary", fields, error) < 0)
    return -1;
  audit->counted = 0;
  json_decref(audit->counted_last);
  audit->counted_last = NULL;
  return 0;
}

static void count(struct audit *audit, const char *event, json_t *fields) {
  audit->counted++;
  free(audit->counted_event);
  audit->counted_event = xstrdup(event);
  json_decref(audit->counted_last);
  audit->counted_last = fields;
}

int audit_summary(struct audit *audit, const char *event, json_t *fields, struct sb_error *error) {
  uint64_t now = monotonic_ns();
  if (now - audit->window_ns > FLOOD_WINDOW_NS) {
    audit->window_ns = now;
    audit->written = 0;
  }
  bool other = audit->counted > 0 && strcmp(audit->counted_event, event) != 0;
  if ((audit->written < FLOOD_LINES || other) && write_counted(audit, error) < 0) {
    json_decref(fields);
    return -1;
  }
  if (audit->written >= FLOOD_LINES) {
    count(audit, event, fields);
    return 0;
  }
  audit->written++;
  return audit_write(audit, event, fields, error);
}

/* ---- the end ---- */

static int record_end(const struct audit_file *file, const char *event, json_t *fields) {
  json_t *end = fields ? fields : json_object();
  json_object_set_new(end, "count", json_integer((json_int_t)file->position.count));
  if (file->position.count > 0) {
    json_object_set_new(end, "head", json_string(file->position.head));
    json_object_set_new(end, "files", json_integer(file->segment));
  }
  return audit_chain_append(file->folder, file->session, event, end);
}

static int end_with(struct audit *audit, const char *event, json_t *fields,
                    struct sb_error *error) {
  _cleanup_error_ struct sb_error ignored = {0};
  (void)write_counted(audit, &ignored);
  if (audit->lost > 0)
    (void)write_gap(audit);
  int result = record_end(&audit->file, event, fields);
  audit->ended = result == 0;
  return result < 0 ? audit_fail_write(error, -result) : 0;
}

int audit_end(struct audit *audit, json_t *fields, struct sb_error *error) {
  return end_with(audit, "session.end", fields, error);
}

void audit_close(struct audit *audit) {
  if (!audit)
    return;
  _cleanup_error_ struct sb_error error = {0};
  /* If the chain cannot be written now, the log stays open there until somebody seals it. */
  if (audit->begun && !audit->ended)
    (void)end_with(audit, "log.close", NULL, &error);
  audit_file_trim(&audit->file);
  if (audit->file.fd >= 0)
    close(audit->file.fd);
  close(audit->file.folder);
  free(audit->counted_event);
  json_decref(audit->counted_last);
  free(audit);
}

int audit_seal(const char *state_home, const char *session_id, struct sb_error *error) {
  if (check_name(session_id, error) < 0)
    return -1;
  _cleanup_close_ int folder = audit_folder_open(state_home, false);
  if (folder < 0)
    return 0;
  struct audit_file file = {.folder = folder,
                            .fd = -1,
                            .segment_limit = UINT64_MAX,
                            .position = audit_position_start(session_id)};
  memcpy(file.name, session_id, strlen(session_id));
  file.session = file.name;
  int result = open_existing(&file);
  if (result == 0)
    result = record_end(&file, "log.seal", NULL);
  audit_file_trim(&file);
  if (file.fd >= 0)
    close(file.fd);
  if (result == -EBUSY)
    return 0; /* its writer lives */
  return result < 0 ? audit_fail_write(error, -result) : 1;
}
