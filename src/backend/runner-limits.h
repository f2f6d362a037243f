/* Private to src/backend: limits that hold for any program that is started in a cgroup of ours. */
#pragma once

#include "backend/backend.h"

/* Which of them this machine lets us have, as features. Tries it. */
uint64_t runner_group_limits(void);

/* The same for the native engine, which also watches and has a pid namespace to count in. */
uint64_t runner_native_limits(void);

/* All that these two speak of. */
#define RUNNER_GROUP_LIMITS                                                                        \
  (FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_IO))

/* Makes the group. What no cgroup, rlimit or timer holds is an error, or left out if accepted: the
 * native engine's watch knows a session by its pid namespace, which the tools here may not have. */
int runner_create_group(const struct limit_set *set, const char *session_id, bool accept_loss,
                        struct limit_group *ret_group, struct sb_error *error);
