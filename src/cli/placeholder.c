/* Stands in for verbs that are written elsewhere, so that the command links. To be dropped. */
#include "cli/cli.h"

static int not_yet(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  sb_fail(&error, SB_CODE_UNSUPPORTED, 0, "'%s' is not built in yet", invocation->verb->name);
  return cli_report_for(invocation, &error);
}

const struct verb policy_verb = {
    .name = "policy", .synopsis = "...", .summary = "show and check the policy", .run = not_yet};
