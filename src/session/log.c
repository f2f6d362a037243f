/* The structured log; see log.h. A log that cannot be written never stops the session. */
#include "session/log.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/utc.h"

static const char *const level_names[] = {"error", "warning", "info", "debug"};

int log_open(struct log *log, const char *path, enum log_level level, struct sb_error *error) {
  int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) {
    _cleanup_free_ char *shown = escape_string(path);
    sb_fail_errno(error, "--log '%s'", shown);
    return sb_hint(error, "name a file in a folder you can write");
  }
  log->fd = fd;
  log->level = level;
  return 0;
}

void log_write(const struct log *log, enum log_level level, const char *operation,
               double latency_us, json_t *fields) {
  if (log->fd < 0 || level > log->level) {
    json_decref(fields);
    return;
  }
  char stamp[UTC_SIZE];
  utc_now(6, stamp);
  json_t *line =
      json_pack("{s:s, s:s, s:s?, s:i, s:s}", "time", stamp, "level", level_names[level], "session",
                log->session_id, "pid", (int)getpid(), "operation", operation);
  if (latency_us >= 0)
    json_object_set_new(line, "latency_us", json_real(latency_us));
  if (fields)
    json_object_update(line, fields);
  _cleanup_free_ char *text = json_line(line);
  (void)file_write_all(log->fd, text, strlen(text));
  json_decref(line);
  json_decref(fields);
}

void log_close(struct log *log) {
  if (log->fd >= 0)
    close(log->fd);
  log->fd = -1;
}
