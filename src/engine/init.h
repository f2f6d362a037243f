/* PID 1 of the session: builds the view, starts the workload, reaps, forwards signals, reports the
 * end. It never returns, holds no capability once the workload runs, and cannot be traced. */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "engine/report.h"
#include "limits/limits.h"
#include "plan/plan.h"

/* What it is told, in memory that it shares with the monitor; there with MESSAGE_MAPPED. */
struct init_input {
  const struct plan *base; /* the plan as it was begun */
  const struct plan *plan; /* complete: there with MESSAGE_GO */
  bool terminal[3];        /* which of stdin, stdout, stderr become the session's terminal */
  bool has_terminal;       /* any of them */
  struct limit_rlimits rlimits;
  sigset_t original_mask; /* the caller's, given back to the workload */
  bool idle;              /* no workload: the session waits for `exec` */
  bool tell_at_once;      /* MESSAGE_STARTED must not wait */
};

/* What it has from its birth. */
struct init_birth {
  const struct init_input *input;
  struct start_report *report;
  int channel;                      /* our end of the line to the monitor */
  int descriptors[3];               /* what takes the place of stdin, stdout, stderr, or -1 */
  const struct limit_group *limits; /* NULL: no groups to enter */
};

_Noreturn void init_main(const struct init_birth *birth);
