/* raw HOST PORT: fetches http://HOST:PORT/hello with system calls alone, and looks HOST up itself,
 * by UDP, with the server that /etc/resolv.conf names. It stands for programs that bring a resolver
 * and a network library of their own, such as Go's: no preloaded library and no variable reaches
 * them. Built static. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

static _Noreturn void fail(const char *what) {
  dprintf(2, "raw: %s\n", what);
  exit(1);
}

static void find_server(struct sockaddr_in *ret_server) {
  static char text[4096];
  long fd = syscall(SYS_openat, AT_FDCWD, "/etc/resolv.conf", O_RDONLY | O_CLOEXEC);
  long length = fd < 0 ? -1 : syscall(SYS_read, fd, text, sizeof text - 1);
  const char *line = length > 0 ? strstr(text, "nameserver ") : NULL;
  char address[64] = "";
  if (!line || sscanf(line, "nameserver %63s", address) != 1)
    fail("no name server");
  *ret_server = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(53)};
  if (inet_pton(AF_INET, address, &ret_server->sin_addr) != 1)
    fail("the name server's address is not IPv4");
}

static size_t write_question(const char *host, unsigned char *ret) {
  static const unsigned char head[12] = {0x12, 0x34, 1, 0, 0, 1};
  static const unsigned char tail[5] = {0, 0, 1, 0, 1}; /* A, IN */
  unsigned char *at = ret + sizeof head;
  memcpy(ret, head, sizeof head);
  for (const char *label = host; *label;) {
    size_t length = strcspn(label, ".");
    *at++ = (unsigned char)length;
    memcpy(at, label, length);
    at += length;
    label += length + (label[length] == '.');
  }
  memcpy(at, tail, sizeof tail);
  return (size_t)(at - ret) + sizeof tail;
}

static struct in_addr look_up(const char *host) {
  struct sockaddr_in server;
  unsigned char question[300], answer[600];
  struct in_addr address;
  find_server(&server);
  size_t length = write_question(host, question);
  long fd = syscall(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (syscall(SYS_sendto, fd, question, length, 0, &server, sizeof server) < 0)
    fail("cannot send the question");
  long got = syscall(SYS_recvfrom, fd, answer, sizeof answer, 0, NULL, NULL);
  if (got < (long)length || memcmp(answer, question, 2) != 0)
    fail("no answer");
  if ((answer[3] & 15) == 3)
    fail("no such host");
  if ((answer[3] & 15) != 0 || answer[7] < 1 || (size_t)got < length + 16)
    fail("no address");
  memcpy(&address, answer + length + 12, sizeof address);
  return address;
}

int main(int argc, char **argv) {
  if (argc != 3)
    fail("usage: raw HOST PORT");
  struct sockaddr_in target = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)atoi(argv[2])),
                               .sin_addr = look_up(argv[1])};
  long fd = syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (syscall(SYS_connect, fd, &target, sizeof target) < 0)
    fail("cannot connect");
  char bytes[1024];
  int length = snprintf(bytes, sizeof bytes, "GET /hello HTTP/1.0\r\nHost: %s\r\n\r\n", argv[1]);
  if (syscall(SYS_write, fd, bytes, (size_t)length) != length)
    fail("cannot send");
  for (long got; (got = syscall(SYS_read, fd, bytes, sizeof bytes)) > 0;)
    (void)!syscall(SYS_write, 1, bytes, (size_t)got);
  return 0;
}
