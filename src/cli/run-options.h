/* The options of `sandbox run`: ids here, everything else in the table of run-options.c. */
#pragma once

#include "cli/cli.h"
#include "plan/plan.h"
#include "policy/policy.h"

enum run_option {
  RUN_MODE,
  RUN_STATIC,
  RUN_GATE,
  RUN_NO_DEBUG,
  RUN_RW,
  RUN_RO,
  RUN_OVERLAY,
  RUN_BLACKLIST,
  RUN_UNPROTECT,
  RUN_ALLOW_NETWORK,
  RUN_NETWORK_DRIVER,
  RUN_PUBLISH,
  RUN_ENV,
  RUN_POLICY,
  RUN_REQUIRE,
  RUN_BACKEND,
  RUN_WEAKEN,
  RUN_IMAGE,
  RUN_TIME_OFFSET,
  RUN_CHDIR,
  RUN_COMMAND,
  RUN_TTY,
  RUN_DRY_RUN,
  RUN_JSON,
  RUN_REPORT,
  RUN_TIMING,
  RUN_VERBOSE,
  RUN_QUIET,
  RUN_SUMMARY,
  RUN_MEMORY,
  RUN_CPUS,
  RUN_PIDS,
  RUN_TIMEOUT,
  RUN_DISK,
  RUN_INODES,
  RUN_IO,
  RUN_OPEN_FILES,
  RUN_FILE_SIZE,
  RUN_DETACH,
  RUN_SUPERVISED,
  RUN_MAX_OUTPUT,
  RUN_STATUS_FD,
  RUN_LOG,
  RUN_LOG_LEVEL,
  RUN_BYPASS,
  RUN_LIFELINE,
};

/* In run-limits.c: 0 if the option is none of the limits. */
int run_apply_limit_flag(struct policy *policy, const struct given_option *given,
                         struct sb_error *error);

/* In run.c. */
int run_main(const struct invocation *invocation);

/* The stores, the flags and, in dynamic mode, what needs no question. On failure *ret_policy may be
 * set all the same, and is to be freed. */
int run_load_policy(const struct invocation *invocation, const struct host_context *host,
                    struct policy **ret_policy, struct sb_error *error);

/* Which trigger makes an access wait, if the mode is dynamic. */
enum gate_kind run_choose_gate(const struct invocation *invocation);

/* Where another engine runs the command, the mode that nobody chose is static. */
void run_settle_mode(struct policy *policy, bool elsewhere);
