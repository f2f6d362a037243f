/* What any relay costs: accepts, connects, copies, closes, and decides nothing. bench/net measures
 * the session's relay against it.
 *
 *   net-carrier LISTEN_PORT ADDRESS PORT     127.0.0.1:LISTEN_PORT leads to ADDRESS:PORT, and the
 *                                            port above to the port above */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define ROUND_SIZE 256

struct end {
  int fd;
  bool ended;
  struct end *other;        /* NULL: it listens */
  struct sockaddr_in leads; /* where to */
  struct end *next_dead;
};

static int epoll;
static struct end *dead;
static char buffer[65536];

static struct sockaddr_in address_of(const char *text, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
    exit(2);
  return address;
}

static void watch(struct end *end) {
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = end};
  epoll_ctl(epoll, EPOLL_CTL_ADD, end->fd, &event);
}

static void listen_at(struct end *end, int port, const char *address, int target) {
  static const int on = 1;
  struct sockaddr_in here = address_of("127.0.0.1", port);
  *end = (struct end){.fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                      .leads = address_of(address, target)};
  setsockopt(end->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  setsockopt(end->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(end->fd, (struct sockaddr *)&here, sizeof here) < 0 || listen(end->fd, 4096) < 0) {
    perror("listen");
    exit(1);
  }
  watch(end);
}

static void accept_one(const struct end *listener) {
  static const int on = 1;
  int client = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (client < 0)
    return;
  int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)connect(server, (const struct sockaddr *)&listener->leads, sizeof listener->leads);
  struct end *ends = calloc(2, sizeof *ends);
  if (!ends)
    exit(1);
  ends[0] = (struct end){.fd = client, .other = &ends[1]};
  ends[1] = (struct end){.fd = server, .other = &ends[0]};
  watch(&ends[0]);
  watch(&ends[1]);
}

static void end_both(struct end *end) {
  close(end->fd);
  close(end->other->fd);
  end->ended = end->other->ended = true;
  end->next_dead = dead; /* events of this round may still point here */
  dead = end;
}

/* Waits for a slow reader, at the cost of all others: here there are none then. */
static bool write_all(int fd, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t sent = send(fd, bytes, length, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN)
      poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
    else if (sent < 0)
      return false;
    else
      bytes += sent, length -= (size_t)sent;
  }
  return true;
}

static void pass_on(struct end *end) {
  ssize_t got = end->ended ? -1 : recv(end->fd, buffer, sizeof buffer, 0);
  if (end->ended || (got < 0 && errno == EAGAIN))
    return;
  if (got <= 0 || !write_all(end->other->fd, buffer, (size_t)got))
    end_both(end);
}

static void free_dead(void) {
  while (dead) {
    struct end *first = dead;
    dead = first->next_dead;
    free(first < first->other ? first : first->other); /* they were made together */
  }
}

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  struct rlimit files;
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  struct end listeners[2];
  epoll = epoll_create1(EPOLL_CLOEXEC);
  for (int i = 0; i < 2; i++)
    listen_at(&listeners[i], atoi(argv[1]) + i, argv[2], atoi(argv[3]) + i);
  for (;;) {
    struct epoll_event events[ROUND_SIZE];
    int count = epoll_wait(epoll, events, ROUND_SIZE, -1);
    for (int i = 0; i < count; i++) {
      struct end *end = events[i].data.ptr;
      if (end->other)
        pass_on(end);
      else
        accept_one(end);
    }
    free_dead();
  }
}
