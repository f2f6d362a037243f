/* The exit codes that are ours, as docs/RESULTS.md tells them; every other one is the workload's
 * own. Also for the small programs of the back ends, so that it needs nothing but this file. */
#pragma once

#include <errno.h>

enum exit_code {
  EXIT_CODE_TIMEOUT = 124,
  EXIT_CODE_FAILURE = 125, /* we failed before the workload ran */
  EXIT_CODE_CANNOT_EXECUTE = 126,
  EXIT_CODE_NOT_FOUND = 127,
};

/* Of a command whose exec failed, as shells have it. */
static inline enum exit_code exit_code_of_exec(int errnum) {
  return errnum == ENOENT ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE;
}
