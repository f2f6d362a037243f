/* Processes of another pid namespace by the numbers that they have here. */
#pragma once

#include <sys/types.h>

/* The process of the thread with this number in there, and the thread itself. -ENOTTY: the kernel
 * does not tell (before Linux 6.11). */
pid_t pid_numbers_process(int pid_namespace, pid_t inside);
pid_t pid_numbers_thread(int pid_namespace, pid_t inside);
