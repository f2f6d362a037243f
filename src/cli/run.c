/* `sandbox run`: flags and policy become a plan, the plan becomes a session. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/run-backend.h"
#include "cli/run-changes.h"
#include "cli/run-options.h"
#include "cli/run-plain.h"
#include "cli/run-result.h"
#include "cli/run-unsandboxed.h"
#include "cli/values.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "engine/engine.h"
#include "overlay/store.h"
#include "plan/plan.h"
#include "session/session.h"

struct run {
  const struct invocation *invocation;
  struct host_context host;
  struct policy *policy;
  struct plan plan;
  struct strv command;
  struct start_report *report;
  char id[SESSION_ID_LENGTH + 1];
  bool elsewhere; /* another engine than the native one runs it */
  bool planned;   /* the plan could be made: what fails after that is the machine's doing */
  char *overlay_folder;
  int overlay_lock;
  struct strv watched;
  struct limit_set limits;
  struct run_output output;
  struct log log;
  uint64_t max_output;
  int lifeline; /* 0: none */
  int ready_fd; /* detached: gets a byte when the session is ready; else -1 */
};

static void run_clear(struct run *run) {
  plan_clear(&run->plan);
  policy_free(run->policy);
  host_context_clear(&run->host);
  strv_clear(&run->command);
  free(run->overlay_folder);
  strv_clear(&run->watched);
  if (run->overlay_lock >= 0)
    close(run->overlay_lock);
  log_close(&run->log);
}

/* ---- the command ---- */

static const char *usual_shell(void) {
  return access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
}

static int choose_command(struct run *run, struct sb_error *error) {
  const char *script = invocation_value(run->invocation, RUN_COMMAND);
  bool given = script || run->invocation->operand_count > 0;
  if (given && invocation_has(run->invocation, RUN_DETACH)) {
    sb_fail(error, SB_CODE_USAGE, 0, "--detach starts no command");
    return sb_hint(error, "start the session first, then run: sandbox exec SID -- COMMAND");
  }
  if (script && run->invocation->operand_count > 0) {
    sb_fail(error, SB_CODE_USAGE, 0, "both -c and a command were given");
    return sb_hint(error, "use one of them: sandbox run -c 'make && make test'");
  }
  if (script) {
    strv_add(&run->command, usual_shell());
    strv_add(&run->command, "-c");
    strv_add(&run->command, script);
    return 0;
  }
  for (size_t i = 0; i < run->invocation->operand_count; i++)
    strv_add(&run->command, run->invocation->operands[i]);
  if (run->command.count == 0) {
    const char *shell = getenv("SHELL");
    strv_add(&run->command, shell && shell[0] == '/' ? shell : usual_shell());
  }
  return 0;
}

/* A folder as stdin, stdout or stderr would be a way out: openat(0, "..") walks the host. */
static int check_descriptors(struct sb_error *error) {
  for (int fd = 0; fd < 3; fd++) {
    struct stat status;
    if (fstat(fd, &status) == 0 && S_ISDIR(status.st_mode)) {
      sb_fail(error, SB_CODE_USAGE, 0, "descriptor %d is a folder", fd);
      return sb_hint(error, "redirect it from a file, or from /dev/null");
    }
  }
  return 0;
}

/* Descriptors that the caller left closed: something of ours must not land on their numbers, where
 * the session's init closes what it takes for the workload's. Theirs stay closed by O_CLOEXEC. */
static int reserve_closed_descriptors(struct sb_error *error) {
  int result = fd_reserve_standard();
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "opening '/dev/null'") : 0;
}

static enum terminal_mode terminal_mode_of(const struct invocation *invocation) {
  const char *value = invocation_value(invocation, RUN_TTY);
  return value ? (enum terminal_mode)value_word("auto always never", value) : TERMINAL_AUTO;
}

/* Ours, before the plan is made: what does not exist cannot be hidden. Whoever needs them later
 * says what is wrong with them. */
static void make_own_folders(const struct host_context *host) {
  (void)file_private_folder(host->runtime_folder);
  if (!host->state_home)
    return;
  _cleanup_free_ char *state = path_join(host->state_home, "sandbox");
  (void)file_make_folders(state, 0700);
}

/* A session that is kept for `exec` gets whatever those are given. */
static bool gets_files(const struct invocation *invocation) {
  return invocation_has(invocation, RUN_DETACH) || fd_is_readable_file(0) ||
         fd_is_readable_file(1) || fd_is_readable_file(2);
}

