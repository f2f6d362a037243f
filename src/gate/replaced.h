/* Private to src/gate: files that were granted one by one and that the host may replace by rename.
 * A mount holds on to the old file, so the folder it lies in is watched, and those above that for
 * being moved or removed themselves. */
#pragma once

struct gate;

void replaced_watch(struct gate *gate, const char *path);
void replaced_read(struct gate *gate);
void replaced_clear(struct gate *gate);
