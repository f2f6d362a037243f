/* Processes of our own; see child.h. Nothing here allocates: the children of a process with threads
 * use it, too. */
#include "core/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"

pid_t child_start(const char *what, int *ret_line, struct sb_error *error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return sb_fail_errno(error, "creating the line to %s", what);
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    *ret_line = ends[1];
    return 0;
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return sb_fail_errno(error, "starting %s", what);
  }
  *ret_line = ends[0];
  return pid;
}

void child_keep_only(const int *kept, size_t count) {
  fd_close_others(kept, count);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd < 3; fd++)
    dup2(null, fd);
}

bool child_wait_for(pid_t pid, int milliseconds) {
  _cleanup_close_ int pidfd = pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1;
  struct pollfd end = {.fd = pidfd, .events = POLLIN};
  if (pidfd >= 0 && poll(&end, 1, milliseconds) == 0)
    return false;
  (void)child_wait(pid);
  return true;
}

int child_wait(pid_t pid) {
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return status;
}
