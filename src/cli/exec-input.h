/* A file as stdin of `sandbox exec` in a session that must not get it: nothing there would keep the
 * command from opening it again for writing. The command gets a pipe that a process of ours fills,
 * and whatever it does not read is put back. */
#pragma once

#include <sys/types.h>

#include "core/error.h"

struct exec_input {
  int reader;   /* the command's stdin */
  pid_t feeder; /* 0: there is none */
};

int exec_input_open(struct exec_input *ret_input, struct sb_error *error);
void exec_input_close(struct exec_input *input);
