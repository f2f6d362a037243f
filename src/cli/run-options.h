/* The options of `sandbox run`: ids here, everything else in the table of run-options.c. */
#pragma once

#include "cli/cli.h"

enum run_option {
  RUN_MODE,
  RUN_STATIC,
  RUN_NO_DEBUG,
  RUN_RW,
  RUN_RO,
  RUN_OVERLAY,
  RUN_BLACKLIST,
  RUN_UNPROTECT,
  RUN_ALLOW_NETWORK,
  RUN_ENV,
  RUN_POLICY,
  RUN_REQUIRE,
  RUN_BACKEND,
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
};

extern const struct option_spec run_options[];

/* In run.c. */
int run_main(const struct invocation *invocation);
