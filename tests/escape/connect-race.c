/* connect-race HOW SECONDS OWN HOST [LINK]: tries for so long to be connected to the socket HOST of
 * somebody else, by changing something between the moment that somebody looks and the moment that
 * the kernel does. OWN is made here, and may be connected to. Prints how often it tried, how often
 * it was connected to its own, and how often to the other. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define NUMBER 100 /* the descriptor that is exchanged */

static double end_at;
static const char *own, *host, *link_name;
static long tries, owns, leaks;
static atomic_bool stop;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static struct sockaddr_un named(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
  return address;
}

static void *accept_all(void *data) {
  for (int fd; (fd = accept(*(int *)data, NULL, NULL)) >= 0 || errno == ECONNABORTED;)
    close(fd);
  return NULL;
}

static void serve(int family, const void *address, socklen_t length, int *ret_socket) {
  pthread_t thread;
  *ret_socket = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(*ret_socket, address, length) < 0 || listen(*ret_socket, 64) < 0 ||
      pthread_create(&thread, NULL, accept_all, ret_socket) != 0) {
    perror("connect-race");
    exit(3);
  }
}

/* Who is at the other end? */
static void count(int socket) {
  struct sockaddr_un peer = {0};
  socklen_t length = sizeof peer;
  if (getpeername(socket, (struct sockaddr *)&peer, &length) < 0 || peer.sun_family != AF_UNIX)
    return;
  if (strcmp(peer.sun_path, host) == 0)
    leaks++;
  else
    owns++;
}

static void against(void *(*flip)(void *), const struct sockaddr_un *address) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, flip, NULL) != 0)
    exit(3);
  for (; now() < end_at; tries++) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)connect(fd, (const struct sockaddr *)address, sizeof *address);
    count(fd);
    close(fd);
  }
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

/* ---- the address in memory ---- */

static union {
  struct sockaddr_un named;
  struct sockaddr_in numbered;
} shared;

static void *flip_address(void *unused) {
  struct sockaddr_un addresses[] = {named(own), named(host)};
  for (unsigned i = 0; !atomic_load(&stop); i++)
    memcpy(&shared, &addresses[i % 2], sizeof addresses[0]);
  return unused;
}

static void race_address(void) {
  shared.named = named(own);
  against(flip_address, &shared.named);
}

/* ---- a link on the way ---- */

static void *flip_link(void *unused) {
  char other[4096];
  snprintf(other, sizeof other, "%s.new", link_name);
  for (unsigned i = 0; !atomic_load(&stop); i++) {
    if (symlink(i % 2 ? host : own, other) == 0)
      (void)rename(other, link_name);
  }
  return unused;
}

static void race_link(void) {
  struct sockaddr_un address = named(link_name);
  against(flip_link, &address);
}

/* ---- the socket behind the number: one that needs no look, then one that does ---- */

static atomic_int sockets[2];
static struct sockaddr_in number;

static void *flip_socket(void *unused) {
  struct sockaddr_un address = named(host);
  while (!atomic_load(&stop)) {
    memcpy(&shared, &number, sizeof number);
    dup2(atomic_load(&sockets[0]), NUMBER);
    memcpy(&shared, &address, sizeof address);
    dup2(atomic_load(&sockets[1]), NUMBER);
  }
  return unused;
}

static void renew(int index, int family) {
  int old = atomic_exchange(&sockets[index], socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  struct linger at_once = {1, 0};
  setsockopt(old, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  close(old);
}

static void race_socket(void) {
  static int server;
  socklen_t length = sizeof number;
  number = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  serve(AF_INET, &number, sizeof number, &server);
  getsockname(server, (struct sockaddr *)&number, &length);
  sockets[0] = sockets[1] = -1;
  renew(0, AF_INET);
  renew(1, AF_UNIX);
  pthread_t thread;
  if (pthread_create(&thread, NULL, flip_socket, NULL) != 0)
    exit(3);
  for (; now() < end_at; tries++) {
    if (connect(NUMBER, (const struct sockaddr *)&shared, sizeof shared.named) == 0)
      owns++; /* at least to the one of the other family */
    long before = leaks;
    count(atomic_load(&sockets[1]));
    if (leaks > before)
      renew(1, AF_UNIX);
    renew(0, AF_INET);
  }
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } races[] = {{"address", race_address}, {"link", race_link}, {"socket", race_socket}};
  static int server;
  if (argc < 5)
    return 2;
  end_at = now() + atof(argv[2]);
  own = argv[3];
  host = argv[4];
  link_name = argv[5];
  unlink(own);
  struct sockaddr_un address = named(own);
  serve(AF_UNIX, &address, sizeof address, &server);
  for (size_t i = 0; i < sizeof races / sizeof races[0]; i++) {
    if (strcmp(races[i].name, argv[1]) == 0)
      races[i].run();
  }
  unlink(own);
  printf("tries %ld own %ld leaks %ld\n", tries, owns, leaks);
  return 0;
}
