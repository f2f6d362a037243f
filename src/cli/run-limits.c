/* The limit flags of `sandbox run`: each becomes the policy key it stands for. */
#include <stdlib.h>
#include <string.h>

#include "cli/run-options.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/escape.h"

#define MEGABYTE (1024ull * 1024)

/* The policy counts in megabytes; what is asked for is rounded up to the next. */
static int set_megabytes(const char *option, const char *value, unsigned long long *ret_megabytes,
                         struct sb_error *error) {
  uint64_t bytes;
  if (value_size(option, value, &bytes, error) < 0)
    return -1;
  *ret_megabytes = (bytes + MEGABYTE - 1) / MEGABYTE;
  return 0;
}

static int set_count(const char *option, const char *value, unsigned long long *ret_count,
                     struct sb_error *error) {
  uint64_t count;
  if (value_count(option, value, &count, error) < 0)
    return -1;
  *ret_count = count;
  return 0;
}

static int set_seconds(const char *option, const char *value, unsigned long long *ret_seconds,
                       struct sb_error *error) {
  uint64_t milliseconds;
  if (value_duration(option, value, &milliseconds, error) < 0)
    return -1;
  *ret_seconds = (milliseconds + 999) / 1000;
  return 0;
}

static int set_cpus(const char *option, const char *value, double *ret_percent,
                    struct sb_error *error) {
  char *end;
  double cpus = strtod(value, &end);
  if (end == value || *end || !(cpus >= 0.01 && cpus <= 4096)) {
    _cleanup_free_ char *shown = escape_string(value);
    sb_fail(error, SB_CODE_USAGE, 0, "%s '%s' is not a number of processors", option, shown);
    return sb_hint(error, "write %s 0.5 for half a processor, %s 2 for two", option, option);
  }
  *ret_percent = cpus * 100;
  return 0;
}

static const struct {
  int id;
  const char *option, *key;
} limit_flags[] = {
    {RUN_MEMORY, "--memory", "limits.memory_mb"},
    {RUN_CPUS, "--cpus", "limits.cpu_percent"},
    {RUN_PIDS, "--pids", "limits.max_processes"},
    {RUN_TIMEOUT, "--timeout", "limits.timeout_seconds"},
    {RUN_DISK, "--disk", "limits.disk_mb"},
    {RUN_INODES, "--inodes", "limits.inodes"},
    {RUN_IO, "--io", "limits.io_mb_per_s"},
    {RUN_OPEN_FILES, "--open-files", "limits.open_files"},
    {RUN_FILE_SIZE, "--file-size", "limits.file_size_mb"},
};

static int set_limit(struct limits *limits, int id, const char *option, const char *value,
                     struct sb_error *error) {
  switch (id) {
  case RUN_MEMORY:
    return set_megabytes(option, value, &limits->memory_mb, error);
  case RUN_CPUS:
    return set_cpus(option, value, &limits->cpu_percent, error);
  case RUN_PIDS:
    return set_count(option, value, &limits->max_processes, error);
  case RUN_TIMEOUT:
    return set_seconds(option, value, &limits->timeout_seconds, error);
  case RUN_DISK:
    return set_megabytes(option, value, &limits->disk_mb, error);
  case RUN_INODES:
    return set_count(option, value, &limits->inodes, error);
  case RUN_IO:
    return set_megabytes(option, value, &limits->io_mb_per_s, error);
  case RUN_OPEN_FILES:
    return set_count(option, value, &limits->open_files, error);
  default:
    return set_megabytes(option, value, &limits->file_size_mb, error);
  }
}

int run_apply_limit_flag(struct policy *policy, const struct given_option *given,
                         struct sb_error *error) {
  for (size_t i = 0; i < ARRAY_SIZE(limit_flags); i++) {
    if (limit_flags[i].id != given->spec->id)
      continue;
    policy_set_key_origin(policy, limit_flags[i].key, STORE_FLAGS, NULL, 0);
    return set_limit(&policy->limits, given->spec->id, limit_flags[i].option, given->value, error);
  }
  return 0;
}
