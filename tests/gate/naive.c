/* naive FORBIDDEN COMMAND [ARGUMENT]...: a supervisor that makes the mistake which the gate must
 * not make. It reads the path of every open and connect from the caller's memory, refuses it if it
 * leads to the forbidden file, folder or socket, and lets the kernel go on with everything else.
 * The positive control of the races: they must win against this one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int install(void) {
  struct sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_connect, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof code / sizeof code[0], code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return -1;
  return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                      &program);
}

static bool is_forbidden(pid_t pid, uint64_t address, const char *forbidden) {
  char path[PATH_MAX] = "", whole[2 * PATH_MAX], resolved[PATH_MAX];
  struct iovec ours = {path, 256}, theirs = {(void *)(uintptr_t)address, 256};
  if (process_vm_readv(pid, &ours, 1, &theirs, 1, 0) <= 0)
    return false;
  if (path[0] == '/')
    snprintf(whole, sizeof whole, "%s", path);
  else
    snprintf(whole, sizeof whole, "/proc/%d/cwd/%s", pid, path);
  return realpath(whole, resolved) && strncmp(resolved, forbidden, strlen(forbidden)) == 0;
}

static bool is_forbidden_call(const struct seccomp_notif *call, const char *forbidden) {
  pid_t pid = (pid_t)call->pid;
  uint64_t address = call->data.args[1];
  sa_family_t family = AF_UNSPEC;
  struct iovec ours = {&family, sizeof family},
               theirs = {(void *)(uintptr_t)address, sizeof family};
  if (call->data.nr == SYS_openat)
    return is_forbidden(pid, address, forbidden);
  return process_vm_readv(pid, &ours, 1, &theirs, 1, 0) > 0 && family == AF_UNIX &&
         is_forbidden(pid, address + offsetof(struct sockaddr_un, sun_path), forbidden);
}

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  /* A memory that both have, to tell the number of the listener, which is then taken. */
  volatile int *shared =
      mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  *shared = -1;
  pid_t pid = fork();
  if (pid == 0) {
    int listener = install();
    *shared = listener < 0 ? -2 : listener;
    while (*shared != -3 && listener >= 0)
      usleep(100);
    execv(argv[2], argv + 2);
    _exit(127);
  }
  while (*shared == -1)
    usleep(100);
  if (*shared == -2)
    return 3;
  int pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
  int listener = (int)syscall(SYS_pidfd_getfd, pidfd, *shared, 0);
  if (listener < 0)
    return 4;
  *shared = -3;
  pid_t supervisor = fork();
  if (supervisor == 0) {
    for (;;) {
      struct seccomp_notif notification = {0};
      if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &notification) < 0) {
        if (errno == ENOENT || errno == EINTR)
          continue;
        _exit(0);
      }
      struct seccomp_notif_resp answer = {.id = notification.id};
      if (is_forbidden_call(&notification, argv[1]))
        answer.error = -EACCES;
      else
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }
  close(listener);
  int status;
  waitpid(pid, &status, 0);
  kill(supervisor, SIGKILL);
  waitpid(supervisor, NULL, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}
