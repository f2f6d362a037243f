/* How much the writable folders have grown since the start, found by walking them in small steps.
 * Inside src/limits only.
 *
 * Why not free space: others write to the same file system. Why not quotas: they need root and a
 * file system that has them. A pass that is cut into steps costs a fixed share of one core; while
 * free space falls fast, the steps are longer. */
#pragma once

#include <stdint.h>

#include "core/strv.h"

struct disk_watch;

/* Files born from `start_ns` (CLOCK_REALTIME_COARSE) on are growth even if the first pass finds
 * them. */
struct disk_watch *disk_watch_new(const struct strv *folders, uint64_t start_ns);
void disk_watch_free(struct disk_watch *watch);

/* Walks on for about that long. */
void disk_watch_step(struct disk_watch *watch, uint64_t budget_ns);

/* By the last complete pass; USAGE_UNKNOWN before the first. */
void disk_watch_growth(const struct disk_watch *watch, uint64_t *ret_bytes, uint64_t *ret_files);
