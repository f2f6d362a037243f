/* Everything that confines the session's processes and cannot be undone. Init does it to itself
 * once; whatever it starts, the workload and later commands alike, is born with it. */
#pragma once

#include "engine/report.h"
#include "plan/plan.h"

/* Returns 0 or a negative errno noted in the report. Raw system calls only. Where the gate is
 * seccomp notify, *ret_listener is what its supervisor listens on; in static mode it is the
 * connector's; else -1. */
int confine_self(const struct plan *plan, struct start_report *report, int *ret_listener);
