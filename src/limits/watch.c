/* Looking at a running session: samples, and what they say about its limits. */
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "limits/disk.h"
#include "limits/limits.h"
#include "limits/sample.h"

/* ---- finding the session's processes ---- */

static int open_below(pid_t pid, const char *name) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
  return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static bool same_device(int fd, const char *path) {
  struct stat first, second;
  return fstat(fd, &first) == 0 && stat(path, &second) == 0 && first.st_dev == second.st_dev;
}

static long type_of(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) < 0 ? 0 : (long)status.f_type;
}

/* The session's own /proc shows all its processes and only them: daemonised ones, those started
 * later by `exec`, and those in pid namespaces further in. */
bool limit_group_use_folders(struct limit_group *group, int *proc, int *files) {
  if (*proc < 0 || type_of(*proc) != PROC_SUPER_MAGIC || same_device(*proc, "/proc"))
    return false;
  group->proc = steal_fd(proc);
  if (*files >= 0 && type_of(*files) == TMPFS_MAGIC && !same_device(*files, "/tmp"))
    group->private_files = steal_fd(files);
  return true;
}

static bool use_proc_of(struct limit_group *group, pid_t pid) {
  _cleanup_close_ int proc = open_below(pid, "root/proc");
  _cleanup_close_ int files = open_below(pid, "root/tmp");
  return limit_group_use_folders(group, &proc, &files);
}

/* Where the session shares the container's /proc: the machine's, and whoever is in the same pid
 * namespace. */
static bool use_namespace_of(struct limit_group *group, pid_t pid) {
  char path[64];
  struct stat theirs, ours;
  snprintf(path, sizeof path, "/proc/%d/ns/pid", (int)pid);
  if (stat(path, &theirs) < 0 || stat("/proc/self/ns/pid", &ours) < 0 ||
      theirs.st_ino == ours.st_ino)
    return false; /* not started yet, or no namespace of its own to know it by */
  group->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  group->proc_is_host = true;
  group->pid_namespace = theirs.st_ino;
  return group->proc >= 0;
}

/* init itself is closed to us unless we are root: it is not dumpable, and its memory belongs to our
 * own user namespace since it never executed anything. The workload's belongs to the session's. */
static pid_t first_child(pid_t init) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)init, (int)init);
  _cleanup_free_ char *text = NULL;
  return file_read_at(AT_FDCWD, path, 1 << 16, &text, NULL) < 0 ? 0 : (pid_t)strtol(text, NULL, 10);
}

static void find_processes(struct limit_group *group) {
  pid_t child = first_child(group->init);
  if ((child > 0 && use_proc_of(group, child)) || use_proc_of(group, group->init))
    return;
  (void)((child > 0 && use_namespace_of(group, child)) || use_namespace_of(group, group->init));
}

void limit_group_watch(struct limit_group *group, pid_t init, const struct strv *folders) {
  group->init = init;
  bool limits_disk = group->set.value[LIMIT_DISK] || group->set.value[LIMIT_INODES];
  if (!folders || folders->count == 0 || !limits_disk)
    return;
  group->disk = disk_watch_new(folders, group->start_ns);
  if (group->set.value[LIMIT_INODES])
    group->enforcers[LIMIT_INODES] = ENFORCER_WATCH; /* and tmpfs, for the private part */
}

void limit_group_watch_disk(struct limit_group *group, uint64_t budget_ns) {
  if (group->disk)
    disk_watch_step(group->disk, budget_ns);
}

/* ---- sampling ---- */

static void note_peak(uint64_t now, uint64_t *seen, uint64_t *peak) {
  if (now == USAGE_UNKNOWN)
    return;
  if (now > *seen)
    *seen = now;
  if (*peak == USAGE_UNKNOWN)
    *peak = *seen; /* the kernel keeps no peak of this: the highest that we saw */
}

static uint64_t private_bytes(const struct limit_group *group) {
  struct statfs status;
  if (group->private_files < 0 || fstatfs(group->private_files, &status) < 0)
    return 0;
  return (status.f_blocks - status.f_bfree) * (uint64_t)status.f_bsize;
}

static void sample_by_hand(struct limit_group *group, struct usage *usage) {
  bool watches_memory = group->enforcers[LIMIT_MEMORY] == ENFORCER_WATCH;
  uint64_t limit = watches_memory ? group->set.value[LIMIT_MEMORY] : 0, unlinked;
  uint64_t private = private_bytes(group);
  /* At least 1: a limit of 0 would mean none. */
  uint64_t left = limit > private ? limit - private : limit ? 1 : 0;
  sample_processes(group, left, watches_memory || group->disk, usage, &unlinked);
  if (usage->memory_bytes != USAGE_UNKNOWN)
    usage->memory_bytes += private;
  if (group->disk) {
    disk_watch_growth(group->disk, &usage->disk_bytes, &usage->disk_files);
    if (usage->disk_bytes != USAGE_UNKNOWN)
      usage->disk_bytes += unlinked;
  }
}

