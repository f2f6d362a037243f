/* The tree of processes below a tool; see processes.h. What it reads is a moment's truth, and a
 * number may be another's in the next: each process is held by a descriptor before it is looked at,
 * and signalled by that. */
#include "backend/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/status.h"

enum { DEPTH_LIMIT = 64, LISTING_LIMIT = 1 << 20 };

struct process {
  pid_t pid;
  int fd;
  pid_t parent;
  int inside; /* its pid in the innermost namespace, and how many it is in */
  size_t namespaces;
};

typedef void process_visit(const struct process *process, void *context);

static bool look_at(pid_t pid, struct process *ret_process) {
  char path[64];
  _cleanup_free_ char *text = NULL;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  if (file_read_at(AT_FDCWD, path, 1 << 16, &text, NULL) < 0)
    return false;
  *ret_process = (struct process){.pid = pid, .fd = -1};
  ret_process->parent = status_innermost(text, "PPid:", NULL);
  ret_process->inside = status_innermost(text, "NSpid:", &ret_process->namespaces);
  return ret_process->namespaces > 0;
}

static void signal_process(const struct process *process, int signal) {
  (void)pidfd_send_signal(process->fd, signal, NULL, 0);
}

static void walk(pid_t parent, int depth, process_visit *visit, void *context) {
  char path[80];
  _cleanup_free_ char *text = NULL;
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
  if (depth > DEPTH_LIMIT || file_read_at(AT_FDCWD, path, LISTING_LIMIT, &text, NULL) < 0)
    return;
  for (char *at = text, *end;; at = end) {
    pid_t pid = (pid_t)strtol(at, &end, 10);
    if (end == at || pid <= 0)
      return;
    struct process process;
    _cleanup_close_ int held = pidfd_open(pid, 0);
    if (held < 0 || !look_at(pid, &process) || process.parent != parent)
      continue;
    process.fd = held;
    walk(pid, depth + 1, visit, context);
    visit(&process, context);
  }
}

static void signal_one(const struct process *process, void *context) {
  signal_process(process, *(int *)context);
}

void processes_signal_below(pid_t ancestor, int signal) {
  walk(ancestor, 0, signal_one, &signal);
}

struct search {
  size_t own;  /* namespaces of the tool */
  pid_t found; /* the process with the smallest pid above 1 in a deeper namespace */
  int found_inside;
  int signal;
  pid_t spared;
};

static void find_first(const struct process *process, void *context) {
  struct search *search = context;
  if (process->namespaces <= search->own || process->inside <= 1)
    return;
  if (!search->found || process->inside < search->found_inside) {
    search->found = process->pid;
    search->found_inside = process->inside;
  }
}

/* Its arguments, or its variables: strings one after the other. */
static bool read_strings(pid_t pid, const char *kind, char **ret_strings, size_t *ret_length) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, kind);
  return file_read_at(AT_FDCWD, path, LISTING_LIMIT, ret_strings, ret_length) == 0;
}

/* firejail runs a command as `SHELL -c -- 'words'`, and most shells wait for it. */
static bool is_shell_between(pid_t pid) {
  _cleanup_free_ char *words = NULL;
  size_t length;
  if (!read_strings(pid, "cmdline", &words, &length))
    return false;
  const char *second = words + strlen(words) + 1, *third = second + strlen("-c") + 1;
  return length > strlen(words) + 8 && strcmp(second, "-c") == 0 && strcmp(third, "--") == 0;
}

static pid_t first_process(pid_t tool, struct search *search) {
  struct process itself;
  search->own = look_at(tool, &itself) ? itself.namespaces : 0;
  walk(tool, 0, find_first, search);
  return search->found;
}

pid_t processes_first_inside(pid_t tool) {
  struct search search = {0};
  pid_t first = first_process(tool, &search);
  if (first && is_shell_between(first)) {
    struct search below = {.own = search.own};
    walk(first, 0, find_first, &below);
    first = below.found ? below.found : first;
  }
  return first;
}

static void signal_if_inside(const struct process *process, void *context) {
  const struct search *search = context;
  if (process->namespaces > search->own && process->inside > 1 && process->pid != search->spared)
    signal_process(process, search->signal);
}

void processes_signal_inside(pid_t tool, int signal) {
  struct search search = {.signal = signal};
  pid_t first = first_process(tool, &search);
  if (first && is_shell_between(first))
    search.spared = first;
  walk(tool, 0, signal_if_inside, &search);
}

struct orphans {
  const char *variable;
  bool found;
};

static bool has_variable(pid_t pid, const char *variable) {
  _cleanup_free_ char *text = NULL;
  size_t length;
  if (!read_strings(pid, "environ", &text, &length))
    return false;
  for (const char *at = text; at < text + length; at += strlen(at) + 1) {
    if (strcmp(at, variable) == 0)
      return true;
  }
  return false;
}

static void kill_orphan(const struct process *process, void *context) {
  struct orphans *orphans = context;
  if (!has_variable(process->pid, orphans->variable))
    return;
  processes_signal_below(process->pid, SIGKILL);
  signal_process(process, SIGKILL);
  (void)child_wait(process->pid);
  orphans->found = true;
}

void processes_kill_orphans(const char *session_id) {
  _cleanup_free_ char *variable = xasprintf("SANDBOX=%s", session_id);
  struct orphans orphans = {.variable = variable};
  /* Children of the killed come to us a moment later. */
  for (int round = 0, quiet = 0; quiet < 10 && round < 1000; round++) {
    orphans.found = false;
    walk(getpid(), DEPTH_LIMIT, kill_orphan, &orphans); /* our children only */
    quiet = orphans.found ? 0 : quiet + 1;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
}
