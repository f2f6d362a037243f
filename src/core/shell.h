/* The simple commands of a shell string, where they can be told with certainty. Not a shell: what
 * it does not know for sure (substitutions, variables, redirections to files, assignments, groups,
 * keywords ...) makes the whole string doubtful, and the caller then assumes the worst. Debian has
 * no shell parser as a C library. Pure. */
#pragma once

#include <stddef.h>

#include "core/strv.h"

struct shell_command {
  struct strv words; /* quotes removed; at least one */
};

struct shell_script {
  struct shell_command *commands;
  size_t count;
  char *doubt; /* what is not understood ("a substitution"); NULL if all is */
};

void shell_split(const char *script, struct shell_script *ret);
void shell_script_clear(struct shell_script *script);
#define _cleanup_shell_script_ __attribute__((cleanup(shell_script_clear)))