/* All members are counts of the same type, so that they can be filled in one by one. */
enum { USAGE_FIELDS = sizeof(struct usage) / sizeof(uint64_t) };

static struct usage unknown(void) {
  struct usage usage;
  for (size_t i = 0; i < USAGE_FIELDS; i++)
    ((uint64_t *)&usage)[i] = USAGE_UNKNOWN;
  return usage;
}

static void fill_in(struct usage *usage, const struct usage *more) {
  for (size_t i = 0; i < USAGE_FIELDS; i++) {
    uint64_t *field = (uint64_t *)usage + i;
    if (*field == USAGE_UNKNOWN)
      *field = ((const uint64_t *)more)[i];
  }
}

/* Looking at each process is only worth it for what no group counts: on v1, a group for one limit
 * says nothing of the rest. */
static bool has_to_look(const struct limit_group *group, const struct usage *usage) {
  bool complete = usage->cpu_ns != USAGE_UNKNOWN && usage->memory_bytes != USAGE_UNKNOWN &&
                  usage->processes != USAGE_UNKNOWN;
  return (group->metrics && !complete) || limit_group_needs_watch(group);
}

void limit_group_sample(struct limit_group *group, struct usage *ret_usage) {
  struct usage usage = unknown();
  sample_cgroup(group, &usage);
  if (group->init > 0 && has_to_look(group, &usage)) {
    struct usage found = unknown();
    if (group->proc < 0)
      find_processes(group);
    sample_by_hand(group, &found);
    fill_in(&usage, &found);
  }
  note_peak(usage.memory_bytes, &group->memory_peak_seen, &usage.memory_peak_bytes);
  note_peak(usage.processes, &group->processes_peak_seen, &usage.processes_peak);
  *ret_usage = usage;
}

/* ---- judging ---- */

static bool is_over(uint64_t used, uint64_t limit) {
  return used != USAGE_UNKNOWN && limit && used > limit;
}

static bool happened(uint64_t count) {
  return count != USAGE_UNKNOWN && count > 0;
}

static enum limit_verdict check_memory(const struct limit_group *group, const struct usage *usage) {
  if (group->enforcers[LIMIT_MEMORY] == ENFORCER_WATCH)
    return is_over(usage->memory_bytes, group->set.value[LIMIT_MEMORY]) ? LIMIT_EXCEEDED
                                                                        : LIMIT_FINE;
  return happened(usage->memory_kills) ? LIMIT_REACHED : LIMIT_FINE;
}

static enum limit_verdict check_processes(const struct limit_group *group,
                                          const struct usage *usage) {
  uint64_t limit = group->set.value[LIMIT_PROCESSES] + group->own_processes;
  switch (group->enforcers[LIMIT_PROCESSES]) {
  case ENFORCER_WATCH:
    return is_over(usage->processes, limit) ? LIMIT_EXCEEDED : LIMIT_FINE;
  case ENFORCER_RLIMIT: /* the kernel tells nobody that it refused: being at the limit has to do */
    return is_over(usage->processes_peak, limit - 1) ? LIMIT_REACHED : LIMIT_FINE;
  default:
    return happened(usage->refused_forks) ? LIMIT_REACHED : LIMIT_FINE;
  }
}

static enum limit_verdict check_disk(const struct limit_group *group, const struct usage *usage) {
  return is_over(usage->disk_bytes, group->set.value[LIMIT_DISK]) ? LIMIT_EXCEEDED : LIMIT_FINE;
}

static enum limit_verdict check_inodes(const struct limit_group *group, const struct usage *usage) {
  return is_over(usage->disk_files, group->set.value[LIMIT_INODES]) ? LIMIT_EXCEEDED : LIMIT_FINE;
}

enum limit_verdict limit_group_check(const struct limit_group *group, const struct usage *usage,
                                     enum limit_kind *ret_kind) {
  static const struct {
    enum limit_kind kind;
    enum limit_verdict (*check)(const struct limit_group *, const struct usage *);
  } checks[] = {
      {LIMIT_MEMORY, check_memory},
      {LIMIT_DISK, check_disk},
      {LIMIT_INODES, check_inodes},
      {LIMIT_PROCESSES, check_processes},
  };
  enum limit_verdict worst = LIMIT_FINE;
  for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
    enum limit_kind kind = checks[i].kind;
    enum limit_verdict verdict =
        group->set.value[kind] ? checks[i].check(group, usage) : LIMIT_FINE;
    if (verdict > worst) {
      worst = verdict;
      *ret_kind = kind;
    }
  }
  return worst;
}
