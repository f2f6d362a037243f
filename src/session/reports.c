/* Reports of ended sessions; see reports.h. */
#include "session/reports.h"

#include <fcntl.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "session/lookup.h"

enum { REPORT_VERSION = 1, REPORT_SIZE_LIMIT = 64 << 20 };

static char *reports_folder(const struct host_context *host) {
  if (!host->state_home)
    return xasprintf("%s/reports", host->runtime_folder);
  return xasprintf("%s/sandbox/reports", host->state_home);
}

static char *report_path(const struct host_context *host, const char *session_id) {
  _cleanup_free_ char *folder = reports_folder(host);
  return xasprintf("%s/%s.json", folder, session_id);
}

static size_t count_words(char *const *words) {
  size_t count = 0;
  while (words && words[count])
    count++;
  return count;
}

json_t *session_report_to_json(const struct host_context *host,
                               const struct session_report *report) {
  json_t *object = json_object();
  json_object_set_new(object, "version", json_integer(REPORT_VERSION));
  json_set_string(object, "session", report->session_id);
  json_set_path(object, "project", host->project);
  json_object_set_new(object, "command",
                      json_string_array(report->command, count_words(report->command)));
  json_object_set_new(object, "started", json_integer(report->started.tv_sec));
  json_object_set_new(object, "exit_code", json_integer(report->exit_code));
  json_object_set_new(object, "changes", changes_to_json(report->changes));
  json_object_set(object, "denied", report->denied ? report->denied : json_null());
  return object;
}

int session_report_save(const struct host_context *host, const char *session_id, const json_t *json,
                        struct sb_error *error) {
  _cleanup_free_ char *folder = reports_folder(host), *path = report_path(host, session_id);
  _cleanup_free_ char *line = json_line(json);
  int result = file_make_folders(folder, 0700);
  if (result == 0)
    result = file_replace_at(AT_FDCWD, path, line, strlen(line), 0600);
  if (result == 0)
    return 0;
  _cleanup_free_ char *shown = escape_string(path);
  return sb_fail(error, SB_CODE_SYSTEM, -result, "writing the report '%s'", shown);
}

int session_report_load(const struct host_context *host, const char *prefix, json_t **ret_json,
                        struct sb_error *error) {
  _cleanup_free_ char *folder = reports_folder(host);
  char id[SESSION_ID_LENGTH + 1];
  if (session_find(folder, ".json", prefix, "report", id, error) < 0)
    return -1;
  _cleanup_free_ char *path = report_path(host, id), *shown = escape_string(path), *data = NULL;
  size_t length;
  int result = file_read_at(AT_FDCWD, path, REPORT_SIZE_LIMIT, &data, &length);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "reading the report '%s'", shown);
  json_t *json = json_loadb(data, length, 0, NULL);
  if (json_integer_value(json_object_get(json, "version")) != REPORT_VERSION) {
    json_decref(json);
    sb_fail(error, SB_CODE_CONFLICT, 0, "'%s' is not a report that this version can read", shown);
    return sb_hint(error, "remove the file");
  }
  *ret_json = json;
  return 0;
}
