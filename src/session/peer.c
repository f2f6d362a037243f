/* Where the other end of a control socket is; see peer.h. By a descriptor of the process where the
 * kernel has them (Linux 6.5 and 6.11): a number may be another's by now. */
#include "session/peer.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"

/* Younger than the headers of most distributions. */
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#ifndef PIDFD_GET_USER_NAMESPACE
#define PIDFD_GET_USER_NAMESPACE _IO(0xff, 9)
#endif

/* As long as the process lives, its number is nobody else's. */
static int open_by_number(int process, pid_t pid) {
  char path[48];
  snprintf(path, sizeof path, "/proc/%d/ns/user", (int)pid);
  _cleanup_close_ int namespace = open(path, O_RDONLY | O_CLOEXEC);
  struct pollfd end = {.fd = process, .events = POLLIN};
  return poll(&end, 1, 0) == 0 ? steal_fd(&namespace) : -1;
}

/* The descriptor may be -1 where the kernel has none. */
static int open_namespace(int process, pid_t pid) {
  int namespace = process < 0 ? -1 : ioctl(process, PIDFD_GET_USER_NAMESPACE, 0);
  if (namespace >= 0 || (process >= 0 && errno != ENOTTY && errno != EINVAL))
    return namespace;
  return open_by_number(process, pid);
}

static int open_peer_namespace(int socket, pid_t pid) {
  int peer = -1;
  socklen_t size = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &peer, &size) < 0 && errno != ENOPROTOOPT)
    return -1; /* it has ended */
  _cleanup_close_ int process = peer;
  return open_namespace(process, pid);
}

static int open_own_namespace(void) {
  _cleanup_close_ int process = (int)syscall(SYS_pidfd_open, getpid(), 0);
  return open_namespace(process, getpid());
}

bool peer_is_outside(int socket, const struct ucred *peer) {
  _cleanup_close_ int theirs = open_peer_namespace(socket, peer->pid);
  _cleanup_close_ int ours = open_own_namespace();
  struct stat their_status, our_status;
  if (theirs < 0)
    return peer->uid == 0 && geteuid() != 0;
  return ours >= 0 && fstat(theirs, &their_status) == 0 && fstat(ours, &our_status) == 0 &&
         their_status.st_dev == our_status.st_dev && their_status.st_ino == our_status.st_ino;
}
