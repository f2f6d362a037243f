/* The servers and the client that bench/net measures with; nothing here knows who carries the
 * bytes.
 *
 *   net-load serve ADDRESS PORT                   sends at PORT, says back at PORT + 1
 *   net-load stream ADDRESS PORT BYTES            nanoseconds until so many bytes have come
 *   net-load latency ADDRESS PORT COUNT           nanoseconds from connect to the first byte, each
 *   net-load rate ADDRESS PORT COUNT              nanoseconds for so many connections, 8 at a time
 *   net-load idle ADDRESS PORT COUNT              opens them
 *
 * Each says "ready" after a first connection, which may have started something, waits for a line,
 * does it, writes its figures and a last line "done", and stays until its input ends: whoever
 * measures can look at the carrier before and after.
 *
 * With a last argument PROXY_PORT the client asks an HTTP proxy on 127.0.0.1 to connect it. */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define WORKERS 8

static char buffer[256 * 1024];
static const char *target_text;
static struct sockaddr_in target, proxy;

static void raise_limit(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

static struct sockaddr_in address_of(const char *text, int port) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  if (inet_pton(AF_INET, text, &address.sin_addr) != 1)
    give_up(text);
  return address;
}

static void say(const char *line) {
  puts(line);
  fflush(stdout);
}

static void wait_for(int last) {
  for (int c = 0; c != last && c != EOF;)
    c = getchar();
}

/* ---- the servers ---- */

static int listen_at(const struct sockaddr_in *address) {
  static const int on = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0 || listen(fd, 4096) < 0)
    give_up("listen");
  return fd;
}

/* Reads how much is wanted and sends it. */
static _Noreturn void serve_source(int listener) {
  for (;;) {
    uint64_t left;
    int fd = accept(listener, NULL, NULL);
    if (fd < 0 || recv(fd, &left, sizeof left, MSG_WAITALL) != sizeof left)
      left = 0;
    while (left > 0) {
      ssize_t sent = send(fd, buffer, left < sizeof buffer ? left : sizeof buffer, MSG_NOSIGNAL);
      if (sent <= 0)
        break;
      left -= (uint64_t)sent;
    }
    close(fd);
  }
}

static void echo_once(int fd) {
  char bytes[64];
  ssize_t got = recv(fd, bytes, sizeof bytes, 0);
  if (got <= 0 || send(fd, bytes, (size_t)got, MSG_NOSIGNAL) != got)
    close(fd);
}

static _Noreturn void serve_echo(int listener) {
  struct epoll_event events[256], event = {.events = EPOLLIN, .data.fd = listener};
  int epoll = epoll_create1(EPOLL_CLOEXEC);
  epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
  for (;;) {
    int count = epoll_wait(epoll, events, 256, -1);
    for (int i = 0; i < count; i++) {
      if (events[i].data.fd != listener) {
        echo_once(events[i].data.fd);
        continue;
      }
      event.data.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
      if (event.data.fd >= 0)
        epoll_ctl(epoll, EPOLL_CTL_ADD, event.data.fd, &event);
    }
  }
}

static _Noreturn void serve(const char *address, int port) {
  struct sockaddr_in source = address_of(address, port), echo = address_of(address, port + 1);
  int listeners[] = {listen_at(&source), listen_at(&echo)};
  if (fork() == 0)
    serve_source(listeners[0]);
  if (fork() == 0)
    serve_echo(listeners[1]);
  say("ready");
  wait_for(EOF);
  kill(0, SIGTERM);
  _exit(0);
}

/* ---- the client ---- */

static void ask_proxy(int fd) {
  char text[256];
  int length = snprintf(text, sizeof text, "CONNECT %s:%u HTTP/1.1\r\nHost: %s\r\n\r\n",
                        target_text, ntohs(target.sin_port), target_text);
  if (send(fd, text, (size_t)length, MSG_NOSIGNAL) != length)
    give_up("send");
  size_t got = 0;
  while (got < 4 || memcmp(text + got - 4, "\r\n\r\n", 4) != 0) { /* nothing else comes yet */
    ssize_t part = recv(fd, text + got, sizeof text - 1 - got, 0);
    if (part <= 0)
      give_up("the proxy");
    got += (size_t)part;
  }
  if (memcmp(text + 9, "200", 3) != 0) {
    fwrite(text, 1, got, stderr);
    exit(1);
  }
}

static int open_connection(void) {
  static const int on = 1;
  const struct sockaddr_in *first = proxy.sin_family ? &proxy : &target;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, (const struct sockaddr *)first, sizeof *first) < 0)
    give_up("connect");
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (proxy.sin_family)
    ask_proxy(fd);
  return fd;
}

static int open_and_echo(void) {
  char byte = 'x';
  int fd = open_connection();
  if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1 || recv(fd, &byte, 1, 0) != 1)
    give_up("echo");
  return fd;
}

static void receive_stream(uint64_t bytes) {
  uint64_t left = bytes;
  int fd = open_connection();
  if (send(fd, &bytes, sizeof bytes, MSG_NOSIGNAL) != sizeof bytes)
    give_up("send");
  while (left > 0) {
    ssize_t got = recv(fd, buffer, sizeof buffer, 0);
    if (got <= 0)
      give_up("stream");
    left -= (uint64_t)got;
  }
  close(fd);
}

static void run_stream(uint64_t bytes) {
  uint64_t start = now_ns();
  receive_stream(bytes);
  printf("%llu\n", (unsigned long long)(now_ns() - start));
}

static void run_latency(uint64_t count) {
  while (count-- > 0) {
    uint64_t start = now_ns();
    int fd = open_and_echo();
    printf("%llu\n", (unsigned long long)(now_ns() - start));
    close(fd);
  }
}

static void run_rate(uint64_t count) {
  uint64_t start = now_ns();
  for (int worker = 0; worker < WORKERS; worker++) {
    if (fork() != 0)
      continue;
    for (uint64_t i = 0; i < count / WORKERS; i++)
      close(open_and_echo());
    exit(0);
  }
  for (int status; wait(&status) > 0;) {
    if (status != 0)
      exit(1);
  }
  printf("%llu\n", (unsigned long long)(now_ns() - start));
}

static void run_idle(uint64_t count) {
  while (count-- > 0)
    (void)open_and_echo();
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    int port; /* after the first */
    void (*run)(uint64_t count);
  } modes[] = {{"stream", 0, run_stream},
               {"latency", 1, run_latency},
               {"rate", 1, run_rate},
               {"idle", 1, run_idle}};
  raise_limit();
  if (argc == 4 && strcmp(argv[1], "serve") == 0)
    serve(argv[2], atoi(argv[3]));
  for (size_t i = 0; argc >= 5 && i < sizeof modes / sizeof *modes; i++) {
    if (strcmp(argv[1], modes[i].name) != 0)
      continue;
    target_text = argv[2];
    target = address_of(argv[2], atoi(argv[3]) + modes[i].port);
    if (argc > 5)
      proxy = address_of("127.0.0.1", atoi(argv[5]));
    if (modes[i].port)
      close(open_and_echo());
    else
      receive_stream(1);
    say("ready");
    wait_for('\n');
    modes[i].run(strtoull(argv[4], NULL, 10));
    say("done");
    wait_for(EOF);
    return 0;
  }
  fputs("usage: see the head of net-load.c\n", stderr);
  return 2;
}
