/* Everything that confines the session's processes and cannot be undone. Init does it to itself
 * once; whatever it starts, the workload and later commands alike, is born with it. */
#pragma once

#include "engine/report.h"
#include "plan/plan.h"

/* Returns 0 or a negative errno noted in the report. Raw system calls only. */
int confine_self(const struct plan *plan, struct start_report *report);
