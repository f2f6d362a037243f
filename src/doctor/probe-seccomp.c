/* seccomp: a filter that really refuses a call, and user notification with a real round trip, for a
 * listener that can be installed is not yet one that works (WSL2, a sandbox in a sandbox). */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "doctor/probe.h"

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define SYNC_WAKE_UP 1UL /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, an enum in newer headers */

enum { ANSWER = 4242, TRAPPED_CALL = SYS_getpgid };

/* Does `action` on the trapped call and allows the rest. Returns what seccomp(2) returns, or a
 * negative errno. */
static int install(unsigned action, unsigned long flags) {
  struct sock_filter instructions[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, TRAPPED_CALL, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, action),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {ARRAY_SIZE(instructions), instructions};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return -errno;
  int result = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
  return result < 0 ? -errno : result;
}

void probe_seccomp_filter(const struct check *check, struct finding *finding) {
  (void)check;
  int result = install(SECCOMP_RET_ERRNO | ENOTNAM, 0);
  if (result == 0 && (syscall(TRAPPED_CALL, 0) != -1 || errno != ENOTNAM))
    result = -EINVAL; /* installed, but not obeyed: an emulated kernel */
  finding_of_call(finding, -result);
}

/* The side that is watched: hands over the listener, makes the trapped call, checks the answer. */
static int be_watched(int socket, const struct notify_spec *spec) {
  _cleanup_close_ int listener =
      install(SECCOMP_RET_USER_NOTIF, SECCOMP_FILTER_FLAG_NEW_LISTENER | spec->filter_flags);
  if (listener < 0)
    return -listener;
  if (fd_send(socket, &listener, 1, "l", 1) < 0)
    return EIO;
  close(steal_fd(&listener)); /* else the call would wait for ever if the watcher died */
  long answer = syscall(TRAPPED_CALL, 0);
  if (spec->add_descriptor)
    return answer >= 0 && fcntl((int)answer, F_GETFD) >= 0 ? 0 : EINVAL;
  return answer == ANSWER ? 0 : EINVAL;
}

static int answer_call(int listener, const struct notify_spec *spec, __u64 id) {
  struct seccomp_notif_addfd addition = {
      .id = id, .flags = SECCOMP_ADDFD_FLAG_SEND, .srcfd = STDIN_FILENO};
  struct seccomp_notif_resp response = {.id = id, .val = ANSWER};
  int result = spec->add_descriptor ? ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &addition)
                                    : ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  return result < 0 ? errno : 0;
}

/* The side that watches: one notification, one answer. The kernel's structures may be larger than
 * the ones we were compiled with. */
static int watch(int socket, const struct notify_spec *spec) {
  int received[FD_PASS_LIMIT];
  char payload;
  if (fd_receive(socket, received, &payload, 1) != 1)
    return 0; /* the other side knows what went wrong */
  _cleanup_close_ int listener = received[0];
  if (spec->sync_wake_up && ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP) < 0)
    return errno;
  union {
    struct seccomp_notif notification;
    char room[1024];
  } buffer = {.room = {0}};
  if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &buffer.notification) < 0)
    return errno;
  return answer_call(listener, spec, buffer.notification.id);
}

static int round_trip(const struct notify_spec *spec) {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
    return errno;
  pid_t pid = fork();
  if (pid < 0)
    return errno;
  if (pid == 0) {
    close(sockets[0]);
    _exit(be_watched(sockets[1], spec));
  }
  close(sockets[1]);
  int errnum = watch(sockets[0], spec);
  close(sockets[0]);
  int status;
  if (waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
    return EINTR;
  return errnum ? errnum : WEXITSTATUS(status);
}

void probe_seccomp_notify(const struct check *check, struct finding *finding) {
  int errnum = round_trip(check->argument);
  finding_of_call(finding, errnum);
  if (errnum == 0)
    finding_set(finding, DOCTOR_OK, "works, round trip made");
  if (errnum == EBUSY) {
    finding_set(finding, DOCTOR_RESTRICTED, "another supervisor already listens to us");
    finding_fix(finding, "one listener per process tree: leave the outer sandbox or container");
  }
}
