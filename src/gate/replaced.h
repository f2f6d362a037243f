/* Private to src/gate: files and folders that were granted and that the host may replace, or move
 * away. A mount holds on to the old object, whatever it is called by now, and nobody looks after
 * what has to stay covered in it there. So the folder it lies in is watched, and those above that
 * for being moved or removed themselves. */
#pragma once

struct gate;

void replaced_watch(struct gate *gate, const char *path);
void replaced_read(struct gate *gate);
void replaced_clear(struct gate *gate);
