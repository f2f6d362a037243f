/* Published ports; see publish.h. */
#include "net/publish.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "net/confine.h"
#include "net/loop.h"

#define PAIR_LIMIT  512
#define BUFFER_SIZE 65536

struct listener {
  struct watch watch; /* first: a pointer to it is one to this */
  struct publishing *publishing;
  uint16_t inside;
};

/* ---- what was asked for ---- */

static const char *take_port(const char *text, uint16_t *ret_port) {
  char *end;
  unsigned long port = *text >= '0' && *text <= '9' ? strtoul(text, &end, 10) : 0;
  *ret_port = (uint16_t)port;
  return port >= 1 && port <= 65535 ? end : NULL;
}

/* The address before the ports, if there is one; the rest of the text, or NULL. */
static const char *take_address(const char *text, struct published *published) {
  struct sockaddr_in *four = (struct sockaddr_in *)&published->host;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)&published->host;
  char address[INET6_ADDRSTRLEN];
  bool bracket = *text == '[';
  size_t length = strcspn(text + bracket, bracket ? "]" : ":");
  if (length >= sizeof address)
    return NULL;
  snprintf(address, sizeof address, "%.*s", (int)length, text + bracket);
  published->host_length = bracket ? sizeof *six : sizeof *four;
  published->host.ss_family = bracket ? AF_INET6 : AF_INET;
  if (bracket) /* "[", the address, "]:" */
    return inet_pton(AF_INET6, address, &six->sin6_addr) == 1 &&
                   strncmp(text + 1 + length, "]:", 2) == 0
               ? text + length + 3
               : NULL;
  if (inet_pton(AF_INET, address, &four->sin_addr) == 1 && text[length] == ':')
    return text + length + 1;
  four->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return text;
}

bool publish_parse(const char *text, struct published *ret_published) {
  uint16_t port = 0;
  *ret_published = (struct published){0};
  const char *rest = take_address(text, ret_published);
  rest = rest ? take_port(rest, &port) : NULL;
  ret_published->inside = port;
  if (rest && *rest == ':')
    rest = take_port(rest + 1, &ret_published->inside);
  if (!rest || *rest != '\0')
    return false;
  /* The port is at the same place in both kinds of addresses. */
  ((struct sockaddr_in *)&ret_published->host)->sin_port = htons(port);
  return true;
}

char *publish_text(const struct published *published, uint16_t inside) {
  const struct sockaddr_in *four = (const struct sockaddr_in *)&published->host;
  const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)&published->host;
  char address[INET6_ADDRSTRLEN];
  bool is_six = published->host.ss_family == AF_INET6;
  const void *bytes = is_six ? (const void *)&six->sin6_addr : (const void *)&four->sin_addr;
  inet_ntop(published->host.ss_family, bytes, address, sizeof address);
  return xasprintf(is_six ? "[%s]:%u:%u" : "%s:%u:%u", address, ntohs(four->sin_port), inside);
}

static int listen_at(const char *text, struct listener *ret_listener, struct sb_error *error) {
  struct published published;
  _cleanup_free_ char *shown = escape_string(text);
  if (!publish_parse(text, &published)) {
    sb_fail(error, SB_CODE_USAGE, 0, "publish '%s': not HOST_PORT:SANDBOX_PORT", shown);
    return sb_hint(error, "write 8080:80, or 0.0.0.0:8080:80 for every interface");
  }
  _cleanup_close_ int fd =
      socket(published.host.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int yes = 1;
  if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) < 0 ||
      bind(fd, (struct sockaddr *)&published.host, published.host_length) < 0 ||
      listen(fd, SOMAXCONN) < 0) {
    sb_fail(error, SB_CODE_SYSTEM, errno, "publish '%s'", shown);
    return sb_hint(error, "choose another port of the host");
  }
  *ret_listener = (struct listener){.watch = {.fd = steal_fd(&fd)}, .inside = published.inside};
  return 0;
}

int publisher_listen(struct publisher *publisher, const struct strv *published,
                     struct sb_error *error) {
  if (published->count == 0)
    return 0;
  publisher->listeners = xcalloc(published->count, sizeof *publisher->listeners);
  for (size_t i = 0; i < published->count; i++) {
    if (listen_at(published->items[i], &publisher->listeners[i], error) < 0)
      return -1;
    publisher->count++;
  }
  return 0;
}

