/* Processes of our own beside the one that starts them: broker, keeper, connector, a driver's
 * minder, publisher. Each has a line to its parent; either learns of the other's death by end of
 * file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"

/* Forks with such a line (SEQPACKET). Returns the pid, or 0 in the child, each with its own end of
 * the line; -1 if there is no child. `what` is for the message: "the broker". */
pid_t child_start(const char *what, int *ret_line, struct sb_error *error);

/* In the child: nothing of the parent's stays open but these, and /dev/null for the first three. */
void child_keep_only(const int *kept, size_t count);

/* Waits for its end, whatever signals come. Returns its wait status, or 0 if there is no such
 * child. */
int child_wait(pid_t pid);

/* The same for so many milliseconds, of one that was killed. False if it is still there then: it
 * waits for a file system that does not answer, and dies when that does. */
#define CHILD_PATIENCE_MS 1000
bool child_wait_for(pid_t pid, int milliseconds);
