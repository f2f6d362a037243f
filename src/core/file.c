/* Small file and descriptor helpers; see file.h. */
#include "core/file.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"

int file_read_at(int directory, const char *path, size_t limit, char **ret_data,
                 size_t *ret_length) {
  /* O_NONBLOCK: a FIFO planted under a config file's name must not hang us. */
  _cleanup_close_ int fd = openat(directory, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return -errno;
  struct stat status;
  if (fstat(fd, &status) < 0)
    return -errno;
  if (S_ISDIR(status.st_mode))
    return -EISDIR;
  if (status.st_size > 0 && (uintmax_t)status.st_size > limit)
    return -EFBIG;

  size_t capacity = status.st_size > 0 ? (size_t)status.st_size + 1 : 4096, length = 0;
  _cleanup_free_ char *data = xmalloc(capacity + 1);
  for (;;) {
    if (length == capacity) {
      capacity *= 2;
      data = xreallocarray(data, capacity + 1, 1);
    }
    ssize_t got = read(fd, data + length, capacity - length);
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return -errno;
    if (got == 0)
      break;
    length += (size_t)got;
    if (length > limit)
      return -EFBIG;
  }
  data[length] = '\0';
  *ret_data = steal_pointer(data);
  if (ret_length)
    *ret_length = length;
  return 0;
}

int file_write_all(int fd, const void *data, size_t length) {
  const char *at = data;
  while (length > 0) {
    ssize_t written = write(fd, at, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written < 0)
      return -errno;
    at += written;
    length -= (size_t)written;
  }
  return 0;
}

/* Not by our pid: in a container everybody has the same, and what a killed one left would be in the
 * way for ever. */
static char *temporary_name(const char *path) {
  uint64_t number = 0;
  (void)!getrandom(&number, sizeof number, GRND_NONBLOCK);
  return xasprintf("%s.%016llx.tmp", path, (unsigned long long)number);
}

static int write_new(int fd, const void *data, size_t length) {
  int result = file_write_all(fd, data, length);
  return result == 0 && fsync(fd) < 0 ? -errno : result;
}

/* Nameless until it is complete, so that whoever is killed meanwhile leaves nothing; where the file
 * system has no such files, with its name from the start. */
static int make_temporary(int directory, const char *temporary, const void *data, size_t length,
                          mode_t mode) {
  _cleanup_free_ char *folder = strchr(temporary, '/') ? path_parent(temporary) : xstrdup(".");
  _cleanup_close_ int fd = openat(directory, folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  bool nameless = fd >= 0;
  if (!nameless)
    fd = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (fd < 0)
    return -errno;
  int result = write_new(fd, data, length);
  return result == 0 && nameless ? file_name_nameless(fd, directory, temporary) : result;
}

int file_replace_at(int directory, const char *path, const void *data, size_t length, mode_t mode) {
  _cleanup_free_ char *temporary = temporary_name(path);
  int result = make_temporary(directory, temporary, data, length, mode);
  if (result == 0 && renameat(directory, temporary, directory, path) < 0)
    result = -errno;
  if (result < 0)
    unlinkat(directory, temporary, 0);
  return result;
}

int file_lock(int fd, int operation) {
  for (int i = 0; i < 2000; i++) {
    if (flock(fd, operation | LOCK_NB) == 0)
      return 0;
    if (errno != EWOULDBLOCK && errno != EINTR)
      return -errno;
    nanosleep(&(struct timespec){.tv_nsec = 1000 * 1000}, NULL);
  }
  return -EBUSY;
}

int file_name_nameless(int fd, int directory, const char *path) {
  char nameless[32];
  snprintf(nameless, sizeof nameless, "/proc/self/fd/%d", fd);
  return linkat(AT_FDCWD, nameless, directory, path, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

int file_make_folders(const char *path, mode_t mode) {
  if (mkdir(path, mode) == 0 || errno == EEXIST)
    return 0;
  if (errno != ENOENT)
    return -errno;

  _cleanup_free_ char *partial = xstrdup(path);
  for (char *slash = strchr(partial + 1, '/');; slash = strchr(slash + 1, '/')) {
    if (slash)
      *slash = '\0';
    if (mkdir(partial, mode) < 0 && errno != EEXIST)
      return -errno;
    if (!slash)
      return 0;
    *slash = '/';
  }
}

int file_check_private_folder(const char *path) {
  struct stat status;
  if (lstat(path, &status) < 0)
    return -errno;
  bool ours = S_ISDIR(status.st_mode) && status.st_uid == geteuid() && !(status.st_mode & 0077);
  return ours ? 0 : -EPERM;
}

int file_private_folder(const char *path) {
  if (mkdir(path, 0700) < 0 && errno != EEXIST)
    return -errno;
  return file_check_private_folder(path);
}

union fd_control {
  char bytes[CMSG_SPACE(FD_PASS_LIMIT * sizeof(int))];
  struct cmsghdr align;
};

int fd_send(int socket, const int *fds, size_t count, const void *payload, size_t length) {
  union fd_control control = {0};
  struct iovec part = {.iov_base = (void *)payload, .iov_len = length};
  struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (count > FD_PASS_LIMIT)
    return -EINVAL;
  if (count > 0) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    memcpy(CMSG_DATA(header), fds, count * sizeof(int));
  }
  ssize_t sent;
  do
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

/* A socket pair that carries itself can be reached by nobody; the kernel's collector finds it and
 * closes what else it carries, in a worker of its own. */
void fd_abandon(int fd) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0) {
    const int fds[] = {fd, ends[0], ends[1]};
    (void)fd_send(ends[0], fds, ARRAY_SIZE(fds), "", 1);
    close(ends[0]);
    close(ends[1]);
  }
  close(fd);
}

ssize_t fd_receive(int socket, int ret_fds[FD_PASS_LIMIT], void *payload, size_t capacity) {
  union fd_control control;
  struct iovec part = {.iov_base = payload, .iov_len = capacity};
  struct msghdr message = {.msg_iov = &part,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  for (size_t i = 0; i < FD_PASS_LIMIT; i++)
    ret_fds[i] = -1;
  ssize_t received;
  do
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (received < 0 && errno == EINTR);
  if (received < 0)
    return -errno;

  struct cmsghdr *header = CMSG_FIRSTHDR(&message);
  if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len >= CMSG_LEN(0))
    memcpy(ret_fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
  return received;
}

/* Its name in /proc is what the kernel would call it; without /proc, or with a name longer than a
 * page, the slow way. */
static char *name_of(int fd, const char *path) {
  char link[32], name[4096];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, name, sizeof name);
  return length < 0 || length == sizeof name ? realpath(path, NULL)
                                             : xstrndup(name, (size_t)length);
}

/* Opens what a path leads to; a name without a link on the way is the one we know already. */
static int resolve_open(const char *path, char **ret_path) {
  if (path_is_normal(path)) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
    int plain = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (plain < 0 && errno == ENOENT)
      return -errno;
    if (plain >= 0) {
      *ret_path = xstrdup(path);
      return plain;
    }
  }
  _cleanup_close_ int fd = open(path, O_PATH | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  char *resolved = name_of(fd, path);
  if (!resolved)
    return -errno;
  *ret_path = resolved;
  return steal_fd(&fd);
}

int file_resolve(const char *path, char **ret_path) {
  _cleanup_close_ int fd = resolve_open(path, ret_path);
  return fd < 0 ? fd : 0;
}

int file_resolve_status(const char *path, char **ret_path, struct stat *ret_status) {
  _cleanup_free_ char *resolved = NULL;
  _cleanup_close_ int fd = resolve_open(path, &resolved);
  if (fd < 0)
    return fd;
  if (fstat(fd, ret_status) < 0)
    return -errno;
  *ret_path = steal_pointer(resolved);
  return 0;
}

void fd_close_others(const int *kept, size_t count) {
  for (int next = 3; next >= 0;) {
    int stop = INT_MAX;
    for (size_t i = 0; i < count; i++) {
      if (kept[i] >= next && kept[i] < stop)
        stop = kept[i];
    }
    if (stop > next)
      syscall(SYS_close_range, (unsigned)next, stop == INT_MAX ? ~0U : (unsigned)stop - 1, 0);
    next = stop == INT_MAX ? -1 : stop + 1;
  }
}

int fd_reserve_standard(void) {
  for (;;) {
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0)
      return -errno;
    if (fd > STDERR_FILENO) {
      close(fd);
      return 0;
    }
  }
}

static bool is_harmless_device(int fd, const struct stat *status) {
  static const unsigned harmless[] = {3, 5, 7, 8, 9}; /* null, zero, full, random, urandom */
  for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
    if (status->st_rdev == makedev(1, harmless[i]))
      return true;
  }
  return isatty(fd);
}

bool fd_is_readable_file(int fd) {
  struct stat status;
  int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(fd, &status) < 0 ||
      S_ISFIFO(status.st_mode) || S_ISSOCK(status.st_mode) || S_ISDIR(status.st_mode))
    return false;
  return !S_ISCHR(status.st_mode) || !is_harmless_device(fd, &status);
}
