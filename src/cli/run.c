/* `sandbox run`: flags and policy become a plan, the plan becomes a session. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run-changes.h"
#include "cli/run-options.h"
#include "cli/run-plain.h"
#include "cli/run-unsandboxed.h"
#include "cli/run.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/json.h"
#include "engine/engine.h"
#include "overlay/store.h"

struct mark {
  double microseconds;
  const char *name;
};

static int by_time(const void *left, const void *right) {
  double difference =
      ((const struct mark *)left)->microseconds - ((const struct mark *)right)->microseconds;
  return (difference > 0) - (difference < 0);
}

/* Much of it happens side by side: in the order in which it was done. */
static void print_timing(const struct timespec phases[PHASE_COUNT]) {
  static const char *const names[PHASE_COUNT] = {
      [PHASE_BEGIN] = "begin",
      [PHASE_PLANNED] = "policy and plan",
      [PHASE_CLONED] = "user, pid and mount namespaces",
      [PHASE_IDENTITY] = "ids mapped",
      [PHASE_BASE] = "base of the file system view",
      [PHASE_PLACEHOLDERS] = "placeholders",
      [PHASE_NAMESPACES] = "network, ipc, uts and cgroup namespaces",
      [PHASE_VIEW] = "file system view",
      [PHASE_SPAWNED] = "confinement and exec",
      [PHASE_EXITED] = "the command itself",
      [PHASE_FINISHED] = "clean-up",
  };
  struct mark marks[PHASE_COUNT];
  size_t count = 0;
  for (size_t i = 1; i < PHASE_COUNT; i++) {
    if (phases[i].tv_sec == 0)
      continue;
    double seconds = (double)(phases[i].tv_sec - phases[0].tv_sec) +
                     (double)(phases[i].tv_nsec - phases[0].tv_nsec) / 1e9;
    marks[count++] = (struct mark){seconds * 1e6, names[i]};
  }
  qsort(marks, count, sizeof *marks, by_time);
  for (size_t i = 0; i < count; i++)
    fprintf(stderr, "%8.0f us  %s\n", marks[i].microseconds, marks[i].name);
}

void run_show_warnings(const struct run *run) {
  if (invocation_has(run->invocation, RUN_QUIET))
    return;
  STRV_FOREACH (line, &run->policy->ignored)
    cli_warn("%s", *line);
  STRV_FOREACH (line, &run->plan.warnings)
    cli_warn("%s", *line);
  if (invocation_has(run->invocation, RUN_VERBOSE)) {
    STRV_FOREACH (line, &run->plan.notes)
      cli_warn("%s", *line);
  }
}

static int print_plan(struct run *run) {
  if (!invocation_has(run->invocation, RUN_JSON)) {
    _cleanup_free_ char *text = plan_to_text(&run->plan);
    return cli_print(text);
  }
  json_t *json = plan_to_json(&run->plan);
  _cleanup_free_ char *line = json_line(json);
  json_decref(json);
  return cli_print(line);
}

/* Without any confinement; only where policy or the caller says so. */
static int run_plainly(struct run *run) {
  run->output.backend = "none";
  return run_plain(run->invocation, &run->output, run->command.items,
                   invocation_has(run->invocation, RUN_JSON) ? run->max_output : 0);
}

/* A snapshot and a comparison cost time on large projects: only for those who will read it. */
bool run_wants_report(const struct run *run) {
  return invocation_has(run->invocation, RUN_REPORT) || invocation_has(run->invocation, RUN_JSON) ||
         invocation_has(run->invocation, RUN_SUMMARY);
}

/* The kernel lays the arguments out one after the other, and the environment right behind. */
static size_t title_size(const char *title) {
  return environ[0] && environ[0] > title ? (size_t)(environ[0] - title) : 0;
}

/* A detached session has said what it had to say once it is ready. */
void run_tell(void *context, const struct session_notice *notice) {
  const struct run *run = context;
  run_show_notice((void *)&run->output, notice);
  if (run->ready_fd >= 0 && notice->event == SESSION_STARTED)
    dup2(STDIN_FILENO, STDERR_FILENO); /* /dev/null: see leave_terminal */
}