/* ---- moving bytes ---- */

struct side {
  struct watch watch; /* first */
  struct pair *pair;
  char *buffer; /* what was read here and not yet written there */
  size_t used;
  bool ended, passed;
};

struct pair {
  struct pair *next_dead;
  struct publishing *publishing;
  struct side host, inside;
  bool dead;
};

struct publishing {
  struct loop loop;
  struct watch line;
  size_t pairs;
  struct pair *dead;
};

static void end_pair(struct pair *pair) {
  if (pair->dead)
    return;
  struct publishing *publishing = pair->publishing;
  loop_close(&publishing->loop, &pair->host.watch);
  loop_close(&publishing->loop, &pair->inside.watch);
  pair->dead = true;
  pair->next_dead = publishing->dead;
  publishing->dead = pair;
  publishing->pairs--;
}

static void bury(struct publishing *publishing) {
  while (publishing->dead) {
    struct pair *pair = publishing->dead;
    publishing->dead = pair->next_dead;
    free(pair->host.buffer);
    free(pair->inside.buffer);
    free(pair);
  }
}

/* True if something moved; a connection that broke ends the pair. */
static bool move_some(struct side *from, struct side *to) {
  bool moved = false;
  if (from->used == 0 && !from->ended) {
    ssize_t got = recv(from->watch.fd, from->buffer, BUFFER_SIZE, MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN)
      end_pair(from->pair);
    from->ended = got == 0;
    from->used = got > 0 ? (size_t)got : 0;
    moved = got >= 0;
  }
  if (from->used > 0 && !from->pair->dead) {
    ssize_t sent = send(to->watch.fd, from->buffer, from->used, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR && errno != ENOTCONN)
      end_pair(from->pair);
    if (sent > 0) {
      from->used -= (size_t)sent;
      memmove(from->buffer, from->buffer + sent, from->used);
      moved = true;
    }
  }
  if (from->ended && from->used == 0 && !from->passed && !from->pair->dead) {
    shutdown(to->watch.fd, SHUT_WR);
    from->passed = moved = true;
  }
  return moved;
}

static uint32_t wanted(const struct side *side, const struct side *other) {
  return (side->used == 0 && !side->ended ? EPOLLIN : 0) | (other->used > 0 ? EPOLLOUT : 0);
}

static void on_pair(struct watch *watch, uint32_t events) {
  struct pair *pair = ((struct side *)watch)->pair;
  struct loop *loop = &pair->publishing->loop;
  (void)events;
  /* Not for ever: the others want to move, too. */
  for (int turn = 0; turn < 16 && !pair->dead; turn++) {
    bool out = move_some(&pair->host, &pair->inside);
    bool in = !pair->dead && move_some(&pair->inside, &pair->host);
    if (!out && !in)
      break;
  }
  if (!pair->dead && pair->host.passed && pair->inside.passed)
    end_pair(pair);
  if (pair->dead)
    return;
  loop_change_level(loop, &pair->host.watch, wanted(&pair->host, &pair->inside));
  loop_change_level(loop, &pair->inside.watch, wanted(&pair->inside, &pair->host));
}

/* ---- connections ---- */

/* Servers listen on either loopback address; both are tried. Loopback answers at once, unless a
 * server lets its queue fill up, and then only its own port has to wait. */
