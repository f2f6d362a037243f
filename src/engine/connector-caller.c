/* Looks at a process that waits in connect(2); see connecting.h. What is read here may be anything:
 * it is taken once, and used as it was. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/pidfd.h"
#include "core/status.h"
#include "engine/connecting.h"

#define STATUS_LIMIT 65536
#define NAME_SIZE    (sizeof(struct sockaddr_un) + 1)

static int read_status(pid_t thread, int proc, char **ret_status) {
  char name[64];
  snprintf(name, sizeof name, "%d/status", thread);
  return file_read_at(proc, name, STATUS_LIMIT, ret_status, NULL);
}

/* ---- the call ---- */

static int take_address(struct caller *caller, uint64_t address) {
  struct iovec ours = {&caller->address, caller->length},
               theirs = {(void *)(uintptr_t)address, caller->length};
  if (caller->thread <= 0)
    return -EPERM;
  if (caller->length == 0)
    return 0;
  ssize_t got = process_vm_readv(caller->thread, &ours, 1, &theirs, 1, 0);
  if (got < 0)
    return errno == EPERM ? -EACCES : errno == EFAULT ? -EFAULT : -EPERM;
  return (size_t)got == caller->length ? 0 : -EFAULT;
}

int caller_take(struct caller *caller, const struct connect_call *call) {
  int length = (int)call->arguments[2];
  *caller = (struct caller){
      .id = call->id, .thread = call->thread, .number = (int)call->arguments[0], .socket = -1};
  if (length < 0 || (size_t)length > sizeof caller->address)
    return -EINVAL;
  caller->length = (socklen_t)length;
  return take_address(caller, call->arguments[1]);
}

bool connector_receive(int listener, struct connect_call *ret_call) {
  /* The kernel's structures may be larger than ours. */
  union {
    struct seccomp_notif call;
    char room[512];
  } received = {.room = {0}};
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &received) < 0)
    return false;
  *ret_call = (struct connect_call){.id = received.call.id, .thread = (pid_t)received.call.pid};
  for (size_t i = 0; i < ARRAY_SIZE(ret_call->arguments); i++)
    ret_call->arguments[i] = received.call.data.args[i];
  return true;
}

void caller_answer(struct caller *caller, int listener, int result) {
  union {
    struct seccomp_notif_resp answer;
    char room[512];
  } sent = {.room = {0}};
  sent.answer.id = caller->id;
  sent.answer.error = result;
  if (caller->socket >= 0)
    close(caller->socket); /* first: who closes its own next wants it closed */
  caller->socket = -1;
  (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &sent); /* or it is gone */
}

bool caller_still_waits(const struct caller *caller, int listener) {
  uint64_t id = caller->id;
  return ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

/* ---- its socket ---- */

static pid_t process_of(pid_t thread, int proc) {
  _cleanup_free_ char *status = NULL;
  return read_status(thread, proc, &status) < 0 ? 0 : status_innermost(status, "Tgid:", NULL);
}

pid_t caller_process(const struct caller *caller, int proc) {
  return process_of(caller->thread, proc);
}

/* Before Linux 6.9 a thread has none of its own. Threads share their descriptors, or nearly always;
 * whatever socket we get is one of theirs. */
static int open_process(pid_t thread, int proc) {
  pid_t process = process_of(thread, proc);
  int pidfd = process > 0 ? (int)syscall(SYS_pidfd_open, process, 0) : -1;
  return pidfd < 0 ? -EPERM : pidfd;
}

static int duplicate(int process, int number) {
  int fd = (int)syscall(SYS_pidfd_getfd, process, number, 0);
  return fd < 0 ? -errno : fd;
}

/* Most calls come from who made the last one. A thread that is gone has no descriptors, whoever has
 * its number now. */
static int duplicate_socket(const struct caller *caller, int proc) {
  static int last = -1;
  static pid_t thread;
  int fd = last >= 0 && thread == caller->thread ? duplicate(last, caller->number) : -ESRCH;
  if (fd != -ESRCH)
    return fd;
  if (last >= 0)
    close(last);
  thread = caller->thread;
  last = (int)syscall(SYS_pidfd_open, thread, PIDFD_THREAD);
  if (last >= 0 || errno != EINVAL)
    return last < 0 ? -errno : duplicate(last, caller->number);
  _cleanup_close_ int process = open_process(thread, proc);
  return process < 0 ? process : duplicate(process, caller->number);
}

int caller_take_socket(struct caller *caller, int listener, int proc) {
  _cleanup_close_ int fd = duplicate_socket(caller, proc);
  if (fd < 0)
    return fd == -EBADF ? -EBADF : -EPERM;
  socklen_t length = sizeof caller->family;
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &caller->family, &length) < 0)
    return errno == EBADF ? -EBADF : -ENOTSOCK;
  /* Socket and memory may have been another's. */
  if (!caller_still_waits(caller, listener))
    return -EPERM;
  caller->socket = steal_fd(&fd);
  return 0;
}

