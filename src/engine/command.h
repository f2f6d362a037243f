/* Starts a command inside the session: the workload itself or one more (`sandbox exec`). Init is
 * confined already, and so is whatever it starts; here only the process itself is arranged. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

#include "engine/report.h"
#include "limits/limits.h"

struct command {
  char **arguments;        /* NULL-terminated */
  char **script_arguments; /* the same with two words in front for a shell: see plan.h */
  char **environment;
  char **executables; /* where to look, in order */
  const char *folder;
  int descriptors[3]; /* stdin, stdout and stderr: as they are (-1), or replaced by these */
  int terminal;       /* the controlling terminal, or -1 */
  const struct limit_rlimits *rlimits; /* set right before the exec; may be NULL */
  sigset_t mask;
  struct announced_path *announced; /* may be NULL */
};

/* Starts it and returns once its exec has succeeded or failed: the pid to wait for, or -1 with the
 * reason. *ret_command is the pid of the command itself (the same, unless it has a terminal). The
 * failure must lie in memory that a vfork or MAP_SHARED child shares. */
pid_t command_spawn(const struct command *command, struct command_failure *failure,
                    volatile pid_t *ret_command);
