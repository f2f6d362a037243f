/* PID 1 of the session: builds the view, starts the workload, reaps, forwards signals, reports the
 * end. It never returns, holds no capability once the workload runs, and cannot be traced. */
#pragma once

#include <signal.h>
#include <stdbool.h>

#include "engine/report.h"
#include "limits/limits.h"
#include "plan/plan.h"

struct init_input {
  const struct plan *base; /* our own copy, by the fork, of the plan as it was begun */
  const struct plan *plan; /* shared; complete with MESSAGE_GO */
  struct start_report *report;
  int channel;        /* our end of the line to the monitor */
  bool terminal[3];   /* which of stdin, stdout, stderr become the session's terminal */
  int descriptors[3]; /* what takes the place of the others, or -1: they stay */
  const struct limit_group *limits;
  bool has_terminal;      /* any of them */
  sigset_t original_mask; /* the caller's, given back to the workload */
  bool idle;              /* no workload: the session waits for `exec` */
  bool tell_at_once;      /* MESSAGE_STARTED must not wait */
};

_Noreturn void init_main(const struct init_input *input);
