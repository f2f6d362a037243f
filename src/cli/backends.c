/* sandbox backends: which engines there are, what each can enforce, and which work here. */
#include "backend/backend.h"
#include "cli/cli.h"
#include "core/cleanup.h"
#include "core/json.h"

enum { OPTION_JSON };

static const struct option_spec options[] = {
    {OPTION_JSON, "json", .help = "print the matrix as JSON"},
    {.name = NULL},
};

static int print(const struct invocation *invocation, const struct host_context *host,
                 const struct policy *policy) {
  if (!invocation_has(invocation, OPTION_JSON)) {
    _cleanup_free_ char *text = backend_list_to_text(host, policy);
    return cli_print(text);
  }
  json_t *object = backend_list_to_json(host, policy);
  _cleanup_free_ char *line = json_line(object);
  json_decref(object);
  return cli_print(line);
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  _cleanup_policy_ struct policy *policy = NULL;
  if (host_context_load(&host, &error) < 0 || policy_load(&host.policy, &policy, &error) < 0)
    return cli_report_for(invocation, &error);
  return print(invocation, &host, policy);
}

const struct verb backends_verb = {
    .name = "backends",
    .synopsis = "[OPTION]...",
    .summary = "list the engines that can confine a command",
    .description =
        "Prints which back ends work on this machine, found by trying each, with the fix for those "
        "that do not, and a table of what each can enforce. 'sandbox run --backend NAME' uses one; "
        "without it the native engine runs, or, where it cannot, the first of the list that is as "
        "strong and can honour the policy.",
    .options = options,
    .run = run,
};
