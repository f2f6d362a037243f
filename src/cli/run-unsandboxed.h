/* Commands that `sandbox run` runs without a sandbox: excluded ones, and those of --bypass. */
#pragma once

#include "cli/cli.h"
#include "plan/project.h"

/* 1 if the command is to run without a sandbox, which is on record by then; 0 if not; -1 if it must
 * not run at all. `command` is what would be executed. */
int run_without_sandbox(const struct invocation *invocation, const struct host_context *host,
                        struct policy *policy, char *const *command, struct sb_error *error);

/* Puts on record that a command is about to run without a sandbox for another reason: event
 * "disabled" (the policy wants none) or "preferred" (none can be had). */
int run_record_unsandboxed(const struct host_context *host, const char *event, const char *reason,
                           char *const *command, struct sb_error *error);
