/* Small file and descriptor helpers. Every descriptor is O_CLOEXEC from birth. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"

struct stat;

/* Reads a whole file of at most `limit` bytes, relative to a directory (AT_FDCWD for the cwd).
 * Returns 0, or a negative errno (-EFBIG if larger); *ret_data is NUL-terminated. */
int file_read_at(int directory, const char *path, size_t limit, char **ret_data,
                 size_t *ret_length);

/* Writes everything, restarting after short writes and EINTR. Returns 0 or a negative errno. */
int file_write_all(int fd, const void *data, size_t length);

/* Replaces a file atomically: temporary name, fsync, rename. Returns 0 or a negative errno. */
int file_replace_at(int directory, const char *path, const void *data, size_t length, mode_t mode);

/* Gives a file that was opened without a name (O_TMPFILE) its name. 0 or a negative errno. */
int file_name_nameless(int fd, int directory, const char *path);

/* flock with patience for two seconds: our locks are held for milliseconds, and a holder that was
 * stopped must not stop everybody else. 0 or a negative errno, -EBUSY when it takes longer. */
int file_lock(int fd, int operation);

/* mkdir -p with the given mode for every folder that is made. Returns 0 or a negative errno. */
int file_make_folders(const char *path, mode_t mode);

/* Makes one folder that only we can use, or makes sure that an existing one is: ours, 0700, no
 * symbolic link. Names in /tmp can be guessed and made by others first. 0 or a negative errno. */
int file_private_folder(const char *path);

/* The same without making it: -ENOENT if there is none, -EPERM if it is not ours alone. */
int file_check_private_folder(const char *path);

/* Passes descriptors and a small payload over a UNIX socket. 0 or a negative errno. */
#define FD_PASS_LIMIT 4
int fd_send(int socket, const int *fds, size_t count, const void *payload, size_t length);

/* Receives them; what was not passed is -1 in ret_fds. Returns the payload's length (0: end of
 * file) or a negative errno; more descriptors than the limit are closed. */
ssize_t fd_receive(int socket, int ret_fds[FD_PASS_LIMIT], void *payload, size_t capacity);

/* Fills those of stdin, stdout and stderr that the caller left closed with /dev/null: something of
 * ours would land on their numbers. 0 or a negative errno. */
int fd_reserve_standard(void);

/* Closes a descriptor whose closing takes the kernel long (a grace period for watches: 10 ms and
 * more), without waiting for it where that can be had (Linux 6.9). */
void fd_abandon(int fd);

/* Is it a file or device that its holder may read, and could open again for writing by
 * /proc/self/fd? Not pipes, sockets, terminals, and devices that forget what they get; nor folders,
 * which no command gets at all. */
bool fd_is_readable_file(int fd);

/* Closes every descriptor above 2 that is not listed. Raw: no allocation. */
void fd_close_others(const int *kept, size_t count);

/* Resolves a path to the canonical name of an existing object; negative errno on failure. One open
 * instead of realpath's look at each component: most names that are asked for do not exist. */
int file_resolve(const char *path, char **ret_path);

/* The same, and what it is. */
int file_resolve_status(const char *path, char **ret_path, struct stat *ret_status);
