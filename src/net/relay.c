/* The relay's process; see relay.h. */
#include "net/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "net/confine.h"
#include "net/drivers/openings.h"
#include "net/flow.h"
#include "net/guard.h"
#include "net/proxy-http.h"

#define TICK_MS        500
#define ACCEPT_BATCH   64
#define DATAGRAM_LIMIT 1024 /* pairs of client and target at the same time */
#define PING_LIMIT     64
#define REFUSE_BATCH   4096 /* the kernel's queue */
#define FULL_MS        2000 /* that somebody may have to wait until there is room */

static struct relay *the_relay; /* watches of listeners hold no pointer back */

/* ---- listeners ---- */

static void set_listening(struct relay *relay, bool listening) {
  static const int listeners[] = {INSIDE_TCP4, INSIDE_TCP6};
  for (size_t i = 0; i < ARRAY_SIZE(listeners); i++) {
    struct watch *watch = &relay->listeners[listeners[i]];
    if (watch->fd >= 0)
      (void)loop_change_level(&relay->loop, watch, listening ? EPOLLIN : 0);
  }
  relay->listening = listening;
}

static bool refuse_one(struct relay *relay, int listener) {
  if (relay->reserve >= 0)
    close(relay->reserve);
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) {
    reset_on_close(fd);
    close(fd);
    relay->input->ledger->failed++;
  }
  relay->reserve = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  return fd >= 0;
}

/* Out of descriptors, or as many connections as we may have: the rest waits in the kernel's queue
 * until one has ended, and is refused when none has for a while. */
static void stop_listening(struct relay *relay, int listener) {
  uint64_t now = loop_now_ms();
  if (relay->full_since_ms == 0)
    relay->full_since_ms = now;
  for (int i = 0; i < REFUSE_BATCH && now - relay->full_since_ms >= FULL_MS; i++) {
    if (!refuse_one(relay, listener))
      break;
  }
  set_listening(relay, false);
}

static void on_connections(struct watch *watch, uint32_t events) {
  (void)events;
  struct relay *relay = the_relay;
  for (int i = 0; i < ACCEPT_BATCH; i++) {
    if (relay->flow_count >= relay->flow_limit && !annex_relieve(relay)) {
      stop_listening(relay, watch->fd);
      return;
    }
    int fd = accept4(watch->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
        stop_listening(relay, watch->fd);
      return;
    }
    relay->full_since_ms = 0;
    flow_accepted(relay, fd);
  }
}

static void on_questions(struct watch *watch, uint32_t events) {
  (void)events;
  questions_read_datagrams(the_relay, watch->fd);
}

static void on_datagrams(struct watch *watch, uint32_t events) {
  (void)events;
  datagrams_read(the_relay, watch->fd);
}

static void on_pings(struct watch *watch, uint32_t events) {
  (void)events;
  pings_read(the_relay, watch->fd, watch == &the_relay->listeners[INSIDE_PING6]);
}

static void (*const readers[INSIDE_SOCKETS])(struct watch *watch, uint32_t events) = {
    [INSIDE_TCP4] = on_connections,     [INSIDE_TCP6] = on_connections,
    [INSIDE_UDP4] = on_questions,       [INSIDE_UDP6] = on_questions,
    [INSIDE_DATAGRAMS4] = on_datagrams, [INSIDE_DATAGRAMS6] = on_datagrams,
    [INSIDE_PING4] = on_pings,          [INSIDE_PING6] = on_pings,
};

static int watch_sockets(struct relay *relay) {
  for (int i = 0; i < INSIDE_SOCKETS; i++) {
    relay->listeners[i] = (struct watch){.fd = relay->input->sockets[i], .ready = readers[i]};
    if (relay->listeners[i].fd < 0 || !readers[i])
      continue;
    int result = loop_add_level(&relay->loop, &relay->listeners[i], EPOLLIN);
    if (result < 0)
      return result;
  }
  relay->listening = true;
  return 0;
}

/* ---- the monitor ---- */

static void on_answer(struct relay *relay, struct link_message *message) {
  message->reason[sizeof message->reason - 1] = '\0';
  if (record_answered(relay, message)) {
    flow_recorded(relay, message);
    ways_recorded(relay, message);
  } else {
    flow_answered(relay, message);
    questions_answered(relay, message);
  }
}

static void on_line(struct watch *watch, uint32_t events) {
  struct relay *relay = the_relay;
  struct link_message message;
  int fds[FD_PASS_LIMIT];
  (void)events;
  for (;;) {
    ssize_t got = fd_receive(watch->fd, fds, &message, sizeof message);
    if (got == -EAGAIN)
      return;
    if (got == sizeof message && message.kind == LINK_ANSWER) {
      on_answer(relay, &message);
    } else if (got == sizeof message && message.kind == LINK_FILES) {
      resolver_take_files(relay->resolver, fds);
    } else if (got == sizeof message && message.kind == LINK_FORGET) {
      message.reason[sizeof message.reason - 1] = '\0';
      host_rules_forget(relay->input->rules, message.reason);
    } else {
      relay->loop.over = true; /* the monitor is gone, and so are we */
      return;
    }
  }
}

