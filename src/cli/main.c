/* The command `sandbox`: a table of verbs and nothing else. What a verb does is in its own file. */
#include "cli/cli.h"
#include "cli/help.h"
#include "cli/parse.h"
#include "core/alloc.h"

const struct verb *const verbs[] = {
    &run_verb,    &exec_verb,     &attach_verb,   &ps_verb,     &stats_verb,
    &kill_verb,   &watch_verb,    &approve_verb,  &deny_verb,   &diff_verb,
    &apply_verb,  &discard_verb,  &report_verb,   &wrap_verb,   &backends_verb,
    &policy_verb, &audit_verb,    &learn_verb,    &decide_verb, &doctor_verb,
    &help_verb,   &complete_verb, &landlock_verb, &manual_verb, NULL,
};

static const struct option_spec command_options[] = {
    {OPTION_VERSION, "version", 'V', .help = "show the version and exit"},
    {0},
};

const struct verb command_verb = {
    .synopsis = "VERB [OPTION]... [ARGUMENT]...",
    .summary = "run commands that nobody has read",
    .description =
        "Runs a command on your own machine so that it finds its tools, paths and caches where "
        "they always are, but can read, write and reach only what it was allowed.",
    .options = command_options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_VERB,
};

static int run_verb_with(const struct verb *verb, char **arguments) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_invocation_ struct invocation invocation = {0};
  if (cli_parse(verb, arguments, &invocation, &error) < 0)
    return cli_wants_json(verb, arguments) ? cli_report_json(&error) : cli_report(&error);
  if (invocation_has(&invocation, OPTION_HELP))
    return help_for_verb(verb);
  return verb->run(&invocation);
}

int main(int count, char **arguments) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_invocation_ struct invocation invocation = {0};
  const struct verb *verb;
  alloc_last_words = "sandbox: out of memory\n";
  if (count < 1 || cli_parse(&command_verb, arguments + 1, &invocation, &error) < 0)
    return cli_report(&error);
  if (invocation_has(&invocation, OPTION_HELP))
    return help_command();
  if (invocation_has(&invocation, OPTION_VERSION))
    return help_version();
  if (invocation.operand_count == 0)
    return help_no_verb();
  if (cli_find_verb(verbs, invocation.operands[0], &verb, &error) < 0)
    return cli_report(&error);
  return run_verb_with(verb, invocation.operands + 1);
}