/* A descriptor that the caller opened for us; untouched if the option was not given. */
static int take_descriptor(const struct invocation *invocation, int option, int *ret_fd,
                           struct sb_error *error) {
  const char *value = invocation_value(invocation, option);
  const char *name = option == RUN_STATUS_FD ? "--status-fd" : "--lifeline";
  uint64_t number;
  if (!value)
    return 0;
  if (value_count(name, value, &number, error) < 0)
    return -1;
  if (number < 3 || number > INT_MAX || fcntl((int)number, F_SETFD, FD_CLOEXEC) < 0) {
    sb_fail(error, SB_CODE_USAGE, 0, "%s %s is not an open descriptor above 2", name, value);
    return sb_hint(error, "open it first: sandbox run --status-fd 3 -- make 3>status");
  }
  *ret_fd = (int)number;
  return 0;
}

static int open_outputs(struct run *run, struct sb_error *error) {
  const struct invocation *invocation = run->invocation;
  const char *log = invocation_value(invocation, RUN_LOG);
  const char *level = invocation_value(invocation, RUN_LOG_LEVEL);
  if (take_descriptor(invocation, RUN_STATUS_FD, &run->output.status_fd, error) < 0 ||
      take_descriptor(invocation, RUN_LIFELINE, &run->lifeline, error) < 0)
    return -1;
  if (run_output_limit(invocation_value(invocation, RUN_MAX_OUTPUT), &run->max_output, error) < 0)
    return -1;
  run->log.session_id = run->id;
  return log ? log_open(&run->log, log,
                        level ? (enum log_level)value_word("error warning info debug", level)
                              : LOG_INFO,
                        error)
             : 0;
}

static void finish_changes(const struct run *run, const struct session_result *result,
                           struct timespec started) {
  struct run_ending ending = {
      .host = &run->host,
      .plan = &run->plan,
      .session_id = run->id,
      .result = result,
      .started = started,
      .wants_report = run_wants_report(run),
      .quiet =
          invocation_has(run->invocation, RUN_QUIET) || invocation_has(run->invocation, RUN_JSON),
  };
  run_finish_changes(&ending);
}

/* Called while the session's first process makes its namespaces and builds the base. */
static int compile(void *context, struct sb_error *error) {
  struct run *run = context;
  if (run_make_plan(run, error) < 0)
    return -1;
  run_show_warnings(run);
  if (run_wants_report(run))
    run_watched_places(&run->plan, &run->watched);
  if (!plan_has_overlays(&run->plan))
    return 0;
  run->overlay_lock = overlay_create(&run->host, &run->plan, run->id, error);
  return run->overlay_lock < 0 ? -1 : 0;
}

/* Keeps or drops what the overlays hold, and reports what changed. */
void run_conclude_changes(struct run *run, const struct session_result *result, bool ran,
                          struct timespec started) {
  bool overlaid = plan_has_overlays(&run->plan);
  if (ran && (overlaid || run_wants_report(run)))
    finish_changes(run, result, started);
  if (!ran && overlaid)
    (void)overlay_remove(run->overlay_folder);
}

static int run_session(struct run *run, struct session_result *ret_result, struct sb_error *error) {
  if (run_begin_plan(run, error) < 0)
    return -1;
  struct session_request request = {
      .host = &run->host,
      .plan = &run->plan,
      .compile = compile,
      .compile_context = run,
      .watched = &run->watched,
      .terminal = run_terminal_mode(run->invocation),
      .session_id = run->id,
      .mode = run->policy->mode == MODE_DYNAMIC ? "dynamic" : "static",
      .policy = run->policy->mode == MODE_DYNAMIC ? run->policy : NULL,
      .rules = run->policy,
      .limits = &run->limits,
      .best_effort_limits = run->policy->require == REQUIRE_PREFERRED,
      .learns = run->invocation->verb == &learn_verb,
      .supervised = invocation_has(run->invocation, RUN_SUPERVISED),
      .idle = invocation_has(run->invocation, RUN_DETACH),
      .capture =
          invocation_has(run->invocation, RUN_JSON) && !invocation_has(run->invocation, RUN_DETACH),
      .capture_limit = run->max_output,
      .log = &run->log,
      .report = run->report,
      .ahead = &run->ahead,
      .ready_fd = run->ready_fd,
      .lifeline = run->lifeline,
      .listener = run_tell,
      .listener_context = run,
      .title = program_invocation_name,
      .title_size = title_size(program_invocation_name),
  };
  struct timespec started = change_clock_now().start;
  int result = session_run(&request, ret_result, error);
  run_conclude_changes(run, ret_result, result == 0, started);
  return result;
}

