/* The end of a run: everything that is left is ended and removed, and what the guard reported
 * becomes a result. Also after a start that failed half-way, so each step does without what was
 * never made. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/processes.h"
#include "backend/runner-private.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/exit-code.h"

/* ---- ending ---- */

/* The guard ends what is still there; if it was killed itself, its children have come to us. When
 * it reports, nothing is left but itself and the scratch folder, which it removes. */
static void end_guard(struct runner *runner) {
  if (runner->channel >= 0)
    close(runner->channel);
  if (runner->reported && runner->request->guard) {
    *runner->request->guard = runner->guard;
    runner->tidied = true;
  } else {
    int status = child_wait(runner->guard);
    runner->tidied = runner->reported && WIFEXITED(status);
  }
  if (runner->guard > 0 && !runner->reported)
    processes_kill_orphans(runner->request->session_id);
  if (!runner->was_subreaper)
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

void runner_finish(struct runner *runner) {
  bool ended = runner->killed || runner->timed_out || runner->abandoned;
  struct terminal_patience patience = terminal_patience_new(runner->signals, ended);
  runner_control_leave(&runner->control);
  end_guard(runner);
  limit_group_sample(&runner->limits, &runner->result->usage);
  usage_add_rusage(&runner->result->usage, &runner->report.used);
  limit_group_kill(&runner->limits);
  terminal_drain(&runner->terminal, &patience);
  capture_drain(&runner->capture);
  terminal_restore(&runner->terminal);
  terminal_leave(&runner->terminal);
  while (runner->status >= 0 && poll(&(struct pollfd){runner->status, POLLIN, 0}, 1, 0) > 0)
    runner_read_status(runner);
  placeholders_remove(&runner->placeholders);
  if (runner->scratch && !runner->tidied)
    guard_remove_scratch(runner->scratch);
}

void runner_clear(struct runner *runner) {
  limit_group_remove(&runner->limits);
  runner_control_close(&runner->control); /* `sandbox kill` waits for it: nothing is left now */
  wrapped_clear(&runner->wrapped);
  text_clear(&runner->status_text);
  free(runner->scratch);
  cleanup_close_fd(&runner->scratch_lock);
  cleanup_close_fd(&runner->status);
}

/* ---- what became of it ---- */

static int explain_start(struct runner *runner, struct sb_error *error) {
  const struct guard_report *report = &runner->report;
  const char *program = report->doing[0]            ? runner->backend->name
                        : runner->backend->entrance ? runner->request->plan->arguments.items[0]
                                                    : runner->wrapped.argv.items[0];
  _cleanup_free_ char *shown = escape_string(program);
  if (report->doing[0])
    return sb_fail(error, SB_CODE_UNSUPPORTED, report->errnum, "%s: %s", shown, report->doing);
  if (runner->backend->entrance)
    runner->result->exit_code = exit_code_of_exec(report->errnum);
  return sb_fail(error, SB_CODE_NOT_FOUND, report->errnum, "cannot execute '%s'", shown);
}

/* Did the tool itself fail, or the command in it? */
static bool tool_failed(const struct runner *runner) {
  return runner->wrapped.ran_mark && !runner->timed_out && WIFEXITED(runner->report.wait_status) &&
         WEXITSTATUS(runner->report.wait_status) != 0 &&
         !strstr(text_string(&runner->status_text), runner->wrapped.ran_mark);
}

bool runner_met_vanished(const struct runner *runner) {
  const struct plan *plan = runner->request->plan;
  struct stat status;
  for (size_t i = 0; tool_failed(runner) && i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    bool may_vanish = operation->kind == OPERATION_MASK || operation->kind == OPERATION_PIN;
    if (may_vanish && strv_contains(&runner->wrapped.argv, operation->path) &&
        lstat(operation->path, &status) < 0 && (errno == ENOENT || errno == ENOTDIR))
      return true;
  }
  return false;
}

static int explain_tool(const struct runner *runner, struct sb_error *error) {
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s could not start the command", runner->backend->name);
  return sb_hint(error, "it said why above; 'sandbox backends' lists what else works here");
}

static int exit_code(const struct runner *runner) {
  int status = runner->report.wait_status;
  if (runner->killed)
    return 128 + SIGKILL;
  if (runner->timed_out)
    return EXIT_CODE_TIMEOUT;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Did a limit end it? The group knows; or the signal tells, by which rlimits end a process. */
static void find_limit(struct runner *runner) {
  struct session_result *result = runner->result;
  enum limit_kind kind;
  if (limit_group_check(&runner->limits, &result->usage, &kind) != LIMIT_FINE ||
      (result->exit_code > 128 &&
       limit_group_explains_signal(&runner->limits, result->exit_code - 128, &kind)))
    runner_name_limit(runner, kind);
}

/* The command never came to be; its user wanted that, or it was killed with the guard. */
static int ended_by(struct runner *runner, int signal) {
  runner->result->exit_code = 128 + signal;
  return 0;
}

int runner_conclude(struct runner *runner, struct sb_error *error) {
  struct session_result *result = runner->result;
  if (runner->abandoned || !runner->reported)
    return ended_by(runner, runner->abandoned ? runner->abandoned : SIGKILL);
  if (runner->report.errnum)
    return explain_start(runner, error);
  if (tool_failed(runner))
    return runner->passed_on ? ended_by(runner, runner->passed_on) : explain_tool(runner, error);
  result->started = true;
  result->wait_status = runner->report.wait_status;
  result->exit_code = exit_code(runner);
  find_limit(runner);
  return 0;
}
