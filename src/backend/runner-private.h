/* Between the files of the generic runner: runner-start.c begins a run, runner.c watches it,
 * runner-signals.c passes signals on, runner-end.c ends it and tells what became of it. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "backend/backend.h"
#include "backend/guard.h"
#include "backend/runner-control.h"
#include "core/text.h"
#include "session/monitor.h"
#include "session/placeholders.h"
#include "session/terminal.h"

#define TIME_GRACE_NS (2ull * 1000 * 1000 * 1000)

/* One run. What was not made (yet) is -1, NULL or empty, so that the end can come at any time. */
struct runner {
  const struct backend *backend;
  const struct backend_request *request;
  struct session_result *result;
  struct wrapped wrapped;
  struct terminal terminal;
  struct capture capture;
  struct placeholders placeholders;
  struct limit_group limits;
  struct deadline deadline;
  uint64_t started_ns;
  bool over, timed_out;
  bool killed; /* by `sandbox kill` */
  /* the guard, and what it and the tool say */
  pid_t guard;
  int channel;
  struct guard_report report;
  bool reported;
  bool tidied; /* the guard removes the scratch folder: it came to its end */
  int was_subreaper;
  int status; /* the pipe for wrapped.status_fd */
  struct text status_text;
  /* files of the tool */
  char *scratch; /* made, and to be removed */
  int scratch_lock;
  /* signals */
  sigset_t original_mask;
  int signals;
  int early; /* one that came before the command */
  uint64_t early_until_ns;
  int abandoned; /* the one that ended the start */
  int passed_on; /* the last that went to the command, or to what was about to become it */
  /* the registry of sessions */
  struct runner_control control;
  uint64_t register_ns; /* when it enters; 0: it has, or does not */
};

/* ---- runner.c ---- */

void runner_ask(struct runner *runner, enum guard_request request, int signal);
void runner_name_limit(struct runner *runner, enum limit_kind kind); /* the first is what counts */
void runner_read_status(struct runner *runner);

/* ---- runner-start.c ---- */

int runner_start(struct runner *runner, struct sb_error *error);

/* ---- runner-scratch.c ---- */

/* Those that the wrapped command names; without any there is no scratch folder. */
int runner_make_files(struct runner *runner, struct sb_error *error);

/* ---- runner-signals.c ---- */

int runner_take_signals(struct runner *runner, struct sb_error *error);
void runner_give_signals_back(struct runner *runner);
void runner_read_signals(struct runner *runner);
void runner_check_early_signal(struct runner *runner); /* has its time come? */

/* ---- runner-end.c ---- */

/* Ends and removes all but what is needed to tell of it. */
void runner_finish(struct runner *runner);

/* Did the tool fail because something that it was to hide has vanished meanwhile, a socket of
 * another program mostly? It finds nothing to mount on; wrapped again, that is left out. */
bool runner_met_vanished(const struct runner *runner);

/* What became of it. An error if the command was never started. */
int runner_conclude(struct runner *runner, struct sb_error *error);

void runner_clear(struct runner *runner);
