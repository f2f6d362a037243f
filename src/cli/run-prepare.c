/* From the words of a command line to a policy, and from it to a plan. */
#include <stdlib.h>
#include <unistd.h>

#include "cli/run-options.h"
#include "cli/run.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "overlay/store.h"
#include "session/descriptors.h"

void run_clear(struct run *run) {
  if (run->ahead.init > 0)
    engine_destroy(&run->ahead, NULL);
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

const char *cli_shell(void) {
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
    strv_add(&run->command, cli_shell());
    strv_add(&run->command, "-c");
    strv_add(&run->command, script);
    return 0;
  }
  for (size_t i = 0; i < run->invocation->operand_count; i++)
    strv_add(&run->command, run->invocation->operands[i]);
  if (run->command.count == 0) {
    const char *shell = getenv("SHELL");
    strv_add(&run->command, shell && shell[0] == '/' ? shell : cli_shell());
  }
  return 0;
}

/* How many of ours the command gets: none, if a session is kept for `exec`; output may be captured.
 */
static int given_descriptors(const struct invocation *invocation) {
  return invocation_has(invocation, RUN_DETACH) ? 0 : invocation_has(invocation, RUN_JSON) ? 1 : 3;
}

static int check_descriptors(const struct run *run, struct sb_error *error) {
  bool datagrams = run->policy->network.unix_datagrams;
  for (int fd = 0; fd < given_descriptors(run->invocation); fd++) {
    if (descriptor_check(fd, fd, datagrams, error) < 0)
      return -1;
  }
  return 0;
}

/* Descriptors that the caller left closed: something of ours must not land on their numbers, where
 * the session's init closes what it takes for the workload's. Theirs stay closed by O_CLOEXEC. */
static int reserve_closed_descriptors(struct sb_error *error) {
  int result = fd_reserve_standard();
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "opening '/dev/null'") : 0;
}

enum terminal_mode run_terminal_mode(const struct invocation *invocation) {
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
  if (check_descriptors(run, error) < 0)
    return -1;
  *ret_request = (struct plan_request){
      .host = &run->host,
      .policy = run->policy,
      .session_id = run->id,
      .command = run->command.items,
      .terminal = run_terminal_mode(run->invocation),
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

int run_begin_plan(struct run *run, struct sb_error *error) {
  struct plan_request request;
  return fill_plan_request(run, &request, error) < 0 ? -1 : plan_begin(&request, &run->plan, error);
}

int run_make_plan(struct run *run, struct sb_error *error) {
  struct plan_request request;
  if (fill_plan_request(run, &request, error) < 0)
    return -1;
  if (!invocation_has(run->invocation, RUN_DRY_RUN))
    make_own_folders(&run->host);
  if (plan_compile(&request, &run->plan, error) < 0)
    return -1;
  run->planned = true; /* a plan is completed once */
  for (int fd = 0; fd < given_descriptors(run->invocation); fd++) {
    if (descriptor_check_file(fd, fd, &run->plan, error) < 0)
      return -1;
  }
  return 0;
}

int run_prepare(struct run *run, struct sb_error *error) {
  const char *folder = invocation_value(run->invocation, RUN_CHDIR);
  if (folder && chdir(folder) < 0) {
    _cleanup_free_ char *shown = escape_string(folder);
    sb_fail_errno(error, "-C '%s'", shown);
    return sb_hint(error, "name a folder that exists");
  }
  if (reserve_closed_descriptors(error) < 0 || host_context_load(&run->host, error) < 0 ||
      choose_command(run, error) < 0 ||
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
