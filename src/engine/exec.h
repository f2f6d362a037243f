/* More commands in a running session, inside init: what `sandbox exec` and `attach` ask for. No
 * allocation; the description comes in a memory file that is mapped for the time of the start. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/report.h"
#include "limits/limits.h"

#define EXEC_LIMIT 512 /* commands that run at the same time */

struct exec_table {
  struct {
    pid_t waited;  /* the process we wait for */
    pid_t command; /* the command itself */
    uint32_t id;
  } items[EXEC_LIMIT];
  size_t count;
};

struct exec_input {
  int channel;
  uint32_t id;
  struct start_report *report;
  sigset_t mask;
  const struct limit_rlimits *rlimits;
  const int *fds; /* description, stdin, stdout, stderr; -1 where none came */
};

/* Starts one; returns its pid inside or a negative errno. */
int exec_start(struct exec_table *table, const struct exec_input *input);

/* Takes note that a process ended; true if it was one of ours. */
bool exec_table_end(struct exec_table *table, pid_t pid, uint32_t *ret_id);

/* Signals the process group of one. */
void exec_table_signal(const struct exec_table *table, uint32_t id, int signal);
