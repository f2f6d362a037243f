/* Private to src/backend: the tree of processes below a tool, by /proc, and signals to parts of it.
 */
#pragma once

#include <sys/types.h>

/* Signals every descendant of a process. */
void processes_signal_below(pid_t ancestor, int signal);

/* The first command in the pid namespace that a tool has made: the eldest child of the process
 * with pid 1 there. 0 if there is none (yet). */
pid_t processes_first_inside(pid_t tool);

/* Kills our own children, and all below them, that were started with SANDBOX=id in their
 * environment: a guard was killed, and what it left has come to us. Returns when they are gone. */
void processes_kill_orphans(const char *session_id);

/* Signals every process of that namespace but its first. */
void processes_signal_inside(pid_t tool, int signal);
