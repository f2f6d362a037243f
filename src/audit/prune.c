/* Removing old logs. The chain remembers each removal, so that it is none of those that verifying
 * reports. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit.h"
#include "audit/read.h"
#include "audit/store.h"
#include "core/cleanup.h"

static bool take_record(void *context, const struct audit_raw_line *line) {
  char hash[SHA256_HEX_SIZE];
  json_t *json = NULL, *logs = context;
  (void)audit_line_parse(line->text, line->length, &json, hash);
  if (audit_log_state(json) != AUDIT_LOG_UNKNOWN)
    json_object_set(logs, audit_text(json, "session"), json);
  json_decref(json);
  return true;
}

static bool is_old(const json_t *record, const char *before) {
  return audit_log_state(record) == AUDIT_LOG_ENDED && audit_number(record, "count") > 0 &&
         strcmp(audit_text(record, "time"), before) < 0;
}

static void remove_files(int folder, const char *name) {
  char file[AUDIT_NAME_MAX + 32];
  for (unsigned segment = audit_last_segment(folder, name); segment > 0; segment--) {
    audit_segment_name(name, segment, file);
    (void)unlinkat(folder, file, 0);
  }
}

/* The record first: files that a crash leaves behind are removed the next time. */
static int prune_log(int folder, const char *name, const json_t *record, const char *before,
                     size_t *count) {
  bool again = audit_log_state(record) == AUDIT_LOG_PRUNED;
  if (!again && !is_old(record, before))
    return 0;
  int result =
      again ? 0
            : audit_chain_append(folder, name, "log.prune",
                                 json_pack("{s:O, s:O}", "count", json_object_get(record, "count"),
                                           "head", json_object_get(record, "head")));
  if (result == 0) {
    remove_files(folder, name);
    *count += again ? 0 : 1;
  }
  return result;
}

int audit_prune(const char *state_home, const char *before, size_t *ret_count,
                struct sb_error *error) {
  _cleanup_close_ int folder = audit_folder_open(state_home, false);
  *ret_count = 0;
  if (folder == -ENOENT)
    return 0;
  json_t *logs = json_object(), *record;
  int result = folder < 0 ? folder : audit_lines_read(folder, AUDIT_CHAIN, take_record, logs);
  const char *name;
  json_object_foreach(logs, name, record) if (result >= 0) result =
      prune_log(folder, name, record, before, ret_count);
  json_decref(logs);
  return result < 0 ? audit_fail_write(error, -result) : 0;
}
