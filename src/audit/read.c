/* Reading audit logs line by line. Never writes, and never trusts a line: what is not JSON is
 * passed over here and reported by verifying. */
#include "audit/read.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "audit/store.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/folder.h"

int audit_lines_read(int folder, const char *name, audit_line_visit *visit, void *context) {
  for (unsigned segment = 1;; segment++) {
    char file[AUDIT_NAME_MAX + 32];
    _cleanup_free_ char *data = NULL;
    size_t length;
    audit_segment_name(name, segment, file);
    int result = file_read_at(folder, file, AUDIT_READ_MAX, &data, &length);
    if (result == -ENOENT)
      return (int)segment - 1;
    if (result < 0)
      return result;
    size_t number = 0;
    for (size_t start = 0; start < length;) {
      const char *end = memchr(data + start, '\n', length - start);
      size_t size = (end ? (size_t)(end - data) : length) - start;
      const struct audit_raw_line line = {.file = file,
                                          .number = ++number,
                                          .text = data + start,
                                          .length = size,
                                          .whole = end != NULL};
      if (!visit(context, &line))
        return (int)segment;
      start += size + 1;
    }
  }
}

/* ---- which logs there are ---- */

static bool take_name(void *context, const struct folder_entry *entry) {
  const char *dot = strchr(entry->name, '.');
  struct strv *names = context;
  if (!dot || strcmp(dot, ".jsonl") != 0 || dot - entry->name > AUDIT_NAME_MAX)
    return true;
  _cleanup_free_ char *name = xstrndup(entry->name, (size_t)(dot - entry->name));
  if (strcmp(name, AUDIT_CHAIN) != 0)
    strv_add(names, name);
  return true;
}

static int by_text(const void *first, const void *second) {
  return strcmp(*(char *const *)first, *(char *const *)second);
}

int audit_names(int folder, struct strv *ret_names) {
  _cleanup_close_ int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int result = fd < 0 ? -errno : folder_read(fd, take_name, ret_names);
  if (ret_names->count > 1)
    qsort(ret_names->items, ret_names->count, sizeof *ret_names->items, by_text);
  return result;
}

/* ---- for people ---- */

struct reading {
  audit_visit *visit;
  void *context;
  const char *session; /* only its lines, or NULL */
  size_t found;
  bool stopped;
};

static bool pass_on(void *context, const struct audit_raw_line *line) {
  struct reading *reading = context;
  char hash[SHA256_HEX_SIZE];
  json_t *json = NULL;
  (void)audit_line_parse(line->text, line->length, &json, hash);
  if (!json || (reading->session && strcmp(audit_text(json, "session"), reading->session) != 0)) {
    json_decref(json);
    return true;
  }
  reading->found++;
  _cleanup_free_ char *text = xstrndup(line->text, line->length);
  reading->stopped = !reading->visit(
      reading->context,
      &(struct audit_entry){.file = line->file, .line = line->number, .text = text, .json = json});
  json_decref(json);
  return !reading->stopped;
}

int audit_fail_read(struct sb_error *error, const char *name, int errnum) {
  _cleanup_free_ char *shown = escape_string(name);
  if (errnum == ENOENT) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no audit log of session '%s'", shown);
    return sb_hint(error, "'sandbox audit' without an id shows every log");
  }
  return sb_fail(error, SB_CODE_SYSTEM, errnum, "reading the audit log '%s'", shown);
}

int audit_read(const char *state_home, const char *session_id, audit_visit *visit, void *context,
               struct sb_error *error) {
  struct reading reading = {.visit = visit, .context = context, .session = session_id};
  _cleanup_close_ int folder = audit_folder_open(state_home, false);
  if (folder < 0 && (folder != -ENOENT || session_id))
    return audit_fail_read(error, session_id ? session_id : AUDIT_CHAIN, -folder);
  if (folder < 0)
    return 0;
  _cleanup_strv_ struct strv names = {0};
  strv_add(&names, AUDIT_CHAIN);
  if (session_id)
    strv_add(&names, session_id);
  int result = session_id ? 0 : audit_names(folder, &names);
  for (size_t i = 0; result >= 0 && i < names.count && !reading.stopped; i++) {
    result = audit_lines_read(folder, names.items[i], pass_on, &reading);
    if (result < 0)
      return audit_fail_read(error, names.items[i], -result);
  }
  if (result < 0)
    return audit_fail_read(error, AUDIT_CHAIN, -result);
  return session_id && reading.found == 0 ? audit_fail_read(error, session_id, ENOENT) : 0;
}
