/* Stands in for `sandbox run`, which is written elsewhere. To be dropped. */
#include "cli/run-options.h"

int run_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  sb_fail(&error, SB_CODE_UNSUPPORTED, 0, "'run' is not built in yet");
  return cli_report_for(invocation, &error);
}