/* If it does not get there, the resolver asks again. */
static void ask_for_files(void) {
  static const struct link_message message = {.kind = LINK_RENEW};
  (void)send(the_relay->line.fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- a driver's minder ---- */

static void on_opened(struct watch *watch, uint32_t events) {
  struct relay *relay = the_relay;
  struct opened opened;
  (void)events;
  for (;;) {
    ssize_t got = recv(watch->fd, &opened, sizeof opened, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    if (got != sizeof opened) {
      relay->loop.over = true; /* nothing can be opened any more */
      return;
    }
    questions_opened(relay, opened.id, opened.done);
  }
}

static int watch_openings(struct relay *relay) {
  relay->openings = (struct watch){.fd = relay->input->openings, .ready = on_opened};
  if (relay->openings.fd < 0)
    return 0;
  if (port_classes_new(relay->input->rules, relay->input->may_ask, &relay->classes) < 0)
    return -E2BIG;
  return loop_add_level(&relay->loop, &relay->openings, EPOLLIN);
}

/* ---- housekeeping ---- */

void relay_free_dead(struct relay *relay) {
  struct flow *kept = NULL, *next;
  for (struct flow *flow = relay->dead; flow; flow = next) {
    next = flow->next_dead;
    if (flow->queued) { /* still in the list of turns */
      flow->next_dead = kept;
      kept = flow;
      continue;
    }
    end_clear(&flow->client);
    end_clear(&flow->server);
    http_exchange_free(flow->http);
    free(flow->targets);
    free(flow->stream);
    free(flow);
  }
  relay->dead = kept;
}

void relay_give_turns(struct relay *relay) {
  struct flow *turns = relay->turns, *next;
  relay->turns = NULL;
  for (struct flow *flow = turns; flow; flow = next) {
    next = flow->next_turn;
    flow->queued = false;
    if (flow->state == FLOW_RELAYING)
      pump(flow);
    else if (flow->state == FLOW_HTTP_RELAYING)
      http_pump(flow);
    else if (flow->state == FLOW_QUESTIONS)
      questions_read_stream(flow);
  }
}

static int next_timeout(struct relay *relay) {
  if (relay->turns)
    return 0;
  int wait = resolver_timeout(relay->resolver);
  bool ticking = relay->flows || ways_any(relay) || relay->withdrawals || relay->waiting ||
                 relay->denied.count > 0 || !relay->listening;
  if (ticking && (wait < 0 || wait > TICK_MS))
    wait = TICK_MS;
  return wait;
}

static void work(struct relay *relay) {
  uint64_t last_tick = 0;
  while (!relay->loop.over) {
    loop_round(&relay->loop, next_timeout(relay));
    relay_give_turns(relay);
    resolver_tick(relay->resolver);
    uint64_t now = loop_now_ms();
    if (now - last_tick >= TICK_MS) {
      last_tick = now;
      flow_tick(relay, now);
      ways_tick(relay, now);
      questions_tick(relay, now);
      flow_send_withdrawals(relay);
      relay_tell_denials(relay);
      if (!relay->listening)
        set_listening(relay, true); /* try again; it stops by itself */
    }
    relay_free_dead(relay);
    ways_free_dead(relay);
  }
}

/* ---- start ---- */

/* Terminal and group signals are for the workload and its monitor. Our end is the line's. */
static void ignore_signals(void) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, NULL);
}

static void leave_monitor(const struct relay_input *input) {
  int kept[INSIDE_SOCKETS + 2];
  memcpy(kept, input->sockets, sizeof input->sockets);
  kept[INSIDE_SOCKETS] = input->line;
  kept[INSIDE_SOCKETS + 1] = input->openings;
  fd_close_others(kept, ARRAY_SIZE(kept));
  _cleanup_close_ int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd < 3; fd++)
    dup2(null, fd); /* a pipe must see its end although we live */
}

/* Datagrams take one socket for each pair of addresses; connections get what is left. */
static void share_files(struct relay *relay) {
  bool datagrams = relay->input->sockets[INSIDE_DATAGRAMS4] >= 0;
  size_t eighth = pump_raise_files() / 8;
  size_t limit = eighth < DATAGRAM_LIMIT ? eighth : DATAGRAM_LIMIT;
  relay->ways[WAYS_DATAGRAMS].limit = limit;
  relay->ways[WAYS_PINGS].limit = PING_LIMIT;
  relay->flow_limit = pump_most_flows(datagrams ? limit : 0);
}

/* Woken up by every packet, we would interrupt whoever sends them on a machine that is busy, and
 * carry each by itself. */
static void let_others_finish(void) {
  if (sched_getscheduler(0) == SCHED_OTHER)
    (void)sched_setscheduler(0, SCHED_BATCH, &(struct sched_param){0});
}

void relay_main(const struct relay_input *input) {
  struct relay relay = {.input = input, .reserve = -1};
  the_relay = &relay;
  prctl(PR_SET_NAME, "sandbox-relay");
  let_others_finish();
  ignore_signals();
  leave_monitor(input);
  share_files(&relay);
  relay.line = (struct watch){.fd = input->line, .ready = on_line};
  if (loop_open(&relay.loop) < 0)
    return;
  annex_start(&relay);
  relay.names = names_new();
  relay.resolver = resolver_new(&relay.loop, ask_for_files);
  if (!relay.resolver || loop_add_level(&relay.loop, &relay.line, EPOLLIN) < 0 ||
      watch_openings(&relay) < 0 || guard_prepare() < 0 || relay_confine() < 0 ||
      watch_sockets(&relay) < 0)
    return; /* the monitor sees the end of the line */
  struct link_message ready = {.kind = LINK_READY};
  (void)send(input->line, &ready, sizeof ready, MSG_NOSIGNAL);
  work(&relay);
}
