/* See run-unsandboxed.h. Nothing runs without a sandbox that was not written to the audit log
 * before. */
#include "cli/run-unsandboxed.h"

#include <jansson.h>
#include <string.h>

#include "audit/audit.h"
#include "cli/run-options.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "plan/unsandboxed.h"

static int refuse(const struct invocation *invocation, const struct command_verdict *verdict,
                  struct sb_error *error) {
  const char *last = verdict->reasons.items[verdict->reasons.count - 1];
  sb_fail(error, SB_CODE_DENIED, 0, "not run: %s", last);
  if (invocation_has(invocation, RUN_BYPASS))
    return sb_hint(error, "leave --bypass out, or ask whoever keeps the policy");
  return sb_hint(error, "set commands.allow_unsandboxed: true, or take it out of commands.exclude");
}

static int record(const struct host_context *host, const char *event, const char *reason,
                  bool excluded, char *const *command, struct sb_error *error) {
  size_t count = 0;
  while (command[count])
    count++;
  json_t *fields = json_object();
  json_set_string(fields, "reason", reason);
  json_set_words(fields, "command", command, count);
  json_set_path(fields, "cwd", host->cwd);
  json_object_set_new(fields, "excluded", json_boolean(excluded));
  if (host->state_home)
    return audit_note(host->state_home, event, fields, error);
  json_decref(fields);
  return sb_fail(error, SB_CODE_UNSUPPORTED, 0,
                 "without a home folder there is no audit log, and without that no way around the "
                 "sandbox");
}

int run_record_unsandboxed(const struct host_context *host, const char *event, const char *reason,
                           char *const *command, struct sb_error *error) {
  return record(host, event, reason, false, command, error);
}

static int check_reason(const char *reason, struct sb_error *error) {
  if (!reason || strspn(reason, " \t\n") < strlen(reason))
    return 0;
  sb_fail(error, SB_CODE_USAGE, 0, "--bypass needs a reason");
  return sb_hint(error, "the reason goes to the audit log: --bypass 'docker needs its socket'");
}

int run_without_sandbox(const struct invocation *invocation, const struct host_context *host,
                        struct policy *policy, char *const *command, struct sb_error *error) {
  _cleanup_command_verdict_ struct command_verdict verdict = {0};
  const char *reason = invocation_value(invocation, RUN_BYPASS);
  if (check_reason(reason, error) < 0)
    return -1;
  if (!reason && policy->commands.exclude.count == 0)
    return 0;
  policy_resolve(policy);
  const struct command_question question = {
      .host = host,
      .policy = policy,
      .script = invocation_value(invocation, RUN_COMMAND),
      .arguments = command,
      .bypass = reason != NULL,
  };
  command_decide(&question, &verdict);
  if (verdict.refused)
    return refuse(invocation, &verdict, error);
  if (verdict.sandboxed || (!verdict.excluded && !reason))
    return 0;
  if (record(host, reason ? "bypass" : "excluded", reason, verdict.excluded, command, error) < 0)
    return -1;
  _cleanup_free_ char *shown = escape_string(command[0]);
  cli_warn("NOT SANDBOXED: '%s' runs with all of your rights (%s)", shown,
           reason ? "--bypass; it is in the audit log" : "commands.exclude");
  return 1;
}
