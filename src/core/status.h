/* Lines of /proc/PID/status. The first one has the process's name, which it chose itself: a label
 * counts only at the beginning of a later line. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

/* What follows a label such as "State:", after blanks; "" if there is no such line. */
const char *status_field(const char *status, const char *label);

/* The last number of a line such as "NSpid:\t4711\t12", which is the innermost namespace's; 0 if
 * there is none. `ret_count` (may be NULL): how many there are. */
pid_t status_innermost(const char *status, const char *label, size_t *ret_count);