static int fill_plan_request(struct run *run, struct plan_request *ret_request,
                             struct sb_error *error) {
  *ret_request = (struct plan_request){
      .host = &run->host,
      .policy = run->policy,
      .session_id = run->id,
      .command = run->command.items,
      .terminal = terminal_mode_of(run->invocation),
      .overlay_folder = run->overlay_folder,
      .outside_files = gets_files(run->invocation),
      .for_backend = run->elsewhere,
      .gate = run_choose_gate(run->invocation),
  };
  const char *offset = invocation_value(run->invocation, RUN_TIME_OFFSET);
  if (offset) {
    int64_t seconds;
    if (value_offset("--time-offset", offset, &seconds, error) < 0)
      return -1;
    ret_request->time_offset_seconds = seconds;
    ret_request->has_time_offset = true;
  }
  return 0;
}

static int begin_plan(struct run *run, struct sb_error *error) {
  struct plan_request request;
  return fill_plan_request(run, &request, error) < 0 ? -1 : plan_begin(&request, &run->plan, error);
}

static int make_plan(struct run *run, struct sb_error *error) {
  struct plan_request request;
  if (fill_plan_request(run, &request, error) < 0)
    return -1;
  if (!invocation_has(run->invocation, RUN_DRY_RUN))
    make_own_folders(&run->host);
  return plan_compile(&request, &run->plan, error);
}

static int prepare(struct run *run, struct sb_error *error) {
  const char *folder = invocation_value(run->invocation, RUN_CHDIR);
  if (folder && chdir(folder) < 0) {
    _cleanup_free_ char *shown = escape_string(folder);
    sb_fail_errno(error, "-C '%s'", shown);
    return sb_hint(error, "name a folder that exists");
  }
  if (check_descriptors(error) < 0 || reserve_closed_descriptors(error) < 0 ||
      host_context_load(&run->host, error) < 0 || choose_command(run, error) < 0 ||
      run_load_policy(run->invocation, &run->host, &run->policy, error) < 0)
    return -1;
  if (limit_set_resolve(&run->policy->limits, &run->limits, error) < 0)
    return -1;
  session_new_id(run->id);
  /* People at a terminal like to know; programs and pipes do not. */
  run->output = (struct run_output){
      .session_id = run->id,
      .backend = native_backend.name,
      .policy = run->policy,
      .plan = &run->plan,
      .limits = &run->limits,
      .summary = invocation_has(run->invocation, RUN_SUMMARY) &&
                 !invocation_has(run->invocation, RUN_QUIET),
      .status_fd = -1,
  };
  run->overlay_folder = overlay_folder(&run->host, run->id);
  return 0;
}

/* ---- running ---- */

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
  for (size_t i = 1; i < PHASE_COUNT; i++) {
    if (phases[i].tv_sec == 0)
      continue;
    double microseconds = (double)(phases[i].tv_sec - phases[0].tv_sec) * 1e6 +
                          (double)(phases[i].tv_nsec - phases[0].tv_nsec) / 1e3;
    fprintf(stderr, "%8.0f us  %s\n", microseconds, names[i]);
  }
}

static void show_warnings(const struct run *run) {
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
static bool wants_report(const struct run *run) {
  return invocation_has(run->invocation, RUN_REPORT) || invocation_has(run->invocation, RUN_JSON) ||
         invocation_has(run->invocation, RUN_SUMMARY);
}

/* The kernel lays the arguments out one after the other, and the environment right behind. */
static size_t title_size(const char *title) {
  return environ[0] && environ[0] > title ? (size_t)(environ[0] - title) : 0;
}

/* A detached session has said what it had to say once it is ready. */
static void show_notice(void *context, const struct session_notice *notice) {
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
      .wants_report = wants_report(run),
      .quiet =
          invocation_has(run->invocation, RUN_QUIET) || invocation_has(run->invocation, RUN_JSON),
  };
  run_finish_changes(&ending);
}

/* Called while the session's first process makes its namespaces and builds the base. */
static int compile(void *context, struct sb_error *error) {
  struct run *run = context;
  if (make_plan(run, error) < 0)
    return -1;
  run->planned = true;
  show_warnings(run);
  if (wants_report(run))
    run_watched_places(&run->plan, &run->watched);
  if (!plan_has_overlays(&run->plan))
    return 0;
  run->overlay_lock = overlay_create(&run->host, &run->plan, run->id, error);
  return run->overlay_lock < 0 ? -1 : 0;
}

/* Keeps or drops what the overlays hold, and reports what changed. */
static void conclude_changes(struct run *run, const struct session_result *result, bool ran,
                             struct timespec started) {
  bool overlaid = plan_has_overlays(&run->plan);
  if (ran && (overlaid || wants_report(run)))
    finish_changes(run, result, started);
  if (!ran && overlaid)
    (void)overlay_remove(run->overlay_folder);
}

