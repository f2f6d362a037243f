/* Usage as the session's cgroups count it: one table of files for both versions. */
#include "limits/sample.h"

#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "limits/place.h"

enum form { FORM_NUMBER, FORM_KEY, FORM_IO };

static const struct reading {
  enum cgroup_version version;
  enum cgroup_controller controller;
  const char *file, *key;
  enum form form;
  uint64_t factor;
  size_t offset;
} readings[] = {
#define V1         CGROUP_VERSION_1
#define V2         CGROUP_VERSION_2
#define FIELD(key) offsetof(struct usage, key)
    {V2, CONTROLLER_COUNT, "cpu.stat", "usage_usec", FORM_KEY, 1000, FIELD(cpu_ns)},
    {V2, CONTROLLER_CPU, "cpu.stat", "throttled_usec", FORM_KEY, 1000, FIELD(throttled_ns)},
    {V2, CONTROLLER_MEMORY, "memory.current", NULL, FORM_NUMBER, 1, FIELD(memory_bytes)},
    {V2, CONTROLLER_MEMORY, "memory.peak", NULL, FORM_NUMBER, 1, FIELD(memory_peak_bytes)},
    {V2, CONTROLLER_MEMORY, "memory.events", "oom_kill", FORM_KEY, 1, FIELD(memory_kills)},
    {V2, CONTROLLER_PIDS, "pids.current", NULL, FORM_NUMBER, 1, FIELD(processes)},
    {V2, CONTROLLER_PIDS, "pids.peak", NULL, FORM_NUMBER, 1, FIELD(processes_peak)},
    {V2, CONTROLLER_PIDS, "pids.events", "max", FORM_KEY, 1, FIELD(refused_forks)},
    {V2, CONTROLLER_IO, "io.stat", "rbytes", FORM_IO, 1, FIELD(io_read_bytes)},
    {V2, CONTROLLER_IO, "io.stat", "wbytes", FORM_IO, 1, FIELD(io_write_bytes)},

    {V1, CONTROLLER_CPUACCT, "cpuacct.usage", NULL, FORM_NUMBER, 1, FIELD(cpu_ns)},
    {V1, CONTROLLER_CPU, "cpu.stat", "throttled_time", FORM_KEY, 1, FIELD(throttled_ns)},
    {V1, CONTROLLER_MEMORY, "memory.usage_in_bytes", NULL, FORM_NUMBER, 1, FIELD(memory_bytes)},
    {V1, CONTROLLER_MEMORY, "memory.max_usage_in_bytes", NULL, FORM_NUMBER, 1,
     FIELD(memory_peak_bytes)},
    /* memory.failcnt stays 0 after a kill. */
    {V1, CONTROLLER_MEMORY, "memory.oom_control", "oom_kill", FORM_KEY, 1, FIELD(memory_kills)},
    {V1, CONTROLLER_PIDS, "pids.current", NULL, FORM_NUMBER, 1, FIELD(processes)},
    {V1, CONTROLLER_PIDS, "pids.events", "max", FORM_KEY, 1, FIELD(refused_forks)},
    {V1, CONTROLLER_IO, "blkio.throttle.io_service_bytes_recursive", "Read", FORM_IO, 1,
     FIELD(io_read_bytes)},
    {V1, CONTROLLER_IO, "blkio.throttle.io_service_bytes_recursive", "Write", FORM_IO, 1,
     FIELD(io_write_bytes)},
#undef V1
#undef V2
#undef FIELD
};

static bool is_separator(char character) {
  return character == ' ' || character == '\n' || character == '=' || character == '\t' ||
         character == ':';
}

/* The next "key<separator>number" at or after *text; moves *text behind it. */
static bool next_number(const char **text, const char *key, uint64_t *ret_value) {
  size_t length = strlen(key);
  for (const char *at = *text; (at = strstr(at, key)); at += length) {
    bool starts = at == *text || is_separator(at[-1]);
    if (!starts || !is_separator(at[length]))
      continue;
    const char *digits = at + length + 1 + strspn(at + length + 1, " \t");
    if (*digits < '0' || *digits > '9')
      continue;
    char *end;
    *ret_value = strtoull(digits, &end, 10);
    *text = end;
    return true;
  }
  return false;
}

bool sample_find(const char *text, const char *key, uint64_t *ret_value) {
  return next_number(&text, key, ret_value);
}

uint64_t sample_io(const char *text, const char *key) {
  uint64_t sum = 0, value;
  while (next_number(&text, key, &value))
    sum += value;
  return sum;
}

static bool interpret(const struct reading *reading, const char *text, uint64_t *ret_value) {
  switch (reading->form) {
  case FORM_NUMBER:
    *ret_value = strtoull(text, NULL, 10);
    return *text >= '0' && *text <= '9';
  case FORM_KEY:
    return sample_find(text, reading->key, ret_value);
  case FORM_IO:
    *ret_value = sample_io(text, reading->key);
    return true;
  }
  return false;
}

static void read_into(const struct reading *reading, int folder, struct usage *usage) {
  _cleanup_free_ char *text = NULL;
  uint64_t value;
  if (file_read_at(folder, reading->file, 65536, &text, NULL) == 0 &&
      interpret(reading, text, &value))
    *(uint64_t *)((char *)usage + reading->offset) = value * reading->factor;
}

void sample_cgroup(const struct limit_group *group, struct usage *usage) {
  enum cgroup_version version = group->unified ? CGROUP_VERSION_2 : CGROUP_VERSION_1;
  for (size_t i = 0; i < ARRAY_SIZE(readings); i++) {
    for (size_t j = 0; j < group->hierarchy_count; j++) {
      const struct limit_hierarchy *hierarchy = &group->hierarchies[j];
      bool there = readings[i].controller == CONTROLLER_COUNT ||
                   hierarchy->controllers & 1u << readings[i].controller;
      if (readings[i].version == version && there)
        read_into(&readings[i], hierarchy->folder, usage);
    }
  }
}