/* The kernel or its settings refused, not the caller's policy: what `require` is about. */
static bool is_missing_protection(struct run *run, const struct session_result *result,
                                  const struct sb_error *error) {
  if (result->started || result->exit_code != EXIT_CODE_FAILURE ||
      error->code != SB_CODE_UNSUPPORTED)
    return false;
  /* A plan that cannot be made is never a reason to run without one. */
  _cleanup_error_ struct sb_error ignored = {0};
  return run->planned || run_make_plan(run, &ignored) == 0;
}

/* By the native engine; where the machine does not let it, by whatever else holds the policy. */
static int run_by_choice(struct run *run, struct session_result *ret_result,
                         struct sb_error *error) {
  if (run_is_elsewhere(run->policy->backend))
    return run_named(run, ret_result, error);
  int result = run_session(run, ret_result, error);
  if (result < 0 && strcmp(run->policy->backend, "auto") == 0 &&
      !invocation_has(run->invocation, RUN_DETACH) && is_missing_protection(run, ret_result, error))
    return run_fallback(run, ret_result, error);
  return result;
}

static int report_result(struct run *run, const struct session_result *result) {
  if (invocation_has(run->invocation, RUN_TIMING))
    print_timing(result->phases);
  if (run->ready_fd >= 0) /* detached: nobody is there to be told */
    return result->exit_code;
  if (result->exit_code != 0)
    run_show_hints(run, result);
  run_show_footer(&run->output, result);
  if (!invocation_has(run->invocation, RUN_JSON))
    return result->exit_code;
  _cleanup_free_ char *line = run_result_line(&run->output, result);
  int printed = cli_print(line);
  return printed ? printed : result->exit_code;
}

static int run_and_report(struct run *run) {
  _cleanup_error_ struct sb_error error = {0};
  struct session_result result = {.exit_code = EXIT_CODE_FAILURE, .capture = CAPTURE_NONE};
  run_show_header(&run->output);
  int ended = run_by_choice(run, &result, &error);
  int code = result.exit_code;
  if (ended == 0)
    code = report_result(run, &result);
  session_result_clear(&result);
  if (ended == 0)
    return code;
  _cleanup_error_ struct sb_error unrecorded = {0};
  if (run->policy->require == REQUIRE_PREFERRED && is_missing_protection(run, &result, &error)) {
    if (run_record_unsandboxed(&run->host, "preferred", error.message, run->command.items,
                               &unrecorded) < 0)
      return cli_report_for(run->invocation, &unrecorded);
    cli_warn("NOT SANDBOXED: %s. The command runs with all of your rights: it can read your "
             "secrets, write everywhere and use the network (require: preferred)",
             error.message);
    return run_plainly(run);
  }
  cli_report_for(run->invocation, &error);
  return code;
}

/* ---- detached ---- */

/* In the parent: the session's monitor is another process now. It writes a byte when the session
 * can be talked to, or exits with the reason already on stderr. */
static int await_detached(struct run *run, pid_t monitor, int ready) {
  char byte;
  ssize_t got;
  int status = -1;
  while ((got = read(ready, &byte, 1)) < 0 && errno == EINTR)
    ;
  if (got != 1) {
    while (waitpid(monitor, &status, 0) < 0 && errno == EINTR)
      ;
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_CODE_FAILURE;
    return code ? code : EXIT_CODE_FAILURE;
  }
  _cleanup_text_ struct text text = {0};
  bool json = invocation_has(run->invocation, RUN_JSON);
  text_appendf(&text, json ? "{\"sid\":\"%s\"}\n" : "%s\n", run->id);
  return cli_print(text_string(&text));
}

