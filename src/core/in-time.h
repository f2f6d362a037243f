/* System calls that may have to wait for somebody who waits for us. Whoever looks into a process
 * waits for its memory: for a page that is being read from a file, or for one who changes it. If
 * the file is one that we serve, that is us. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What is to be done: system calls, and nothing else. */
typedef void in_time_call(void *context);

/* Does it in a process of its own, with our memory and descriptors, that can be killed. False if
 * that took longer than so many milliseconds, or could not be begun; it is over either way. Whoever
 * is too slow again and again would keep us from everything else: there is a limit to all that is
 * waited for in vain, and hardly any patience after that. */
bool in_time(in_time_call *call, void *context, int milliseconds);

/* Reads a file of /proc, as much as there is room for. The length, or a negative errno:
 * -ETIMEDOUT. */
ssize_t in_time_read(int fd, char *ret_data, size_t size, int milliseconds);
