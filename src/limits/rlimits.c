/* Limits that a process sets for itself and cannot raise again: the hard limit is lowered too, and
 * only CAP_SYS_RESOURCE in the host's user namespace could lift it. */
#include "limits/rlimits.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/utsname.h>
#include <unistd.h>

/* Since Linux 5.14 the count is kept for each user namespace; before, all processes of the user on
 * the whole machine counted, so that a small limit would stop the session from starting at all.
 * The kernel never applies it to the machine's own root. */
bool rlimit_processes_works(void) {
  struct utsname name;
  int major = 0, minor = 0;
  if (getuid() == 0 || uname(&name) < 0 || sscanf(name.release, "%d.%d", &major, &minor) != 2)
    return false;
  return major > 5 || (major == 5 && minor >= 14);
}

static void add(struct limit_rlimits *rlimits, int resource, uint64_t value) {
  rlimits->items[rlimits->count].resource = resource;
  rlimits->items[rlimits->count].value = value;
  rlimits->count++;
}

static uint64_t smaller_limit(uint64_t first, uint64_t second) {
  if (!first || !second)
    return first ? first : second;
  return first < second ? first : second;
}

struct limit_rlimits rlimits_for(const struct limit_group *group) {
  const uint64_t *value = group->set.value;
  struct limit_rlimits rlimits = {0};
  if (value[LIMIT_OPEN_FILES])
    add(&rlimits, RLIMIT_NOFILE, value[LIMIT_OPEN_FILES]);
  /* One file alone must not fill the disk between two looks of the watch. */
  uint64_t file_size = smaller_limit(value[LIMIT_FILE_SIZE], value[LIMIT_DISK]);
  if (file_size)
    add(&rlimits, RLIMIT_FSIZE, file_size);
  if (group->enforcers[LIMIT_PROCESSES] == ENFORCER_RLIMIT)
    add(&rlimits, RLIMIT_NPROC,
        value[LIMIT_PROCESSES] + group->own_processes + group->outer_processes);
  /* Neither RLIMIT_AS nor RLIMIT_DATA backs the watch up: both count what is reserved, used or not,
   * of which runtimes and sanitizers take terabytes. They would break honest programs, and a bomb
   * of many processes passes below them. Should a bomb outrun the watch, the kernel at least knows
   * whom to take first. */
  rlimits.first_to_die = group->enforcers[LIMIT_MEMORY] == ENFORCER_WATCH;
  return rlimits;
}

enum { FIRST_TO_DIE = 500 }; /* as if it used half of the machine's memory on top */

/* Advice to the kernel: if it cannot be given, the watch still holds the limit. */
static void raise_oom_score(void) {
  char text[16] = "";
  int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
  if (fd < 0)
    return;
  if (read(fd, text, sizeof text - 1) > 0 && atoi(text) < FIRST_TO_DIE) {
    ssize_t ignored = pwrite(fd, "500", 3, 0);
    (void)ignored;
  }
  close(fd);
}

int limit_rlimits_apply(const struct limit_rlimits *rlimits) {
  if (rlimits->first_to_die)
    raise_oom_score();
  for (size_t i = 0; i < rlimits->count; i++) {
    struct rlimit limit;
    int resource = rlimits->items[i].resource;
    if (getrlimit((__rlimit_resource_t)resource, &limit) < 0)
      return -errno;
    if (limit.rlim_max > rlimits->items[i].value)
      limit.rlim_max = rlimits->items[i].value;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit((__rlimit_resource_t)resource, &limit) < 0)
      return -errno;
  }
  return 0;
}

bool limit_group_explains_signal(const struct limit_group *group, int signal,
                                 enum limit_kind *ret_kind) {
  const uint64_t *value = group->set.value;
  if (signal != SIGXFSZ || (!value[LIMIT_FILE_SIZE] && !value[LIMIT_DISK]))
    return false;
  bool is_disk = smaller_limit(value[LIMIT_FILE_SIZE], value[LIMIT_DISK]) != value[LIMIT_FILE_SIZE];
  *ret_kind = is_disk ? LIMIT_DISK : LIMIT_FILE_SIZE;
  return true;
}
