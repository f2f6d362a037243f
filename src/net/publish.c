/* Published ports; see publish.h. */
#include "net/publish.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "net/confine.h"
#include "net/flow.h"

#define HUNG_UP_MS 5000
#define TICK_MS    500

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

/* ---- connections ---- */

/* Between the host's side, which is there, and the session's, which may take its time: a server
 * that lets its queue fill up holds up nobody else. Servers listen on either loopback address. */
struct arrival {
  struct watch watch; /* first: inside, while it connects */
  struct client {
    struct watch watch; /* first: the host's side, meanwhile */
    struct arrival *arrival;
  } client;
  struct publishing *publishing;
  struct arrival *next, **link; /* of those that connect; of those that are done */
  uint64_t until_ms;            /* it has hung up, and waits no longer than that; 0: it has not */
  uint16_t port;
  unsigned tried;
};

struct publishing {
  struct relay relay; /* only its loop and its connections */
  struct watch line;
  struct arrival *arrivals;
  size_t arrival_count, leaving_count, limit;
  uint64_t next_tick_ms;
  struct arrival *done; /* to be freed after the round */
};

static int start_connecting(const struct arrival *arrival) {
  static const struct address tries[] = {{.family = 4, .bytes = {127, 0, 0, 1}},
                                         {.family = 6, .bytes = {[15] = 1}}};
  struct sockaddr_storage target;
  if (arrival->tried >= ARRAY_SIZE(tries))
    return -1;
  socklen_t length = address_to_sockaddr(&tries[arrival->tried], arrival->port, &target);
  int fd = socket(target.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&target, length) < 0 && errno != EINPROGRESS) {
    close(fd);
    return -1;
  }
  return fd;
}

static void finish_arrival(struct arrival *arrival) {
  struct publishing *publishing = arrival->publishing;
  reset_on_close(arrival->client.watch.fd); /* nobody listens inside: refused, as without us */
  loop_close(&publishing->relay.loop, &arrival->client.watch);
  publishing->arrival_count--;
  publishing->leaving_count -= arrival->until_ms != 0;
  *arrival->link = arrival->next;
  if (arrival->next)
    arrival->next->link = arrival->link;
  arrival->next = publishing->done;
  publishing->done = arrival;
}

static void try_next(struct arrival *arrival) {
  for (; arrival->tried < 2; arrival->tried++) {
    arrival->watch.fd = start_connecting(arrival);
    if (arrival->watch.fd < 0)
      continue;
    if (loop_add_level(&arrival->publishing->relay.loop, &arrival->watch, EPOLLOUT) == 0)
      return;
    loop_close(&arrival->publishing->relay.loop, &arrival->watch);
  }
  finish_arrival(arrival);
}

static void on_inside(struct watch *watch, uint32_t events) {
  struct arrival *arrival = (struct arrival *)watch;
  struct relay *relay = &arrival->publishing->relay;
  if (events & (EPOLLERR | EPOLLHUP)) {
    loop_close(&relay->loop, watch);
    arrival->tried++;
    try_next(arrival);
    return;
  }
  int inside = watch->fd, host = arrival->client.watch.fd;
  loop_forget(&relay->loop, watch);
  loop_forget(&relay->loop, &arrival->client.watch);
  flow_moved_in(relay, host, inside, NULL);
  finish_arrival(arrival);
}

static void give_up(struct arrival *arrival) {
  loop_close(&arrival->publishing->relay.loop, &arrival->watch);
  finish_arrival(arrival);
}

/* Who has said all that it has to say may want to hear something, or be gone: that looks the same.
 * A server that lives answers soon. */
static void on_client(struct watch *watch, uint32_t events) {
  struct arrival *arrival = ((struct client *)watch)->arrival;
  struct publishing *publishing = arrival->publishing;
  if ((events & (EPOLLERR | EPOLLHUP)) ||
      loop_change_level(&publishing->relay.loop, watch, 0) < 0) {
    give_up(arrival);
    return;
  }
  arrival->until_ms = loop_now_ms() + HUNG_UP_MS;
  publishing->leaving_count++;
}

static void give_up_late(struct publishing *publishing) {
  uint64_t now = loop_now_ms();
  struct arrival *next;
  if (publishing->leaving_count == 0 || now < publishing->next_tick_ms)
    return;
  publishing->next_tick_ms = now + TICK_MS;
  for (struct arrival *arrival = publishing->arrivals; arrival; arrival = next) {
    next = arrival->next;
    if (arrival->until_ms && now >= arrival->until_ms)
      give_up(arrival);
  }
}

static void bury(struct publishing *publishing) {
  while (publishing->done) {
    struct arrival *arrival = publishing->done;
    publishing->done = arrival->next;
    free(arrival);
  }
}

