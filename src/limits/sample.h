/* Reading what a session uses. Inside src/limits only. */
#pragma once

#include "limits/limits.h"

/* From the group's files: sets what it finds, leaves the rest. */
void sample_cgroup(const struct limit_group *group, struct usage *usage);

/* From the session's processes. `memory_limit` (0: none) decides whether the exact, costly count
 * of shared pages is worth making. Memory is in memory_bytes, and disk space that no name leads to
 * any more (unlinked, still open) in *ret_unlinked_bytes. */
void sample_processes(const struct limit_group *group, uint64_t memory_limit, bool descriptors,
                      struct usage *usage, uint64_t *ret_unlinked_bytes);

/* Pure parts, for tests. */

/* The number after `key` in lines of "key number" or "key=number" words; false if there is none. */
bool sample_find(const char *text, const char *key, uint64_t *ret_value);

/* The sum over all devices in v1's "8:0 Read 123" lines or v2's "8:0 rbytes=123 …" lines. */
uint64_t sample_io(const char *text, const char *key);

/* Processor time in clock ticks from /proc/PID/stat, waited-for children included. A
 * name with spaces and brackets cannot confuse it. */
bool sample_parse_stat(const char *text, uint64_t *ret_ticks);
