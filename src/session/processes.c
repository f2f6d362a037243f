/* The processes of a session, seen from outside; see processes.h. Orphans become children of init,
 * so the tree below init is all there is. */
#include "session/processes.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/in-time.h"
#include "core/status.h"

#define FILE_LIMIT    (256 * 1024)
#define PATIENCE_MS   100
#define PROCESS_LIMIT 10000 /* a fork bomb must not hang whoever looks at it */

static char *read_proc(pid_t pid, const char *name, size_t *ret_length) {
  char path[128];
  char *data = NULL;
  snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
  return file_read_at(AT_FDCWD, path, FILE_LIMIT, &data, ret_length) < 0 ? NULL : data;
}

/* Its words are in its memory, which others of it may keep us from. */
static char *read_words(pid_t pid, size_t *ret_length) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/cmdline", pid);
  _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
  _cleanup_free_ char *data = xmalloc(FILE_LIMIT + 1);
  ssize_t got = fd < 0 ? -1 : in_time_read(fd, data, FILE_LIMIT, PATIENCE_MS);
  if (got < 0)
    return NULL;
  data[got] = '\0';
  *ret_length = (size_t)got;
  return steal_pointer(data);
}

static char *command_line(pid_t pid) {
  size_t length = 0;
  _cleanup_free_ char *data = read_words(pid, &length);
  while (length > 0 && data[length - 1] == '\0')
    length--;
  for (size_t i = 0; i < length; i++) {
    if (data[i] == '\0')
      data[i] = ' ';
  }
  return escape_string(data ? data : "");
}

static double cpu_seconds(pid_t pid) {
  _cleanup_free_ char *stat = read_proc(pid, "stat", NULL);
  const char *after = stat ? strrchr(stat, ')') : NULL;
  unsigned long user = 0, system = 0;
  if (!after || sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                       &system) != 2)
    return 0;
  return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static json_t *process_json(pid_t pid, int parent) {
  _cleanup_free_ char *status = read_proc(pid, "status", NULL);
  if (!status)
    return NULL;
  _cleanup_free_ char *command = command_line(pid);
  char state[2] = {status_field(status, "State:")[0], '\0'};
  return json_pack("{s:i, s:i, s:i, s:s, s:s, s:i, s:f}", "pid",
                   (int)status_innermost(status, "NSpid:", NULL), "host_pid", (int)pid, "parent",
                   parent, "state", state, "command", command, "memory_kb",
                   atoi(status_field(status, "VmRSS:")), "cpu_seconds", cpu_seconds(pid));
}

static void add_tree(json_t *list, pid_t pid, int parent) {
  if (json_array_size(list) >= PROCESS_LIMIT)
    return;
  json_t *process = process_json(pid, parent);
  if (!process)
    return;
  int inside = (int)json_integer_value(json_object_get(process, "pid"));
  json_array_append_new(list, process);
  char name[64];
  snprintf(name, sizeof name, "task/%d/children", pid);
  _cleanup_free_ char *children = read_proc(pid, name, NULL);
  char *rest = NULL;
  for (char *word = children ? strtok_r(children, " \n", &rest) : NULL; word;
       word = strtok_r(NULL, " \n", &rest))
    add_tree(list, (pid_t)atoi(word), inside);
}

json_t *processes_to_json(pid_t init) {
  json_t *list = json_array();
  add_tree(list, init, 0);
  return list;
}
