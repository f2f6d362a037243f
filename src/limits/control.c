/* The files of both cgroup versions that hold a limit, in one table, and how each wants its value
 * written. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "limits/cgroup.h"

enum form {
  FORM_VALUE,
  FORM_ZERO,
  FORM_PROCESSES, /* ours are on top */
  FORM_QUOTA_V1,  /* microseconds per period */
  FORM_QUOTA_V2,  /* "quota period" */
  FORM_DEVICE_V1, /* one write per disk */
  FORM_DEVICE_V2,
};

/* What a row means for the limit if it cannot be written. */
enum need {
  NEED_ALWAYS,   /* then the limit does not hold */
  NEED_IF_THERE, /* fine if the kernel has no such file */
  NEED_INSTEAD,  /* only written if the row above has no file */
};

/* Swap: a memory limit that lets the rest go to swap is none. v2 forbids it, v1 counts it in.
 * Without v1's accounting (swapaccount=0) the kernel is at least told not to swap the group.
 * No memory.high: without swap there is nothing to reclaim but page cache, which the kernel does
 * at memory.max as well; `high` would only let a bomb stall for minutes instead of ending. */
static const struct control {
  enum cgroup_version version;
  enum limit_kind kind;
  enum cgroup_controller controller;
  const char *file;
  enum form form;
  enum need need;
} controls[] = {
#define V1 CGROUP_VERSION_1
#define V2 CGROUP_VERSION_2
    {V2, LIMIT_MEMORY, CONTROLLER_MEMORY, "memory.max", FORM_VALUE, NEED_ALWAYS},
    {V2, LIMIT_MEMORY, CONTROLLER_MEMORY, "memory.swap.max", FORM_ZERO, NEED_IF_THERE},
    {V2, LIMIT_PROCESSES, CONTROLLER_PIDS, "pids.max", FORM_PROCESSES, NEED_ALWAYS},
    {V2, LIMIT_CPU, CONTROLLER_CPU, "cpu.max", FORM_QUOTA_V2, NEED_ALWAYS},
    {V2, LIMIT_IO, CONTROLLER_IO, "io.max", FORM_DEVICE_V2, NEED_ALWAYS},

    {V1, LIMIT_MEMORY, CONTROLLER_MEMORY, "memory.limit_in_bytes", FORM_VALUE, NEED_ALWAYS},
    {V1, LIMIT_MEMORY, CONTROLLER_MEMORY, "memory.memsw.limit_in_bytes", FORM_VALUE, NEED_IF_THERE},
    {V1, LIMIT_MEMORY, CONTROLLER_MEMORY, "memory.swappiness", FORM_ZERO, NEED_INSTEAD},
    {V1, LIMIT_PROCESSES, CONTROLLER_PIDS, "pids.max", FORM_PROCESSES, NEED_ALWAYS},
    {V1, LIMIT_CPU, CONTROLLER_CPU, "cpu.cfs_quota_us", FORM_QUOTA_V1, NEED_ALWAYS},
    {V1, LIMIT_IO, CONTROLLER_IO, "blkio.throttle.read_bps_device", FORM_DEVICE_V1, NEED_ALWAYS},
    {V1, LIMIT_IO, CONTROLLER_IO, "blkio.throttle.write_bps_device", FORM_DEVICE_V1, NEED_ALWAYS},
#undef V1
#undef V2
};

/* 100 ms, the kernel's default: short enough not to be felt, long enough to be cheap. */
enum { PERIOD_US = 100000 };

unsigned cgroup_controllers_needed(enum cgroup_version version, const struct limit_set *set,
                                   bool metrics) {
  unsigned mask = 0;
  for (size_t i = 0; i < ARRAY_SIZE(controls); i++) {
    if (controls[i].version == version && (metrics || set->value[controls[i].kind]))
      mask |= 1u << controls[i].controller;
  }
  if (metrics && version == CGROUP_VERSION_1)
    mask |= 1u << CONTROLLER_CPUACCT;
  return mask;
}

