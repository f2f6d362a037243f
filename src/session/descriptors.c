/* Descriptors that lead out; see descriptors.h. */
#include "session/descriptors.h"

#include <limits.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static int socket_option(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, name, &value, &size) < 0 ? -1 : value;
}

static bool is_connected(int fd) {
  struct sockaddr_storage peer;
  socklen_t size = sizeof peer;
  return getpeername(fd, (struct sockaddr *)&peer, &size) == 0;
}

/* A socket stays in the network that it was made in, which is the host's. */
static const char *how_socket_leads_out(int fd, bool datagrams) {
  bool sends = socket_option(fd, SO_TYPE) == SOCK_DGRAM;
  if (socket_option(fd, SO_DOMAIN) != AF_UNIX)
    return "is a network socket, which could be connected anew, to anybody";
  if (sends && !datagrams)
    return "is a UNIX datagram socket, which could send to any other";
  return sends || is_connected(fd) ? NULL : "is a socket without a connection";
}

static int refuse(int number, const char *problem, struct sb_error *error) {
  sb_fail(error, SB_CODE_USAGE, 0, "descriptor %d %s", number, problem);
  return sb_hint(error, "pass it through a pipe: cat | sandbox ... | cat");
}

int descriptor_check(int fd, int number, bool datagrams, struct sb_error *error) {
  struct stat status;
  if (fstat(fd, &status) < 0)
    return 0;
  if (S_ISDIR(status.st_mode)) { /* openat(0, "..") walks the host */
    sb_fail(error, SB_CODE_USAGE, 0, "descriptor %d is a folder", number);
    return sb_hint(error, "redirect it from a file, or from /dev/null");
  }
  const char *problem = S_ISSOCK(status.st_mode) ? how_socket_leads_out(fd, datagrams) : NULL;
  return problem ? refuse(number, problem, error) : 0;
}

int descriptor_check_file(int fd, int number, const struct plan *plan, struct sb_error *error) {
  char link[32], path[PATH_MAX];
  struct stat status;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = -1;
  if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
    length = readlink(link, path, sizeof path - 1);
  if (length < 0)
    return 0;
  path[length] = '\0';
  return plan_guards_file(plan, path)
             ? refuse(number, "is a file that is hidden or protected here", error)
             : 0;
}
