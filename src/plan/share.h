/* Memory that a process forked earlier shares, and plans copied into it: so the session's first
 * process can make its namespaces while policy is still being read and the plan compiled. */
#pragma once

#include <stddef.h>

#include "core/error.h"
#include "plan/plan.h"

struct plan_area;

/* Reserves the memory, before the fork. Only what is used costs anything. NULL (errno) on failure.
 */
struct plan_area *plan_area_new(void);
void plan_area_free(struct plan_area *area);

/* Room for something else that both should see; zeroed. NULL if there is none left. */
void *plan_area_take(struct plan_area *area, size_t size);

/* Copies the plan there, with everything it points to and init needs. NULL on failure. */
const struct plan *plan_share(const struct plan *plan, struct plan_area *area,
                              struct sb_error *error);
