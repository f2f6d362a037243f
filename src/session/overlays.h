/* The folders behind a session's overlays: what the workload changed, apart from the original. */
#pragma once

#include "core/error.h"
#include "plan/plan.h"

/* Where the overlays of a session live. New string; NULL if there is no state folder. */
char *overlays_folder(const struct host_context *host, const char *session_id);

/* Makes the upper and work folders the plan names. */
int overlays_create(const struct plan *plan, struct sb_error *error);

/* Removes a session's overlays with all that was written to them. */
void overlays_remove(const char *folder);
