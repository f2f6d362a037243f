/* `sandbox decide`: would this command be sandboxed, and should somebody be asked first? For
 * programs that run commands on somebody's behalf. Runs nothing. */
#include <string.h>

#include "cli/cli.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "core/text.h"
#include "plan/unsandboxed.h"

enum decide_option { DECIDE_COMMAND, DECIDE_BYPASS, DECIDE_POLICY, DECIDE_JSON };

static const struct option_spec decide_options[] = {
    {DECIDE_COMMAND, "command", 'c', ARGUMENT_REQUIRED, "STRING",
     "ask about a string for the shell", COMPLETE_NONE},
    {DECIDE_BYPASS, "bypass", 0, ARGUMENT_NONE, NULL, "ask about running it with --bypass",
     COMPLETE_NONE},
    {DECIDE_POLICY, "policy", 0, ARGUMENT_REQUIRED, "FILE",
     "apply one more policy file, over all others", COMPLETE_PATH},
    {DECIDE_JSON, "json", 0, ARGUMENT_NONE, NULL, "print the answer as JSON", COMPLETE_NONE},
    {0},
};

static const char *answer_of(const struct command_verdict *verdict) {
  if (verdict->refused)
    return "refused";
  if (verdict->sandboxed)
    return verdict->needs_approval ? "sandboxed, after somebody approved it" : "sandboxed";
  return "not sandboxed, after somebody approved it";
}

static int print_verdict(const struct invocation *invocation,
                         const struct command_verdict *verdict) {
  if (invocation_has(invocation, DECIDE_JSON)) {
    json_t *object = command_verdict_to_json(verdict);
    _cleanup_free_ char *line = json_line(object);
    json_decref(object);
    return cli_print(line);
  }
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "%s\n", answer_of(verdict));
  STRV_FOREACH (reason, &verdict->reasons)
    text_appendf(&text, "  %s\n", *reason);
  return cli_print(text_string(&text));
}

static int check_usage(const struct invocation *invocation, struct sb_error *error) {
  bool script = invocation_has(invocation, DECIDE_COMMAND);
  if (script != (invocation->operand_count > 0))
    return 0;
  sb_fail(error, SB_CODE_USAGE, 0,
          script ? "both -c and a command were given" : "decide needs a command");
  return sb_hint(error, "sandbox decide -c 'make && make test', or: sandbox decide -- make");
}

static int load_policy(const struct invocation *invocation, const struct host_context *host,
                       struct policy **ret_policy, struct sb_error *error) {
  if (policy_load(&host->policy, ret_policy, error) < 0)
    return -1;
  for (size_t i = 0; i < invocation->option_count; i++) {
    const struct given_option *given = &invocation->options[i];
    if (given->spec->id == DECIDE_POLICY &&
        policy_load_file(&host->policy, given->value, STORE_FLAGS, *ret_policy, error) < 0)
      return -1;
  }
  policy_resolve(*ret_policy);
  return 0;
}

static int run_decide(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  _cleanup_policy_ struct policy *policy = NULL;
  _cleanup_command_verdict_ struct command_verdict verdict = {0};
  if (check_usage(invocation, &error) < 0 || host_context_load(&host, &error) < 0 ||
      load_policy(invocation, &host, &policy, &error) < 0)
    return cli_report_for(invocation, &error);
  STRV_FOREACH (line, &policy->ignored)
    cli_warn("%s", *line);
  const struct command_question question = {
      .host = &host,
      .policy = policy,
      .script = invocation_value(invocation, DECIDE_COMMAND),
      .arguments = invocation->operands,
      .bypass = invocation_has(invocation, DECIDE_BYPASS),
  };
  command_decide(&question, &verdict);
  return print_verdict(invocation, &verdict);
}

const struct verb decide_verb = {
    .name = "decide",
    .synopsis = "[OPTION]... (-c STRING | [--] COMMAND [ARGUMENT]...)",
    .summary = "say whether a command would be sandboxed",
    .description =
        "Says whether 'sandbox run' would run COMMAND in a sandbox, whether the policy excludes it "
        "from sandboxing (commands.exclude), and whether a person should be asked before it runs. "
        "Nothing is run. A command is excluded by the program it resolves to; of a shell string "
        "every command must be, and a string that cannot be read with certainty is not.",
    .options = decide_options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_COMMAND,
    .run = run_decide,
};
