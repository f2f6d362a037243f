/* A command without any confinement, where policy or the caller says so. */
#pragma once

#include "cli/run-result.h"

/* Executes it in our place; with `capture_limit` above 0 waits for it instead and prints the result
 * as JSON, as of a session. Returns the exit code. */
int run_plain(const struct invocation *invocation, const struct run_output *output,
              char *const *command, size_t capture_limit);
