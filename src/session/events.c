/* A session's own audit events; see events.h. */
#include "session/events.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "session/watchers.h"

/* The logs' folder is below a folder "sandbox", which this usually is. */
static char *in_memory(const struct host_context *host) {
  bool ours = strcmp(path_base(host->runtime_folder), "sandbox") == 0;
  return ours ? path_parent(host->runtime_folder) : xstrdup(host->runtime_folder);
}

char *events_home(const struct host_context *host) {
  if (!host->state_home)
    return in_memory(host);
  _cleanup_free_ char *folder = audit_folder(host->state_home);
  int result = access(folder, W_OK) == 0 ? 0 : -errno;
  if (result == -ENOENT)
    result = file_make_folders(folder, 0700);
  bool closed = result == -EACCES || result == -EPERM || result == -EROFS || result == -ENOTDIR;
  return closed ? in_memory(host) : xstrdup(host->state_home);
}

static json_t *start_fields(const struct events_subject *subject) {
  json_t *fields = json_object();
  json_set_string(fields, "user", getenv("USER"));
  json_object_set_new(fields, "uid", json_integer(subject->host->user));
  json_object_set_new(fields, "pid", json_integer(getpid()));
  json_set_path(fields, "project", subject->host->project);
  json_set_path(fields, "cwd", subject->host->cwd);
  json_set_string(fields, "mode", subject->mode);
  json_set_string(fields, "backend", subject->backend);
  if (subject->command)
    json_set_words(fields, "command", subject->command->items, subject->command->count);
  return fields;
}

static void warn_forgetful(const struct events_subject *subject, const char *home) {
  const char *wanted = subject->host->state_home;
  if (!wanted || strcmp(home, wanted) == 0 || !subject->listener)
    return;
  _cleanup_free_ char *shown = escape_string(wanted), *place = escape_string(home);
  _cleanup_free_ char *text =
      xasprintf("the audit log is in %s/sandbox/audit and ends with this login, because "
                "%s/sandbox/audit cannot be written",
                place, shown);
  subject->listener(subject->listener_context,
                    &(struct session_notice){.event = SESSION_WARNING, .text = text});
}

int events_open(const struct events_subject *subject, struct audit **ret_audit,
                struct sb_error *error) {
  struct audit *audit;
  _cleanup_free_ char *home = events_home(subject->host);
  warn_forgetful(subject, home);
  if (audit_open(home, subject->session_id, &audit, error) < 0)
    return -1;
  if (audit_start(audit, start_fields(subject), error) < 0) {
    audit_close(audit);
    return -1;
  }
  *ret_audit = audit;
  return 0;
}

static double round_ms(double seconds) {
  return (double)(int64_t)(seconds * 1000 + 0.5) / 1000;
}

void events_close(struct audit *audit, const struct session_result *result) {
  _cleanup_error_ struct sb_error error = {0};
  if (!audit)
    return;
  json_t *fields = json_pack("{s:i, s:b, s:f}", "exit", result->exit_code, "started",
                             result->started, "seconds", round_ms(result->wall_seconds));
  if (result->limit_hit)
    json_set_string(fields, "limit", limit_name(result->limit));
  (void)audit_end(audit, fields, &error);
  audit_close(audit);
}

int events_start(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  const struct events_subject subject = {
      .host = request->host,
      .session_id = request->session_id,
      .mode = request->mode,
      .backend = request->backend ? request->backend : "native",
      .command = request->idle ? NULL : session_command(request),
      .listener = request->listener,
      .listener_context = request->listener_context,
  };
  return events_open(&subject, &monitor->audit, error);
}

void events_end(struct monitor *monitor) {
  events_close(monitor->audit, monitor->result);
  monitor->audit = NULL;
}

void events_log(const struct monitor *monitor, const char *event, const json_t *fields) {
  static const char *const keys[] = {"decision", "scope", "reason", "access", "path",  "path_b64",
                                     "host",     "port",  "rule",   "store",  "count", "by"};
  const json_t *decision = json_object_get(fields, "decision");
  bool allowed = decision && strcmp(json_string_value(decision), "allow") == 0;
  /* Limits have a line of their own, and commands one when they end. */
  if (monitor->request->log->fd < 0 || strcmp(event, "limit") == 0 || strcmp(event, "exec") == 0)
    return;
  json_t *shown = json_object();
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
    if (json_object_get(fields, keys[i]))
      json_object_set(shown, keys[i], json_object_get(fields, keys[i]));
  }
  if (json_object_get(fields, "pid")) /* in a line of the log, `pid` is ours */
    json_object_set(shown, "process", json_object_get(fields, "pid"));
  const json_t *waited = json_object_get(fields, "latency_ms");
  log_write(monitor->request->log, allowed ? LOG_DEBUG : LOG_INFO, event,
            waited ? json_number_value(waited) * 1000 : -1, shown);
}

int events_write(struct monitor *monitor, const char *event, json_t *fields,
                 struct sb_error *error) {
  int result = 0;
  if (monitor->audit)
    result = audit_write(monitor->audit, event, json_incref(fields), error);
  if (monitor->audit && result == 0) {
    watchers_tell(monitor, event, fields);
    events_log(monitor, event, fields);
  }
  json_decref(fields);
  return result;
}

json_t *events_exec_fields(const json_t *request) {
  static const char *const keys[] = {"argv", "argv_b64", "cwd", "cwd_b64"};
  json_t *fields = json_object();
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
    if (json_object_get(request, keys[i]))
      json_object_set(fields, keys[i], json_object_get(request, keys[i]));
  return fields;
}

int events_exec(struct monitor *monitor, const json_t *request, struct sb_error *error) {
  return events_write(monitor, "exec", events_exec_fields(request), error);
}

int events_kill(struct monitor *monitor, bool now, struct sb_error *error) {
  return events_write(monitor, "kill", json_pack("{s:b}", "now", now), error);
}

void events_limit(struct monitor *monitor, const char *limit, const char *value,
                  const char *enforcer) {
  _cleanup_error_ struct sb_error error = {0};
  (void)events_write(
      monitor, "limit",
      json_pack("{s:s, s:s, s:s}", "limit", limit, "value", value, "enforced_by", enforcer),
      &error);
}

void events_protection(struct monitor *monitor, const char *event, const char *path,
                       const char *note) {
  _cleanup_error_ struct sb_error error = {0};
  if (!monitor->audit)
    return;
  json_t *fields = json_object();
  if (path && path[0])
    json_set_path(fields, "path", path);
  if (note)
    json_set_string(fields, "note", note);
  /* What ends the session has a line of its own, whatever the command did before. */
  if (note)
    (void)audit_write(monitor->audit, event, fields, &error);
  else
    (void)audit_summary(monitor->audit, event, fields, &error);
}