static int run_session(struct run *run, struct session_result *ret_result, struct sb_error *error) {
  if (begin_plan(run, error) < 0)
    return -1;
  struct session_request request = {
      .host = &run->host,
      .plan = &run->plan,
      .compile = compile,
      .compile_context = run,
      .watched = &run->watched,
      .terminal = terminal_mode_of(run->invocation),
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
      .ready_fd = run->ready_fd,
      .lifeline = run->lifeline,
      .listener = show_notice,
      .listener_context = run,
      .title = program_invocation_name,
      .title_size = title_size(program_invocation_name),
  };
  struct timespec started = change_clock_now().start;
  int result = session_run(&request, ret_result, error);
  conclude_changes(run, ret_result, result == 0, started);
  return result;
}

/* ---- other engines ---- */

static struct run_elsewhere describe_elsewhere(struct run *run, const struct backend *named,
                                               const char *scratch) {
  enum terminal_mode terminal = terminal_mode_of(run->invocation);
  bool capture = invocation_has(run->invocation, RUN_JSON);
  bool is_terminal = terminal == TERMINAL_ALWAYS ||
                     (terminal == TERMINAL_AUTO && (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO)));
  return (struct run_elsewhere){
      .request = {.host = &run->host,
                  .policy = run->policy,
                  .plan = &run->plan,
                  .limits = &run->limits,
                  .session_id = run->id,
                  .scratch = scratch,
                  .has_terminal = is_terminal && !capture,
                  .weaken = invocation_has(run->invocation, RUN_WEAKEN) ||
                            run->policy->require == REQUIRE_PREFERRED,
                  .terminal = terminal,
                  .capture = capture,
                  .capture_limit = run->max_output,
                  .log = &run->log,
                  .lifeline = run->lifeline,
                  .listener = show_notice,
                  .listener_context = run},
      .named = named,
      .quiet = invocation_has(run->invocation, RUN_QUIET),
  };
}

/* The plan for another engine; what it has to be able to do is in *ret_asked. Those cannot ask, so
 * their plan is a static one, and asking is among what is lost. */
static int plan_elsewhere(struct run *run, uint64_t *ret_asked, struct sb_error *error) {
  *ret_asked = backend_policy_features(run->policy, &run->limits);
  run->elsewhere = true;
  run->policy->mode = MODE_STATIC;
  plan_clear(&run->plan);
  return make_plan(run, error);
}

static int execute_elsewhere(struct run *run, const struct backend *backend,
                             const struct backend_request *request,
                             struct session_result *ret_result, struct sb_error *error) {
  run->planned = true;
  run->output.backend = backend->name;
  show_warnings(run);
  bool overlaid = plan_has_overlays(&run->plan);
  if (overlaid) {
    run->overlay_lock = overlay_create(&run->host, &run->plan, run->id, error);
    if (run->overlay_lock < 0)
      return -1;
  }
  _cleanup_snapshot_ struct snapshot *snapshot = NULL;
  if (wants_report(run)) {
    run_watched_places(&run->plan, &run->watched);
    snapshot =
        changes_snapshot_begin(run->watched.items, run->watched.count, &changes_default_limits);
  }
  struct timespec started = change_clock_now().start;
  int result = backend_run(backend, request, ret_result, error);
  if (snapshot)
    ret_result->changes = changes_report(snapshot, run->host.home, &changes_default_limits);
  conclude_changes(run, ret_result, result == 0, started);
  return result;
}

static int run_named(struct run *run, struct session_result *ret_result, struct sb_error *error) {
  _cleanup_free_ char *scratch = backend_scratch_path(run->id);
  const struct backend *backend = backend_find(run->policy->backend, error);
  struct run_elsewhere elsewhere = describe_elsewhere(run, backend, scratch);
  if (!backend)
    return -1;
  if (invocation_has(run->invocation, RUN_DETACH)) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "--detach needs the native engine");
    return sb_hint(error, "leave out --backend, or run the command directly");
  }
  if (plan_elsewhere(run, &elsewhere.asked, error) < 0 ||
      run_choose_backend(&elsewhere, &backend, error) < 0)
    return -1;
  return execute_elsewhere(run, backend, &elsewhere.request, ret_result, error);
}

/* The native engine cannot run here, for the reason in the error. If nothing else can, that reason
 * is still the one to fix. */
static int run_fallback(struct run *run, struct session_result *ret_result,
                        struct sb_error *error) {
  _cleanup_free_ char *scratch = backend_scratch_path(run->id);
  _cleanup_free_ char *instead = xstrdup(error->message);
  _cleanup_error_ struct sb_error other = {0};
  struct run_elsewhere elsewhere = describe_elsewhere(run, NULL, scratch);
  const struct backend *backend;
  elsewhere.instead = instead;
  run_settle_mode(run->policy, true);
  if (plan_elsewhere(run, &elsewhere.asked, &other) < 0 ||
      run_choose_backend(&elsewhere, &backend, &other) < 0)
    return -1;
  sb_error_clear(error);
  session_result_clear(ret_result);
  return execute_elsewhere(run, backend, &elsewhere.request, ret_result, error);
}

