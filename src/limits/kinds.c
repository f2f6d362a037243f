/* The table of limits: names, units, bounds; and the way from the policy's numbers to ours. Pure.
 */
#include <stddef.h>

#include "core/alloc.h"
#include "limits/limits.h"

#define MIB    (UINT64_C(1) << 20)
#define SECOND UINT64_C(1000000000)

/* Bounds are in the policy's unit. The lower ones are what a dynamically linked `true` needs. */
static const struct kind {
  const char *name, *title, *key, *unit;
  size_t offset;
  uint64_t factor, minimum, maximum;
  bool decimal;
} kinds[LIMIT_COUNT] = {
#define MEMBER(key_) .key = "limits." #key_, .offset = offsetof(struct limits, key_)
    [LIMIT_CPU] = {"cpu", "processor time", MEMBER(cpu_percent), .unit = "% of one core",
                   .factor = SECOND / 100, .minimum = 1, .maximum = 100 * 4096, .decimal = true},
    [LIMIT_MEMORY] = {"memory", "memory", MEMBER(memory_mb), .unit = "MiB", .factor = MIB,
                      .minimum = 4, .maximum = 1 << 30},
    [LIMIT_PROCESSES] = {"processes", "processes", MEMBER(max_processes), .unit = "processes",
                         .factor = 1, .minimum = 1, .maximum = 1 << 22},
    [LIMIT_DISK] = {"disk", "disk space", MEMBER(disk_mb), .unit = "MiB", .factor = MIB,
                    .minimum = 1, .maximum = 1 << 30},
    [LIMIT_INODES] = {"inodes", "files", MEMBER(inodes), .unit = "files", .factor = 1, .minimum = 1,
                      .maximum = 1 << 30},
    [LIMIT_IO] = {"io", "disk throughput", MEMBER(io_mb_per_s), .unit = "MiB per second",
                  .factor = MIB, .minimum = 1, .maximum = 1 << 30},
    [LIMIT_TIME] = {"time", "time", MEMBER(timeout_seconds), .unit = "seconds", .factor = SECOND,
                    .minimum = 1, .maximum = 366 * 24 * 3600},
    [LIMIT_OPEN_FILES] = {"open-files", "open files", MEMBER(open_files),
                          .unit = "open files per process", .factor = 1, .minimum = 8,
                          .maximum = 1 << 20},
    [LIMIT_FILE_SIZE] = {"file-size", "file size", MEMBER(file_size_mb), .unit = "MiB per file",
                         .factor = MIB, .minimum = 1, .maximum = 1 << 30},
#undef MEMBER
};

const char *limit_name(enum limit_kind kind) {
  return kind < LIMIT_COUNT ? kinds[kind].name : NULL;
}

const char *limit_title(enum limit_kind kind) {
  return kinds[kind].title;
}

const char *limit_policy_key(enum limit_kind kind) {
  return kinds[kind].key;
}

const char *limit_enforcer_text(enum limit_enforcer enforcer) {
  static const char *const names[ENFORCER_COUNT] = {
      [ENFORCER_NONE] = "none",     [ENFORCER_CGROUP_V2] = "cgroup v2",
      [ENFORCER_WATCH] = "watch",   [ENFORCER_CGROUP_V1] = "cgroup v1",
      [ENFORCER_RLIMIT] = "rlimit", [ENFORCER_TMPFS] = "tmpfs",
      [ENFORCER_TIMER] = "timer",   [ENFORCER_BACKEND] = "back end",
  };
  return names[enforcer];
}

char *limit_describe(const struct limit_set *set, enum limit_kind kind) {
  const struct kind *row = &kinds[kind];
  return xasprintf("%.12g %s", (double)set->value[kind] / (double)row->factor, row->unit);
}

static double asked_for(const struct limits *limits, const struct kind *row) {
  const char *member = (const char *)limits + row->offset;
  return row->decimal ? *(const double *)member : (double)*(const unsigned long long *)member;
}

static int refuse(const struct kind *row, double asked, struct sb_error *error) {
  sb_fail(error, SB_CODE_POLICY, 0, "%s: %g is no possible limit", row->key, asked);
  return sb_hint(error, "use a value from %llu to %llu (%s), or leave it out for no limit",
                 (unsigned long long)row->minimum, (unsigned long long)row->maximum, row->unit);
}

int limit_set_resolve(const struct limits *limits, struct limit_set *ret_set,
                      struct sb_error *error) {
  struct limit_set set = {0};
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    const struct kind *row = &kinds[i];
    double asked = asked_for(limits, row);
    if (asked == 0)
      continue;
    /* Written so that a NaN is refused. */
    if (!(asked >= (double)row->minimum && asked <= (double)row->maximum))
      return refuse(row, asked, error);
    set.value[i] = (uint64_t)(asked * (double)row->factor);
  }
  *ret_set = set;
  return 0;
}

bool limit_set_is_empty(const struct limit_set *set) {
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    if (set->value[i])
      return false;
  }
  return true;
}
