/* Usage for programs: JSON and the Prometheus text format, from one table. Pure. */
#include <inttypes.h>
#include <string.h>

#include "core/cleanup.h"
#include "limits/limits.h"

static const struct field {
  size_t offset;
  const char *json, *metric, *help;
  bool counter;
  uint64_t divisor; /* from our unit to the metric's */
} fields[] = {
#define FIELD(member) offsetof(struct usage, member), #member
    {FIELD(cpu_ns), "cpu_seconds_total", "processor time used", true, 1000000000},
    {FIELD(throttled_ns), "cpu_throttled_seconds_total", "time held back by the processor limit",
     true, 1000000000},
    {FIELD(memory_bytes), "memory_bytes", "memory in use, tmpfs included", false, 1},
    {FIELD(memory_peak_bytes), "memory_peak_bytes", "most memory ever in use", false, 1},
    {FIELD(processes), "processes", "processes and threads", false, 1},
    {FIELD(processes_peak), "processes_peak", "most processes and threads ever", false, 1},
    {FIELD(io_read_bytes), "io_read_bytes_total", "read from disks", true, 1},
    {FIELD(io_write_bytes), "io_write_bytes_total", "written to disks", true, 1},
    {FIELD(disk_bytes), "disk_growth_bytes", "growth of the writable folders", false, 1},
    {FIELD(disk_files), "disk_growth_files", "files more than at the start", false, 1},
    {FIELD(memory_kills), "memory_kills_total", "processes killed at the memory limit", true, 1},
    {FIELD(refused_forks), "refused_forks_total", "processes refused at the process limit", true,
     1},
#undef FIELD
};

static uint64_t value_of(const struct usage *usage, const struct field *field) {
  uint64_t value;
  memcpy(&value, (const char *)usage + field->offset, sizeof value);
  return value;
}

json_t *usage_to_json(const struct usage *usage) {
  json_t *object = json_object();
  for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
    uint64_t value = value_of(usage, &fields[i]);
    json_object_set_new(object, fields[i].json,
                        value == USAGE_UNKNOWN ? json_null() : json_integer((json_int_t)value));
  }
  return object;
}

/* A label value may hold anything but a bare backslash, quote or newline. */
static void append_label(struct text *text, const char *value) {
  for (; *value; value++) {
    if (*value == '\\' || *value == '"')
      text_append_char(text, '\\');
    if (*value == '\n')
      text_append(text, "\\n");
    else
      text_append_char(text, *value);
  }
}

static void append_sample(struct text *text, const struct field *field,
                          const struct usage_sample *sample) {
  uint64_t value = value_of(&sample->usage, field);
  if (value == USAGE_UNKNOWN)
    return;
  text_appendf(text, "sandbox_%s{session=\"", field->metric);
  append_label(text, sample->session_id);
  if (field->divisor == 1)
    text_appendf(text, "\"} %" PRIu64 "\n", value);
  else
    text_appendf(text, "\"} %" PRIu64 ".%09" PRIu64 "\n", value / field->divisor,
                 value % field->divisor);
}

void usage_to_prometheus(const struct usage_sample *samples, size_t count, struct text *text) {
  for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
    text_appendf(text, "# HELP sandbox_%s %s\n# TYPE sandbox_%s %s\n", fields[i].metric,
                 fields[i].help, fields[i].metric, fields[i].counter ? "counter" : "gauge");
    for (size_t j = 0; j < count; j++)
      append_sample(text, &fields[i], &samples[j]);
  }
}

static uint64_t nanoseconds(const struct timeval *time) {
  return (uint64_t)time->tv_sec * 1000000000 + (uint64_t)time->tv_usec * 1000;
}

void usage_add_rusage(struct usage *usage, const struct rusage *rusage) {
  uint64_t cpu = nanoseconds(&rusage->ru_utime) + nanoseconds(&rusage->ru_stime);
  if (usage->cpu_ns == USAGE_UNKNOWN || usage->cpu_ns < cpu)
    usage->cpu_ns = cpu;
  /* The largest single process: a lower bound, if nothing better is known. */
  uint64_t resident = (uint64_t)rusage->ru_maxrss * 1024;
  if (usage->memory_peak_bytes == USAGE_UNKNOWN)
    usage->memory_peak_bytes = resident;
}
