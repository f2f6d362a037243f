/* A process's number outside from the one inside: the kernel tells us who asks by the number it has
 * in the session's pid namespace. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "gate/waiting.h"

/* Linux 6.11; younger than the headers of most distributions. */
#ifndef NS_GET_PID_FROM_PIDNS
#define NS_GET_PID_FROM_PIDNS _IOR(0xb7, 0x6, int)
#endif
#ifndef NS_GET_TGID_FROM_PIDNS
#define NS_GET_TGID_FROM_PIDNS _IOR(0xb7, 0x7, int)
#endif

/* "NSpid:\t4711\t12": the last number is the innermost. */
static bool has_inner_pid(const char *status, pid_t inside) {
  const char *line = strstr(status, "\nNSpid:");
  if (!line)
    return false;
  const char *end = strchrnul(line + 1, '\n'), *at = end;
  while (at > line && at[-1] != '\t')
    at--;
  return atoi(at) == inside && memchr(line, '\t', (size_t)(at - 1 - line));
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

static pid_t translate(const struct gate *gate, unsigned long request, pid_t inside) {
  int outer = ioctl(gate->config.pid_ns, request, inside);
  struct stat wanted;
  if (outer > 0)
    return outer;
  return inside > 0 && fstat(gate->config.pid_ns, &wanted) == 0 ? search(inside, &wanted) : 0;
}

pid_t gate_outer_pid(const struct gate *gate, pid_t inside) {
  return translate(gate, NS_GET_TGID_FROM_PIDNS, inside);
}

pid_t gate_outer_thread(const struct gate *gate, pid_t inside) {
  return translate(gate, NS_GET_PID_FROM_PIDNS, inside);
}