int cgroup_write(int folder, const char *file, const char *text) {
  _cleanup_close_ int fd = openat(folder, file, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* ---- disks ---- */

/* Only whole disks can be throttled. RAM disks are memory, loop devices are files on a disk. */
static bool is_disk(const char *name) {
  static const char *const others[] = {"ram", "loop", "zram", "sr", "fd"};
  for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
    if (strncmp(name, others[i], strlen(others[i])) == 0)
      return false;
  }
  return name[0] != '.';
}

static int throttle_disk(int folder, const struct control *control, const char *name,
                         uint64_t value) {
  char path[300], text[128];
  snprintf(path, sizeof path, "/sys/block/%s/dev", name);
  _cleanup_free_ char *device = NULL;
  /* A page: that is the size that sysfs claims for each of its files. */
  int result = file_read_at(AT_FDCWD, path, 4096, &device, NULL);
  if (result < 0)
    return result == -ENOENT || result == -ENODEV ? 0 : result; /* 0: unplugged meanwhile */
  device[strcspn(device, "\n")] = '\0';
  snprintf(text, sizeof text,
           control->form == FORM_DEVICE_V2 ? "%s rbps=%" PRIu64 " wbps=%" PRIu64 : "%s %" PRIu64,
           device, value, value);
  return cgroup_write(folder, control->file, text);
}

static int throttle_disks(int folder, const struct control *control, uint64_t value) {
  DIR *disks = opendir("/sys/block");
  if (!disks)
    return -errno;
  int result = 0;
  for (struct dirent *entry; result == 0 && (entry = readdir(disks));) {
    if (is_disk(entry->d_name))
      result = throttle_disk(folder, control, entry->d_name, value);
  }
  closedir(disks);
  return result;
}

/* ---- applying ---- */

static int write_control(const struct limit_group *group, int folder,
                         const struct control *control) {
  uint64_t value = group->set.value[control->kind];
  uint64_t quota = value / (1000000000 / PERIOD_US);
  char text[64] = "0";
  switch (control->form) {
  case FORM_ZERO:
    break;
  case FORM_VALUE:
    snprintf(text, sizeof text, "%" PRIu64, value);
    break;
  case FORM_PROCESSES:
    snprintf(text, sizeof text, "%" PRIu64, value + group->own_processes);
    break;
  case FORM_QUOTA_V1:
    snprintf(text, sizeof text, "%" PRIu64, quota);
    break;
  case FORM_QUOTA_V2:
    snprintf(text, sizeof text, "%" PRIu64 " %d", quota, PERIOD_US);
    break;
  case FORM_DEVICE_V1:
  case FORM_DEVICE_V2:
    return throttle_disks(folder, control, value);
  }
  return cgroup_write(folder, control->file, text);
}

static int folder_of(const struct limit_group *group, enum cgroup_controller controller) {
  for (size_t i = 0; i < group->hierarchy_count; i++) {
    if (group->hierarchies[i].controllers & 1u << controller)
      return group->hierarchies[i].folder;
  }
  return -1;
}

unsigned cgroup_apply(struct limit_group *group) {
  enum cgroup_version version = group->unified ? CGROUP_VERSION_2 : CGROUP_VERSION_1;
  unsigned held = 0, failed = 0;
  bool above_missing = false;
  for (size_t i = 0; i < ARRAY_SIZE(controls); i++) {
    const struct control *control = &controls[i];
    int folder = folder_of(group, control->controller);
    if (control->version != version || !group->set.value[control->kind] || folder < 0)
      continue;
    if (control->need == NEED_INSTEAD && !above_missing)
      continue;
    int result = write_control(group, folder, control);
    above_missing = control->need == NEED_IF_THERE && result == -ENOENT;
    held |= 1u << control->kind;
    if (result < 0 && (control->need == NEED_ALWAYS || result != -ENOENT))
      failed |= 1u << control->kind;
  }
  return held & ~failed;
}