/* ---- where it leads ---- */

static bool has_name(const struct caller *caller) {
  return caller->address.ss_family == AF_UNIX &&
         caller->length > offsetof(struct sockaddr_un, sun_path) &&
         caller->length <= sizeof(struct sockaddr_un);
}

/* With the NUL that it may lack. */
static void copy_name(const struct caller *caller, char ret_name[NAME_SIZE]) {
  const struct sockaddr_un *address = (const struct sockaddr_un *)&caller->address;
  size_t length = caller->length - offsetof(struct sockaddr_un, sun_path);
  memcpy(ret_name, address->sun_path, length);
  ret_name[length] = '\0';
}

static bool is_abstract(const struct caller *caller) {
  return ((const struct sockaddr_un *)&caller->address)->sun_path[0] == '\0';
}

bool caller_names_object(const struct caller *caller) {
  return caller->family == AF_UNIX && has_name(caller) && !is_abstract(caller);
}

bool caller_names_abstract(const struct caller *caller) {
  return caller->family == AF_UNIX && has_name(caller) && is_abstract(caller);
}

/* What the C library asks for: nscd, syslog and the like. */
static const struct {
  const char *prefix, *folder;
} services[] = {{"/var/run/", "run"}, {"/run/", "run"}, {"/dev/", "dev"}};

static bool misses(const struct caller *caller, int proc, const char *place, const char *name) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS};
  char path[64];
  snprintf(path, sizeof path, "%d/root/%s", caller->thread, place);
  _cleanup_close_ int folder = openat(proc, path, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0)
    return false;
  _cleanup_close_ int object = (int)syscall(SYS_openat2, folder, name, &how, sizeof how);
  return object < 0 && errno == ENOENT;
}

bool caller_misses_service(const struct caller *caller, int proc) {
  char name[NAME_SIZE];
  if (!has_name(caller))
    return false;
  copy_name(caller, name);
  for (size_t i = 0; i < ARRAY_SIZE(services); i++) {
    size_t length = strlen(services[i].prefix);
    if (strncmp(name, services[i].prefix, length) == 0)
      return misses(caller, proc, services[i].folder, name + length);
  }
  return false;
}

/* These lead to whoever looks, which is not us. They are how programs name sockets whose path is
 * too long. */
static const struct {
  const char *prefix, *folder;
} own_names[] = {
    {"/proc/self/", ""},
    {"/proc/thread-self/", ""}, /* the process will do: threads share folders and descriptors */
    {"/dev/fd/", "fd/"},
};

static int write_path(const struct caller *caller, int proc, char ret_path[PATH_MAX]) {
  char name[NAME_SIZE];
  copy_name(caller, name);
  snprintf(ret_path, PATH_MAX, "%s", name);
  for (size_t i = 0; i < ARRAY_SIZE(own_names); i++) {
    size_t length = strlen(own_names[i].prefix);
    if (strncmp(name, own_names[i].prefix, length) != 0)
      continue;
    _cleanup_free_ char *status = NULL;
    if (read_status(caller->thread, proc, &status) < 0)
      return -EACCES;
    snprintf(ret_path, PATH_MAX, "/proc/%d/%s%s", status_innermost(status, "NStgid:", NULL),
             own_names[i].folder, name + length);
    return 0;
  }
  return 0;
}

int caller_open_object(const struct caller *caller, int proc, int flags) {
  char path[PATH_MAX], name[64];
  int result = write_path(caller, proc, path);
  if (result < 0)
    return result;
  snprintf(name, sizeof name, "%d/cwd", caller->thread);
  _cleanup_close_ int folder =
      path[0] == '/' ? -1 : openat(proc, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (path[0] != '/' && folder < 0)
    return -errno;
  int object = openat(folder, path, O_PATH | O_CLOEXEC | flags);
  return object < 0 ? -errno : object;
}

/* ---- signals ---- */

bool caller_must_end(const struct caller *caller, int proc) {
  _cleanup_free_ char *status = NULL;
  return read_status(caller->thread, proc, &status) < 0 || status_ends_wait(status);
}

bool caller_is_signalled(const struct caller *caller, int proc) {
  _cleanup_free_ char *status = NULL;
  if (read_status(caller->thread, proc, &status) < 0)
    return false;
  return status_pending(status) & status_signals(status, "SigCgt:");
}
