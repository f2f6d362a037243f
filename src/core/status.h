/* Lines of /proc/PID/status. The first one has the process's name, which it chose itself: a label
 * counts only at the beginning of a later line. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* What follows a label such as "State:", after blanks; "" if there is no such line. */
const char *status_field(const char *status, const char *label);

/* The last number of a line such as "NSpid:\t4711\t12", which is the innermost namespace's; 0 if
 * there is none. `ret_count` (may be NULL): how many there are. */
pid_t status_innermost(const char *status, const char *label, size_t *ret_count);

/* The set of signals of a line such as "SigCgt:". */
uint64_t status_signals(const char *status, const char *label);

/* Those that wait for a thread, and that it does not block. */
uint64_t status_pending(const char *status);

/* Is there one that ends a call which waits for a decision? On a local disk no signal interrupts an
 * open or a stat, and few programs expect it: a window that changes its size, a child that ends or
 * a timer must not fail the call. Ctrl-C and whatever ends programs must, unless the thread blocks
 * it: then it ends nothing outside, either, and the call would begin anew for ever. */
bool status_ends_wait(const char *status);
