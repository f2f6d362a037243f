/* Sockets of every family. Nothing is ever sent beyond loopback: a datagram socket that connects
 * only looks the route up. */
#include <arpa/inet.h>
#include <linux/netlink.h>
#include <linux/vm_sockets.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "attempt.h"

static int connect_internet(const char *address, int port, int type) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  int is_four = inet_pton(AF_INET, address, &four.sin_addr) == 1, fd;

  if (!is_four && inet_pton(AF_INET6, address, &six.sin6_addr) != 1)
    return EINVAL;
  fd = socket(is_four ? AF_INET : AF_INET6, type | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return errno;
  if (is_four)
    return answer(connect(fd, (struct sockaddr *)&four, sizeof(four)));
  return answer(connect(fd, (struct sockaddr *)&six, sizeof(six)));
}

static int route(char **arguments) {
  return connect_internet(arguments[0], 53, SOCK_DGRAM);
}

static int connect_stream(char **arguments) {
  return connect_internet(arguments[0], (int)number(arguments[1]), SOCK_STREAM);
}

static int listen_on(char **arguments) {
  struct sockaddr_in address = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)number(arguments[0])),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

  if (fd < 0)
    return errno;
  if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
    return errno;
  return answer(listen(fd, 1));
}

static int connect_unix(const char *path, int abstract, int type) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  int fd;

  if (length + 1 >= sizeof(address.sun_path))
    return ENAMETOOLONG;
  /* An abstract name starts with a NUL and has no NUL at its end. */
  memcpy(address.sun_path + (abstract ? 1 : 0), path, length);
  fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return errno;
  length += offsetof(struct sockaddr_un, sun_path) + 1;
  return answer(connect(fd, (struct sockaddr *)&address, (socklen_t)length));
}

static int connect_path(char **arguments) {
  return connect_unix(arguments[0], 0, SOCK_STREAM);
}

static int connect_abstract(char **arguments) {
  return connect_unix(arguments[0], 1, SOCK_STREAM);
}

static int open_socket(char **arguments) {
  return answer(socket((int)number(arguments[0]), (int)number(arguments[1]) | SOCK_CLOEXEC,
                       (int)number(arguments[2])));
}

static int connect_hypervisor(char **arguments) {
  struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = 2, .svm_port = 1};
  int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  (void)arguments;
  if (fd < 0)
    return errno;
  if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EINPROGRESS ||
      errno == ECONNRESET)
    return OPENED;
  return errno;
}

/* A pair never leaves the process, but the family is the same side door. */
static int pair(char **arguments) {
  int ends[2];

  return answer(socketpair((int)number(arguments[0]), SOCK_STREAM | SOCK_CLOEXEC, 0, ends));
}

const struct attempt network_attempts[] = {
    {"route", 1, "ADDRESS: is there a route", route},
    {"connect", 2, "ADDRESS PORT", connect_stream},
    {"listen", 1, "PORT", listen_on},
    {"unix", 1, "PATH: connect", connect_path},
    {"E108", 1, "NAME: connect to an abstract socket", connect_abstract},
    {"socket", 3, "FAMILY TYPE PROTOCOL", open_socket},
    {"socketpair", 1, "FAMILY", pair},
    {"E116.connect", 0, "connect to the hypervisor", connect_hypervisor},
    {NULL, 0, NULL, NULL},
};
