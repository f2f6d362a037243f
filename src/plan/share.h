/* A finished plan, copied into memory that a process forked earlier shares: so the session's first
 * process can make its namespaces while the plan is still being compiled. */
#pragma once

#include <stddef.h>

#include "core/error.h"
#include "plan/plan.h"

/* Reserves the memory, before the fork. Only what is used costs anything. NULL (errno) on failure.
 */
struct plan *plan_shared_new(void);

/* Copies the plan there, with everything it points to. */
int plan_share(const struct plan *plan, struct plan *shared, struct sb_error *error);
void plan_shared_free(struct plan *shared);
