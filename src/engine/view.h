/* Applies the plan's file system operations in the child. New mount API throughout, by descriptor;
 * nothing is created in the host's tree, nothing is allocated, no path is resolved through a
 * symbolic link that the plan did not see. */
#pragma once

#include "engine/report.h"
#include "plan/plan.h"

/* Builds the view and enters it (pivot_root, old root detached). Called in the new user and mount
 * namespaces after the ids are mapped. Returns 0 or a negative errno noted in the report. */
int view_build(const struct plan *plan, struct start_report *report);