/* The kernel or its settings refused, not the caller's policy: what `require` is about. */
static bool is_missing_protection(struct run *run, const struct session_result *result,
                                  const struct sb_error *error) {
  /* A plan that cannot be made is never a reason to run without one. */
  _cleanup_error_ struct sb_error ignored = {0};
  if (!run->planned && make_plan(run, &ignored) < 0)
    return false;
  run->planned = true; /* a plan is completed once */
  return !result->started && result->exit_code == EXIT_CODE_FAILURE &&
         error->code == SB_CODE_UNSUPPORTED;
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

/* ---- wrap ---- */

static int print_wrapped(const struct run *run, const struct wrapped *wrapped) {
  if (!invocation_has(run->invocation, RUN_JSON)) {
    _cleanup_free_ char *text = wrapped_to_text(wrapped);
    return cli_print(text);
  }
  json_t *object = wrapped_to_json(wrapped);
  json_set_string(object, "backend", run->output.backend);
  _cleanup_free_ char *line = json_line(object);
  json_decref(object);
  return cli_print(line);
}

static const struct backend *wrapping_backend(const struct run *run, struct sb_error *error) {
  const struct backend *backend = NULL;
  if (run_is_elsewhere(run->policy->backend))
    return backend_find(run->policy->backend, error);
  sb_fail(error, SB_CODE_USAGE, 0, "the native engine has no command line of its own");
  sb_hint(error, "use 'sandbox run', or name a back end: sandbox wrap --backend bwrap -- make");
  return backend;
}

/* Limits that our runner would hold from outside are not in the words that are printed. */
static int wrap_command(struct run *run, struct wrapped *ret_wrapped, struct sb_error *error) {
  _cleanup_free_ char *scratch = backend_scratch_path(run->id);
  const struct backend *backend = wrapping_backend(run, error);
  struct run_elsewhere elsewhere = describe_elsewhere(run, backend, scratch);
  elsewhere.only_words = elsewhere.request.only_words = true;
  if (!backend || plan_elsewhere(run, &elsewhere.asked, error) < 0 ||
      run_choose_backend(&elsewhere, &backend, error) < 0)
    return -1;
  run->output.backend = backend->name;
  if (plan_has_overlays(&run->plan)) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "the words would have no layers for overlays: 'sandbox run' makes and keeps them");
    return sb_hint(error, "use 'sandbox run --backend %s', or wrap without overlays",
                   backend->name);
  }
  if (!backend->wrap) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "the back end %s is not one command line",
            backend->name);
    return sb_hint(error, "use 'sandbox run --backend %s'", backend->name);
  }
  if (backend->limits_by_group && !limit_set_is_empty(&run->limits) && !elsewhere.request.weaken) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "the words for %s would not hold the limits: 'sandbox run' holds them from outside",
            backend->name);
    return sb_hint(error,
                   "use 'sandbox run --backend %s', or wrap without limits, or accept the "
                   "loss with --weaken",
                   backend->name);
  }
  show_warnings(run);
  if (backend->wrap(&elsewhere.request, ret_wrapped, error) < 0)
    return -1;
  wrapped_complete(ret_wrapped, &elsewhere.request);
  return 0;
}

int run_wrap(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_wrapped_ struct wrapped wrapped = WRAPPED_NONE;
  __attribute__((cleanup(run_clear))) struct run run = {
      .invocation = invocation, .log = LOG_NONE, .ready_fd = -1, .overlay_lock = -1};
  if (invocation->operand_count == 0 && !invocation_value(invocation, RUN_COMMAND)) {
    sb_fail(&error, SB_CODE_USAGE, 0, "wrap needs a command");
    sb_hint(&error, "sandbox wrap --backend bwrap -- make");
    return cli_report_for(invocation, &error);
  }
  if (prepare(&run, &error) < 0 || wrap_command(&run, &wrapped, &error) < 0)
    return cli_report_for(invocation, &error);
  return print_wrapped(&run, &wrapped);
}

/* In a sandbox, without one, or not at all. */
static int run_prepared(struct run *run) {
  const struct invocation *invocation = run->invocation;
  _cleanup_error_ struct sb_error error = {0};
  bool detach = invocation_has(invocation, RUN_DETACH);
  int plain = 0;
  if (invocation_has(invocation, RUN_DRY_RUN))
    return make_plan(run, &error) < 0 ? cli_report_for(invocation, &error) : print_plan(run);
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
  if (prepare(&run, &error) < 0)
    return cli_report_for(invocation, &error);
  run.elsewhere = run_is_elsewhere(run.policy->backend);
  return run_prepared(&run);
}
