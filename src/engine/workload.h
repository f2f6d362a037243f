/* The last steps of the untrusted command: in its own process group, stripped of everything, exec.
 * The order matters and is written down in workload.c. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "engine/report.h"
#include "plan/plan.h"

struct workload_input {
  const struct plan *plan;
  struct start_report *report;
  int terminal_fd; /* the session's terminal, or -1 */
  bool terminal[3];
  sigset_t original_mask;
};

/* Starts it and returns once its exec has succeeded or failed: the pid of the process that stands
 * for it, or -1 with the reason in the report. */
pid_t workload_spawn(const struct workload_input *input);
