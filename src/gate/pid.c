/* A process's number outside from the one inside: the kernel tells us who asks by the number it has
 * in the session's pid namespace. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/pid-numbers.h"
#include "core/status.h"
#include "gate/target.h"
#include "gate/waiting.h"

static bool has_inner_pid(const char *status, pid_t inside) {
  size_t count;
  return status_innermost(status, "NSpid:", &count) == inside && count > 1;
}

static bool is_in_namespace(pid_t pid, const struct stat *wanted) {
  char name[64];
  struct stat status;
  snprintf(name, sizeof name, "/proc/%d/ns/pid", pid);
  return stat(name, &status) == 0 && status.st_ino == wanted->st_ino &&
         status.st_dev == wanted->st_dev;
}

static pid_t search(pid_t inside, const struct stat *wanted) {
  DIR *proc = opendir("/proc");
  pid_t found = 0;
  for (struct dirent *entry; proc && !found && (entry = readdir(proc));) {
    char name[NAME_MAX + 32];
    _cleanup_free_ char *status = NULL;
    pid_t pid = atoi(entry->d_name);
    snprintf(name, sizeof name, "/proc/%s/status", entry->d_name);
    if (pid > 0 && file_read_at(AT_FDCWD, name, 64 << 10, &status, NULL) == 0 &&
        has_inner_pid(status, inside) && is_in_namespace(pid, wanted))
      found = pid;
  }
  if (proc)
    closedir(proc);
  return found;
}

/* Before Linux 6.11. The last one found is kept: nearly always the same process asks again. While
 * it lives, its number is nobody else's. */
static pid_t search_once(struct gate *gate, pid_t inside) {
  struct pollfd end = {.fd = gate->last_asked.pidfd, .events = POLLIN};
  struct stat wanted;
  if (gate->last_asked.outer > 0 && gate->last_asked.inside == inside && poll(&end, 1, 0) == 0)
    return gate->last_asked.outer;
  pid_t outer =
      inside > 0 && fstat(gate->config.pid_ns, &wanted) == 0 ? search(inside, &wanted) : 0;
  gate_forget_asked(gate);
  int pidfd = outer > 0 ? pidfd_open(outer, 0) : -1;
  if (pidfd >= 0) {
    gate->last_asked.inside = inside;
    gate->last_asked.outer = outer;
    gate->last_asked.pidfd = pidfd;
  }
  return outer;
}

void gate_forget_asked(struct gate *gate) {
  if (gate->last_asked.outer > 0)
    close(gate->last_asked.pidfd);
  gate->last_asked.outer = 0;
}

bool gate_knows_numbers(const struct gate *gate) {
  return pid_numbers_process(gate->config.pid_ns, 1) > 0;
}

/* Of those outside only the connector looks names up for somebody. */
static pid_t connecting_process(const struct gate *gate) {
  const struct target target = {.thread = *gate->config.connecting};
  return target.thread > 0 ? target_process(&target) : 0;
}

pid_t gate_outer_pid(struct gate *gate, pid_t inside) {
  if (inside == 0)
    return connecting_process(gate);
  pid_t outer = pid_numbers_process(gate->config.pid_ns, inside);
  return outer > 0 ? outer : search_once(gate, inside);
}

pid_t gate_outer_thread(struct gate *gate, pid_t inside) {
  pid_t outer = pid_numbers_thread(gate->config.pid_ns, inside);
  return outer > 0 ? outer : search_once(gate, inside);
}
