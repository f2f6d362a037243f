/* Private to src/session: how the monitor holds limits, notices that one is hit, and says so. What
 * holds them is in src/limits. */
#pragma once

#include <stdint.h>

#include "core/error.h"
#include "limits/limits.h"

struct monitor;

/* Before the session: makes the group that it starts in. */
int limiting_begin(struct monitor *monitor, struct sb_error *error);

/* When the command is there: limits count from now on. The two descriptors are the session's
 * /proc and /tmp, or -1; see limit_group_use_folders. */
void limiting_start(struct monitor *monitor, int folders_inside[2]);

/* Looks at what no kernel limit holds, no more often than it may cost; ends the session. */
void limiting_look(struct monitor *monitor, uint64_t now);

/* Which limit the end has to do with, now that nothing runs any more. */
void limiting_conclude(struct monitor *monitor);

/* Names a limit as hit; the first counts. */
void limiting_name(struct monitor *monitor, enum limit_kind kind);
