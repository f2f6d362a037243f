/* Everything that confines the session's processes and cannot be undone. Init does it to itself
 * once; whatever it starts, the workload and later commands alike, is born with it. */
#pragma once

#include "engine/report.h"
#include "plan/plan.h"

/* What takes no right away yet, in the complete view; Landlock's rules go to *ret_ruleset. Returns
 * 0 or a negative errno noted in the report. Raw system calls only, here and below. */
int confine_prepare(const struct plan *plan, struct start_report *report, int *ret_ruleset);

/* The rest. Where the gate is seccomp notify, *ret_listener is what its supervisor listens on;
 * else it is the connector's, or -1 if there can be none. Returns the same. */
int confine_self(const struct plan *plan, struct start_report *report, int ruleset,
                 int *ret_listener);

/* For every process of a session: a core file would copy approved secrets into a writable folder,
 * or reach a handler of the host. Returns 0 or a negative errno. */
int confine_forbid_core_files(void);