/* Something that is not there now, and that waiting connections would ask for again at once. */
static void wait_a_little(void) {
  const struct timespec little = {.tv_nsec = 20 * 1000 * 1000};
  nanosleep(&little, NULL);
}

static void begin_arrival(struct publishing *publishing, int host, uint16_t port) {
  struct arrival *arrival = xcalloc(1, sizeof *arrival);
  *arrival = (struct arrival){.watch = {.fd = -1, .ready = on_inside},
                              .client = {{.fd = host, .ready = on_client}, arrival},
                              .publishing = publishing,
                              .next = publishing->arrivals,
                              .link = &publishing->arrivals,
                              .port = port};
  if (arrival->next)
    arrival->next->link = &arrival->next;
  publishing->arrivals = arrival;
  publishing->arrival_count++;
  if (loop_add_level(&publishing->relay.loop, &arrival->client.watch, EPOLLRDHUP) < 0)
    finish_arrival(arrival);
  else
    try_next(arrival);
}

static void on_connection(struct watch *watch, uint32_t events) {
  struct listener *listener = (struct listener *)watch;
  struct publishing *publishing = listener->publishing;
  (void)events;
  int host = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (host < 0) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      wait_a_little();
    return;
  }
  if (publishing->relay.flow_count + publishing->arrival_count >= publishing->limit) {
    reset_on_close(host);
    close(host);
    return;
  }
  begin_arrival(publishing, host, listener->inside);
}

static void on_monitor_gone(struct watch *watch, uint32_t events) {
  (void)watch;
  (void)events;
  _exit(0);
}

static int next_timeout(const struct publishing *publishing) {
  if (publishing->relay.turns)
    return 0;
  return publishing->leaving_count ? TICK_MS : -1;
}

static int watch_listeners(struct publisher *publisher, struct publishing *publishing) {
  for (size_t i = 0; i < publisher->count; i++) {
    publisher->listeners[i].publishing = publishing;
    publisher->listeners[i].watch.ready = on_connection;
    if (loop_add_level(&publishing->relay.loop, &publisher->listeners[i].watch, EPOLLIN) < 0)
      return -1;
  }
  return 0;
}

static _Noreturn void publish_main(struct publisher *publisher, int line, int user_ns, int net_ns) {
  static const struct relay_input nothing = {.line = -1};
  struct publishing publishing = {.relay = {.input = &nothing},
                                  .line = {.fd = line, .ready = on_monitor_gone},
                                  .limit = pump_most_flows(publisher->count)};
  struct loop *loop = &publishing.relay.loop;
  prctl(PR_SET_NAME, "sandbox-publish");
  setsid();
  if (setns(user_ns, CLONE_NEWUSER) < 0 || setns(net_ns, CLONE_NEWNET) < 0 || loop_open(loop) < 0 ||
      loop_add_level(loop, &publishing.line, EPOLLIN) < 0 ||
      watch_listeners(publisher, &publishing) < 0)
    _exit(1);
  close(user_ns);
  close(net_ns);
  if (relay_confine() < 0)
    _exit(1);
  for (;;) {
    loop_round(loop, next_timeout(&publishing));
    relay_give_turns(&publishing.relay);
    relay_free_dead(&publishing.relay);
    give_up_late(&publishing);
    bury(&publishing);
  }
}

/* In the child: nothing of the monitor's but what is needed here. */
static void keep_only(const struct publisher *publisher, int line, int user_ns, int net_ns) {
  _cleanup_free_ int *kept = xcalloc(publisher->count + 3, sizeof *kept);
  for (size_t i = 0; i < publisher->count; i++)
    kept[i] = publisher->listeners[i].watch.fd;
  memcpy(kept + publisher->count, (int[]){line, user_ns, net_ns}, 3 * sizeof *kept);
  child_keep_only(kept, publisher->count + 3);
}

static void close_listeners(struct publisher *publisher) {
  for (size_t i = 0; i < publisher->count; i++)
    close(publisher->listeners[i].watch.fd);
  free(publisher->listeners);
  publisher->listeners = NULL;
  publisher->count = 0;
}

int publisher_start(struct publisher *publisher, int user_ns, int net_ns, struct sb_error *error) {
  int line;
  pid_t pid = child_start("the publisher", &line, error);
  if (pid == 0) {
    keep_only(publisher, line, user_ns, net_ns);
    publish_main(publisher, line, user_ns, net_ns);
  }
  if (pid < 0)
    return -1;
  close_listeners(publisher);
  publisher->pid = pid;
  publisher->line = line;
  return 0;
}

void publisher_end(struct publisher *publisher) {
  close_listeners(publisher);
  if (publisher->pid <= 0)
    return;
  close(publisher->line);
  kill(publisher->pid, SIGKILL);
  (void)child_wait(publisher->pid);
  *publisher = PUBLISHER_NONE;
}
