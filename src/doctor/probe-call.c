/* System calls that the engine is built on, each really called; by number, so that neither an old
 * libc nor its fallbacks decide. */
#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/calls.h"
#include "doctor/cgroup.h"
#include "doctor/probe.h"

#ifndef SYS_statmount
#define SYS_statmount 457
#endif
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

int calls_try_openat2(void) {
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof how);
  return fd < 0 ? errno : 0;
}

int calls_try_close_range(void) {
  int fd = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  if (fd < 0)
    return errno;
  return syscall(SYS_close_range, fd, fd, 0) < 0 ? errno : 0;
}

int calls_try_pidfd_open(void) {
  _cleanup_close_ int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
  if (fd < 0)
    return errno;
  struct pollfd wait = {.fd = fd, .events = POLLIN};
  return poll(&wait, 1, 0) == 0 ? 0 : EINVAL;
}

static int clone3_and_wait(struct clone_args *arguments) {
  arguments->exit_signal = SIGCHLD;
  pid_t pid = (pid_t)syscall(SYS_clone3, arguments, sizeof *arguments);
  if (pid < 0)
    return errno;
  if (pid == 0)
    _exit(0);
  return waitpid(pid, NULL, 0) < 0 ? errno : 0;
}

int calls_try_clone3(void) {
  return clone3_and_wait(&(struct clone_args){0});
}

/* struct mnt_id_req of linux/mount.h, which older headers do not have. */
struct mount_request {
  uint32_t size, spare;
  uint64_t mount_id, parameter;
};

int calls_try_statmount(void) {
  struct statx status;
  if (statx(AT_FDCWD, "/", 0, STATX_MNT_ID_UNIQUE, &status) < 0)
    return errno;
  if (!(status.stx_mask & STATX_MNT_ID_UNIQUE))
    return ENOSYS;
  struct mount_request request = {sizeof request, 0, status.stx_mnt_id, 1 /* STATMOUNT_SB_BASIC */};
  char answer[4096];
  return syscall(SYS_statmount, &request, answer, sizeof answer, 0) < 0 ? errno : 0;
}

void probe_call(const struct check *check, struct finding *finding) {
  const struct call_spec *spec = check->argument;
  finding_of_call(finding, spec->try());
}

void probe_clone_into_cgroup(const struct check *check, struct finding *finding) {
  (void)check;
  _cleanup_free_ char *folder = cgroup_own_folder(NULL);
  _cleanup_close_ int fd = folder ? open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  if (fd < 0) {
    finding_set(finding, DOCTOR_MISSING, "no cgroup v2 folder of ours to be seen");
    finding_fix(finding, "boot with systemd.unified_cgroup_hierarchy=1");
    return;
  }
  int errnum =
      clone3_and_wait(&(struct clone_args){.flags = CLONE_INTO_CGROUP, .cgroup = (uint64_t)fd});
  finding_of_call(finding, errnum);
  if (errnum == EACCES || errnum == EPERM) {
    finding_set(finding, DOCTOR_RESTRICTED, "the kernel has it, but %s is not ours", folder);
    finding_fix(finding, "the fix of \"writable cgroup\"");
  }
}

void probe_keyring(const struct check *check, struct finding *finding) {
  (void)check;
  long key = syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0);
  if (key >= 0)
    finding_set(finding, DOCTOR_OK, "works");
  else if (errno == ENOSYS || errno == EPERM)
    finding_set(finding, DOCTOR_OK, "no keyrings here, so none to hide");
  else
    finding_set(finding, DOCTOR_RESTRICTED, "a new session keyring: %s", strerror(errno));
}
