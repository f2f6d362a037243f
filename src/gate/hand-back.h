/* Gives a thread that waits in a system call the result of one that was made in its place. A file
 * system can answer a walk with an error only, and no call succeeds without its object; so the
 * thread is stopped on its way out of the kernel, and finds the value instead of the error. Only
 * one process can do that to a thread: if a debugger has it, it cannot be done. In the same way a
 * call begins anew that the kernel itself does not repeat.
 *
 * Whoever does it may die at any moment: the kernel then lets the thread go, with the error. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The error that the call must have failed with; anything else is left as it is. */
#define HAND_BACK_ERROR EACCES

/* Takes hold of the thread, which notices nothing. 0 or a negative errno. */
int hand_back_begin(pid_t thread);

/* It will stop when its call is over: from now on that may end. */
int hand_back_prepare(pid_t thread);

/* Waits for that. False: it is dead, or something else stopped it; it is let go then. */
bool hand_back_wait(pid_t thread);

/* Puts the value in place of the error; or makes the call begin anew, of which `first` is the first
 * argument. Then the thread is let go. */
void hand_back_value(pid_t thread, long value);
void hand_back_again(pid_t thread, uint64_t first);

/* The same after an errand (errand.h): the kernel does not look for errors of its own any more. */
void hand_back_restart(pid_t thread, uint64_t first);
