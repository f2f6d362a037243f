/* The client that bench/exec measures: starts a command COUNT times and prints the nanoseconds each
 * one took from the request to its end, either by itself (fork, exec, wait) or by asking a running
 * session over its control socket. Everything but who starts the command is the same.
 *
 *   exec-client fork COUNT COMMAND           fork and exec, wait for the end
 *   exec-client SOCKET COUNT COMMAND         one connection for each command, as `sandbox exec`
 * does
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

static void run_by_fork(const char *command) {
  pid_t pid = fork();
  if (pid < 0)
    give_up("fork");
  if (pid == 0) {
    execl(command, command, (char *)NULL);
    _exit(127);
  }
  int status;
  if (waitpid(pid, &status, 0) < 0 || status != 0)
    give_up(command);
}

static void send_request(int fd, const char *command) {
  char line[512];
  int length = snprintf(line, sizeof line, "{\"cmd\":\"cmd.exec\",\"argv\":[\"%s\"]}\n", command);
  union {
    struct cmsghdr header;
    char space[CMSG_SPACE(3 * sizeof(int))];
  } control = {0};
  struct iovec data = {.iov_base = line, .iov_len = (size_t)length};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.space,
                           .msg_controllen = sizeof control.space};
  struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(3 * sizeof(int));
  const int fds[] = {STDIN_FILENO, STDERR_FILENO, STDERR_FILENO};
  memcpy(CMSG_DATA(rights), fds, sizeof fds);
  if (sendmsg(fd, &message, MSG_NOSIGNAL) != length)
    give_up("sendmsg");
}

static void run_in_session(const struct sockaddr_un *address, const char *command) {
  char answer[4096];
  size_t length = 0;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) < 0)
    give_up("connect");
  send_request(fd, command); /* no need to wait for the greeting */
  do {
    ssize_t got = read(fd, answer + length, sizeof answer - 1 - length);
    if (got <= 0)
      give_up("the session");
    length += (size_t)got;
    answer[length] = '\0';
  } while (!strstr(answer, "event.exited") || answer[length - 1] != '\n');
  if (!strstr(answer, "\"status\":0")) {
    fprintf(stderr, "unexpected answer: %s", answer);
    exit(1);
  }
  close(fd);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fputs("usage: exec-client fork|SOCKET COUNT COMMAND\n", stderr);
    return 2;
  }
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  bool by_fork = strcmp(argv[1], "fork") == 0;
  if (strlen(argv[1]) >= sizeof address.sun_path)
    return 2;
  strcpy(address.sun_path, argv[1]);
  for (int left = atoi(argv[2]); left > 0; left--) {
    uint64_t start = now_ns();
    if (by_fork)
      run_by_fork(argv[3]);
    else
      run_in_session(&address, argv[3]);
    printf("%llu\n", (unsigned long long)(now_ns() - start));
  }
  return 0;
}
