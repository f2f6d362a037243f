/* The tree of processes below a tool; see processes.h. What it reads is a moment's truth: pids are
 * of our own descendants, which nobody but us reaps, or are signalled as a group on the way out. */
#include "backend/processes.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/status.h"

enum { DEPTH_LIMIT = 64, LISTING_LIMIT = 1 << 20 };

typedef void process_visit(pid_t pid, int inside, size_t namespaces, void *context);

static int pid_inside(pid_t pid, size_t *ret_namespaces) {
  char path[64];
  _cleanup_free_ char *text = NULL;
  snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
  *ret_namespaces = 0;
  if (file_read_at(AT_FDCWD, path, 1 << 16, &text, NULL) < 0)
    return -1;
  int inside = status_innermost(text, "NSpid:", ret_namespaces);
  return *ret_namespaces > 0 ? inside : -1;
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
    size_t namespaces;
    int inside = pid_inside(pid, &namespaces);
    walk(pid, depth + 1, visit, context);
    visit(pid, inside, namespaces, context);
  }
}

static void signal_one(pid_t pid, int inside, size_t namespaces, void *context) {
  (void)inside;
  (void)namespaces;
  kill(pid, *(int *)context);
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

static void find_first(pid_t pid, int inside, size_t namespaces, void *context) {
  struct search *search = context;
  if (namespaces <= search->own || inside <= 1)
    return;
  if (!search->found || inside < search->found_inside) {
    search->found = pid;
    search->found_inside = inside;
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
  pid_inside(tool, &search->own);
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

static void signal_if_inside(pid_t pid, int inside, size_t namespaces, void *context) {
  const struct search *search = context;
  if (namespaces > search->own && inside > 1 && pid != search->spared)
    kill(pid, search->signal);
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

static void kill_orphan(pid_t pid, int inside, size_t namespaces, void *context) {
  struct orphans *orphans = context;
  (void)inside;
  (void)namespaces;
  if (!has_variable(pid, orphans->variable))
    return;
  processes_signal_below(pid, SIGKILL);
  kill(pid, SIGKILL);
  (void)child_wait(pid);
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