/* The caller's pipes must see their end although the session goes on; errors of the start still
 * reach stderr, which is let go when the session is ready. */
static void leave_terminal(const struct run *run) {
  const int kept[] = {run->ready_fd, run->output.status_fd, run->log.fd, run->lifeline};
  fd_close_others(kept, ARRAY_SIZE(kept));
  setsid();
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  close(null);
}

static int run_detached(struct run *run) {
  _cleanup_error_ struct sb_error error = {0};
  int ready[2];
  if (pipe2(ready, O_CLOEXEC) < 0) {
    sb_fail_errno(&error, "making a pipe");
    return cli_report_for(run->invocation, &error);
  }
  pid_t monitor = fork();
  if (monitor < 0) {
    sb_fail_errno(&error, "starting the session's monitor");
    return cli_report_for(run->invocation, &error);
  }
  if (monitor > 0) {
    close(ready[1]);
    return await_detached(run, monitor, ready[0]);
  }
  close(ready[0]);
  run->ready_fd = ready[1];
  leave_terminal(run);
  return run_and_report(run);
}

/* In a sandbox, without one, or not at all. */
static int run_prepared(struct run *run) {
  const struct invocation *invocation = run->invocation;
  _cleanup_error_ struct sb_error error = {0};
  bool detach = invocation_has(invocation, RUN_DETACH);
  int plain = 0;
  if (invocation_has(invocation, RUN_DRY_RUN))
    return run_make_plan(run, &error) < 0 ? cli_report_for(invocation, &error) : print_plan(run);
  if (open_outputs(run, &error) == 0 && !detach)
    plain = run_without_sandbox(invocation, &run->host, run->policy, run->command.items, &error);
  if (detach && run->policy->require == REQUIRE_DISABLED) {
    sb_fail(&error, SB_CODE_USAGE, 0,
            "--detach starts a sandbox, and require: disabled wants none");
    sb_hint(&error, "leave one of them out");
  }
  if (!error.message && !plain && run->policy->require == REQUIRE_DISABLED)
    plain = run_record_unsandboxed(&run->host, "disabled", "require: disabled", run->command.items,
                                   &error) == 0;
  if (error.message)
    return cli_report_for(invocation, &error);
  if (plain)
    return run_plainly(run);
  return detach ? run_detached(run) : run_and_report(run);
}

/* It makes its namespaces while we read the policy. Most runs are such that it will do; the others
 * end it and start one of their own. */
static void begin_ahead(struct run *run) {
  static const int others[] = {RUN_DRY_RUN, RUN_DETACH, RUN_JSON, RUN_BACKEND};
  for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
    if (invocation_has(run->invocation, others[i]))
      return;
  }
  struct engine_birth birth = {
      .descriptors = {-1, -1, -1},
      .title = program_invocation_name,
      .title_size = title_size(program_invocation_name),
  };
  _cleanup_error_ struct sb_error ignored = {0}; /* what fails here fails again, and is told then */
  if (fd_reserve_standard() == 0)                /* or the line to it would be somebody's stdin */
    (void)engine_clone(&birth, run->report, &run->ahead, &ignored);
}

int run_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  __attribute__((cleanup(run_clear))) struct run run = {
      .invocation = invocation,
      .log = LOG_NONE,
      .ready_fd = -1,
      .overlay_lock = -1,
  };
  run.report = engine_report_new();
  if (!run.report) {
    sb_fail_errno(&error, "allocating a page");
    return cli_report_for(invocation, &error);
  }
  report_phase(run.report, PHASE_BEGIN);
  begin_ahead(&run);
  if (run_prepare(&run, &error) < 0)
    return cli_report_for(invocation, &error);
  run.elsewhere = run_is_elsewhere(run.policy->backend);
  return run_prepared(&run);
}
