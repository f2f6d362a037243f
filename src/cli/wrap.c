/* sandbox wrap: the command line of another program that would run a command as this policy says.
 */
#include "cli/cli.h"
#include "cli/run-options.h"
#include "cli/run.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "overlay/store.h"

static const struct option_spec options[] = {
    {RUN_BACKEND, "backend", 0, ARGUMENT_REQUIRED, "NAME", "the program that confines the command",
     COMPLETE_WORDS, "landlock bwrap podman docker firejail nsjail vm seatbelt"},
    {RUN_JSON, "json", 0, ARGUMENT_NONE, NULL, "print argv, env, fds and files as JSON",
     COMPLETE_NONE},
    {RUN_WEAKEN, "weaken", 0, ARGUMENT_NONE, NULL,
     "accept what the back end cannot enforce, after a warning", COMPLETE_NONE},
    {RUN_IMAGE, "image", 0, ARGUMENT_REQUIRED, "NAME", "image for podman and docker",
     COMPLETE_NONE},
    {RUN_RW, "rw", 0, ARGUMENT_REQUIRED, "PATH", "let the command read and write PATH",
     COMPLETE_PATH},
    {RUN_RO, "ro", 0, ARGUMENT_REQUIRED, "PATH", "let the command read PATH", COMPLETE_PATH},
    {RUN_BLACKLIST, "blacklist", 0, ARGUMENT_REQUIRED, "PATH", "hide PATH", COMPLETE_PATH},
    {RUN_UNPROTECT, "unprotect", 0, ARGUMENT_REQUIRED, "NAME",
     "let it change a protected name, such as .git/config", COMPLETE_PATH},
    {RUN_ALLOW_NETWORK, "allow-network", 0, ARGUMENT_OPTIONAL, "HOST,...",
     "allow the network, or only the hosts listed", COMPLETE_NONE},
    {RUN_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME[=VALUE]",
     "pass an environment variable, or set it", COMPLETE_NONE},
    {RUN_POLICY, "policy", 0, ARGUMENT_REQUIRED, "FILE",
     "apply one more policy file, over all others", COMPLETE_PATH},
    {RUN_STATIC, "static", 0, ARGUMENT_NONE, NULL, "never ask: as for the back ends anyway",
     COMPLETE_NONE},
    {RUN_NO_DEBUG, "no-debug", 0, ARGUMENT_NONE, NULL, "forbid ptrace inside", COMPLETE_NONE},
    {RUN_MEMORY, "memory", 0, ARGUMENT_REQUIRED, "SIZE", "limit memory: 512M", COMPLETE_NONE},
    {RUN_CPUS, "cpus", 0, ARGUMENT_REQUIRED, "NUMBER", "limit processors: 0.5", COMPLETE_NONE},
    {RUN_PIDS, "pids", 0, ARGUMENT_REQUIRED, "NUMBER", "limit processes and threads: 50",
     COMPLETE_NONE},
    {RUN_OPEN_FILES, "open-files", 0, ARGUMENT_REQUIRED, "NUMBER",
     "limit open files of each process", COMPLETE_NONE},
    {RUN_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR", COMPLETE_FOLDER},
    {RUN_COMMAND, "command", 'c', ARGUMENT_REQUIRED, "STRING", "run STRING with the shell",
     COMPLETE_NONE},
    {RUN_TTY, "tty", 0, ARGUMENT_REQUIRED, "WHEN", "arrange for a terminal", COMPLETE_WORDS,
     "auto always never"},
    {0},
};

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
  struct run_elsewhere elsewhere = run_describe_elsewhere(run, backend, scratch);
  elsewhere.only_words = elsewhere.request.only_words = true;
  if (!backend || run_plan_elsewhere(run, &elsewhere.asked, error) < 0 ||
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
  run_show_warnings(run);
  if (backend->wrap(&elsewhere.request, ret_wrapped, error) < 0)
    return -1;
  wrapped_complete(ret_wrapped, &elsewhere.request);
  return 0;
}

static int wrap(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_wrapped_ struct wrapped wrapped = WRAPPED_NONE;
  __attribute__((cleanup(run_clear))) struct run run = {
      .invocation = invocation, .log = LOG_NONE, .ready_fd = -1, .overlay_lock = -1};
  if (invocation->operand_count == 0 && !invocation_value(invocation, RUN_COMMAND)) {
    sb_fail(&error, SB_CODE_USAGE, 0, "wrap needs a command");
    sb_hint(&error, "sandbox wrap --backend bwrap -- make");
    return cli_report_for(invocation, &error);
  }
  if (run_prepare(&run, &error) < 0 || wrap_command(&run, &wrapped, &error) < 0)
    return cli_report_for(invocation, &error);
  return print_wrapped(&run, &wrapped);
}

const struct verb wrap_verb = {
    .name = "wrap",
    .synopsis = "--backend NAME [OPTION]... [--] COMMAND [ARGUMENT]...",
    .summary = "print the command line that would run a command in another sandbox",
    .description =
        "Prints the words, quoted for bash, with which the program of the back end runs COMMAND as "
        "the policy says; nothing is started. With --json: argv, env, fds (descriptors to open, "
        "with their content), files to make, and end_argv, which removes them again. Limits that only a cgroup can hold are refused, since "
        "nobody would hold them.",
    .options = options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_COMMAND,
    .run = wrap,
};
