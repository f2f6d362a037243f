/* The kernel's limits per process and per user. Inside src/limits only. */
#pragma once

#include "limits/limits.h"

/* True if RLIMIT_NPROC inside a user namespace of our own counts the session and nothing else. */
bool rlimit_processes_works(void);

/* Pure: what the workload has to set, by who enforces what. */
struct limit_rlimits rlimits_for(const struct limit_group *group);