static int connect_inside(uint16_t port) {
  const struct sockaddr_in four = {
      .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  const struct sockaddr_in6 six = {
      .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  const struct {
    const void *address;
    socklen_t length;
    int family;
  } tries[] = {{&four, sizeof four, AF_INET}, {&six, sizeof six, AF_INET6}};
  for (size_t i = 0; i < ARRAY_SIZE(tries); i++) {
    _cleanup_close_ int fd = socket(tries[i].family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const struct timeval patience = {.tv_usec = 200 * 1000};
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, tries[i].address, tries[i].length) == 0)
      return steal_fd(&fd);
  }
  return -1;
}

static void open_pair(struct publishing *publishing, int host, int inside) {
  struct pair *pair = xcalloc(1, sizeof *pair);
  pair->publishing = publishing;
  pair->host = (struct side){.watch = {.fd = host, .ready = on_pair}, .pair = pair};
  pair->inside = (struct side){.watch = {.fd = inside, .ready = on_pair}, .pair = pair};
  pair->host.buffer = xmalloc(BUFFER_SIZE);
  pair->inside.buffer = xmalloc(BUFFER_SIZE);
  publishing->pairs++;
  if (loop_add_level(&publishing->loop, &pair->host.watch, EPOLLIN) < 0 ||
      loop_add_level(&publishing->loop, &pair->inside.watch, EPOLLIN) < 0)
    end_pair(pair);
}

static void on_connection(struct watch *watch, uint32_t events) {
  struct listener *listener = (struct listener *)watch;
  struct publishing *publishing = listener->publishing;
  (void)events;
  _cleanup_close_ int host = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (host < 0)
    return;
  int inside = publishing->pairs < PAIR_LIMIT ? connect_inside(listener->inside) : -1;
  if (inside >= 0) {
    open_pair(publishing, steal_fd(&host), inside);
    return;
  }
  struct linger reset = {.l_onoff = 1}; /* nobody listens inside: refused, as without us */
  setsockopt(host, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
}

static void on_monitor_gone(struct watch *watch, uint32_t events) {
  (void)watch;
  (void)events;
  _exit(0);
}

static _Noreturn void publish_main(struct publisher *publisher, int line, int user_ns, int net_ns) {
  struct publishing publishing = {.line = {.fd = line, .ready = on_monitor_gone}};
  prctl(PR_SET_NAME, "sandbox-publish");
  setsid();
  if (setns(user_ns, CLONE_NEWUSER) < 0 || setns(net_ns, CLONE_NEWNET) < 0 ||
      loop_open(&publishing.loop) < 0 ||
      loop_add_level(&publishing.loop, &publishing.line, EPOLLIN) < 0)
    _exit(1);
  for (size_t i = 0; i < publisher->count; i++) {
    publisher->listeners[i].publishing = &publishing;
    publisher->listeners[i].watch.ready = on_connection;
    if (loop_add_level(&publishing.loop, &publisher->listeners[i].watch, EPOLLIN) < 0)
      _exit(1);
  }
  close(user_ns);
  close(net_ns);
  if (relay_confine() < 0)
    _exit(1);
  for (;;) {
    loop_round(&publishing.loop, -1);
    bury(&publishing);
  }
}

/* In the child: nothing of the monitor's but what is needed here. */
static void keep_only(const struct publisher *publisher, int line, int user_ns, int net_ns) {
  _cleanup_free_ int *kept = xcalloc(publisher->count + 3, sizeof *kept);
  for (size_t i = 0; i < publisher->count; i++)
    kept[i] = publisher->listeners[i].watch.fd;
  memcpy(kept + publisher->count, (int[]){line, user_ns, net_ns}, 3 * sizeof *kept);
  fd_close_others(kept, publisher->count + 3);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++)
    dup2(null, fd);
}

static void close_listeners(struct publisher *publisher) {
  for (size_t i = 0; i < publisher->count; i++)
    close(publisher->listeners[i].watch.fd);
  free(publisher->listeners);
  publisher->listeners = NULL;
  publisher->count = 0;
}

int publisher_start(struct publisher *publisher, int user_ns, int net_ns, struct sb_error *error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
    return sb_fail_errno(error, "creating the line to the publisher");
  pid_t pid = fork();
  if (pid == 0) {
    keep_only(publisher, ends[1], user_ns, net_ns);
    publish_main(publisher, ends[1], user_ns, net_ns);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return sb_fail_errno(error, "starting the publisher");
  }
  close_listeners(publisher);
  publisher->pid = pid;
  publisher->line = ends[0];
  return 0;
}

void publisher_end(struct publisher *publisher) {
  close_listeners(publisher);
  if (publisher->pid <= 0)
    return;
  close(publisher->line);
  kill(publisher->pid, SIGKILL);
  while (waitpid(publisher->pid, NULL, 0) < 0 && errno == EINTR)
    ;
  *publisher = PUBLISHER_NONE;
}
