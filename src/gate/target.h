/* A process that waits in a system call, looked at from outside: its memory, its folders, its
 * numbers. Everything read here is what it was at that moment: the caller asks the kernel
 * afterwards whether the call still waits, and never takes a decision on it that the mounts do not
 * hold by themselves. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct target {
  pid_t thread;   /* as we see it */
  bool may_stall; /* its memory may be a file that we serve ourselves: reading it must not wait */
};

/* Reads a path from its memory. -EFAULT: there is none, or not in time; -EPERM: it cannot be read.
 */
int target_read_path(const struct target *target, uint64_t address, char ret_path[PATH_MAX]);
int target_read(const struct target *target, uint64_t address, void *ret_data, size_t size);

/* Opens its memory for writing: it stays this one's, even if the number becomes another's. */
int target_open_memory(const struct target *target);

/* Is this one of our own that has not become a command yet? Its memory is closed to everybody. */
bool target_is_ours(const struct target *target);

/* A relative path of its own as a path of ours. `fd` is the folder that it starts from: the call's
 * descriptor, or AT_FDCWD. False if it would be too long. */
bool target_name(const struct target *target, int fd, const char *path, char ret_name[PATH_MAX]);

/* What it has open there, to look at (O_PATH); or a negative errno. */
int target_open_descriptor(const struct target *target, int fd);

/* That folder; or a negative errno. */
int target_open_folder(const struct target *target, int fd);

/* The folder that a relative path starts from: a descriptor of it and its name in the session. */
int target_folder(const struct target *target, int fd, int *ret_fd, char ret_path[PATH_MAX]);

/* What it calls itself. False if it is gone. */
#define TARGET_NAME_SIZE 64
bool target_read_name(const struct target *target, char ret_name[TARGET_NAME_SIZE]);

/* Its process; and process and thread by the numbers that they have inside. 0: not known. */
pid_t target_process(const struct target *target);
void target_inside(const struct target *target, pid_t *ret_process, pid_t *ret_thread);

/* Does somebody hold it already? Only one can. */
bool target_is_traced(const struct target *target);
