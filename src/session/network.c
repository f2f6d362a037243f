/* The monitor's side of the relay; see network.h. */
#include "session/network.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "net/relay.h"
#include "session/drivers-ask.h"
#include "session/events.h"
#include "session/monitor.h"
#include "session/sockets.h"

static _Noreturn void relay_process(struct monitor *monitor, const int *sockets, int line) {
  const struct plan *plan = monitor->request->plan;
  struct relay_input input = {
      .line = line,
      .rules = plan->network.rules,
      .upstream = plan->network.upstream,
      .may_ask = plan->network.may_ask,
      .ledger = monitor->network.ledger,
      .hostname = plan->hostname,
      .openings = monitor->network.driven.openings,
  };
  memcpy(input.sockets, sockets, sizeof input.sockets);
  relay_main(&input);
  _exit(0);
}

static void close_sockets(struct network *network) {
  for (size_t i = 0; i < INSIDE_SOCKETS; i++) {
    if (network->sockets[i] >= 0)
      close(network->sockets[i]);
    network->sockets[i] = -1;
  }
}

static int start(struct monitor *monitor) {
  struct network *network = &monitor->network;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
    return -errno;
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    relay_process(monitor, network->sockets, ends[1]);
  }
  int result = pid < 0 ? -errno : 0;
  close(ends[1]);
  if (result < 0) {
    close(ends[0]);
    return result;
  }
  network->relay = pid;
  network->line = ends[0];
  if (network->driven.openings >= 0)
    close(network->driven.openings);
  network->driven.openings = -1;
  return 0;
}

/* Many sessions that may use the network never do: the relay is started by the first who tries. */
static int wait_for_use(struct network *network) {
  network->recording = bucket_new(RECORD_BURST, RECORD_PER_SECOND);
  network->ledger = ledger_new();
  network->idle = epoll_create1(EPOLL_CLOEXEC);
  if (!network->ledger || network->idle < 0)
    return -errno;
  for (size_t i = 0; i < INSIDE_SOCKETS; i++) {
    struct epoll_event event = {.events = EPOLLIN};
    if (network->sockets[i] >= 0 && i != INSIDE_RAW4 && i != INSIDE_RAW6 &&
        epoll_ctl(network->idle, EPOLL_CTL_ADD, network->sockets[i], &event) < 0)
      return -errno;
  }
  return 0;
}

static void let_go(struct network *network) {
  if (network->idle >= 0)
    close(network->idle);
  network->idle = -1;
  close_sockets(network); /* when the relay goes, nobody may listen any more */
}

void network_sockets(struct monitor *monitor, const struct message *message,
                     int fds[FD_PASS_LIMIT]) {
  _Static_assert(FD_PASS_LIMIT == INSIDE_GROUP, "one message carries one group");
  struct network *network = &monitor->network;
  if (monitor->request->plan->network.driver && !monitor->request->plan->network.resolves)
    return; /* a driver whose rules are about addresses: nobody asks us */
  size_t first = (size_t)message->value;
  bool fits = message->value >= 0 && first % INSIDE_GROUP == 0;
  for (size_t i = 0; fits && i < FD_PASS_LIMIT && first + i < INSIDE_SOCKETS; i++) {
    network->sockets[first + i] = fds[i];
    fds[i] = -1;
  }
  if (!fits || (message->id != 0 && wait_for_use(network) < 0)) {
    network->failed = true;
    monitor->over = true;
  }
  const struct network_settings *settings = &monitor->request->plan->network;
  if (message->id != 0 && settings->mode == NETWORK_FILTERED && !settings->driver)
    network->strays = strays_open(monitor->engine.init);
}

void network_note_supervisors(struct monitor *monitor) {
  const struct decisions *decisions = monitor->supervision.decisions;
  bool nobody = !decisions || !decisions_may_allow_hosts(decisions);
  if (monitor->network.ledger)
    atomic_store_explicit(&monitor->network.ledger->nobody_to_ask, nobody, memory_order_relaxed);
  driven_note_supervisors(monitor, nobody);
}

struct pollfd network_watch(const struct network *network) {
  return (struct pollfd){.fd = network->line >= 0 ? network->line : network->idle,
                         .events = network->unsent ? POLLOUT : POLLIN};
}

static json_t *figures_to_json(const struct network *network) {
  json_t *figures = ledger_to_json(network->ledger);
  int64_t strays = strays_count(&network->strays);
  json_object_set_new(figures, "refused_datagrams",
                      strays < 0 ? json_null() : json_integer(strays));
  return figures;
}

json_t *network_to_json(const struct monitor *monitor) {
  const struct network *network = &monitor->network;
  if (network->driven.ready)
    return driven_to_json(monitor);
  return network->ledger ? figures_to_json(network) : json_null();
}

/* ---- what it says ---- */

static json_t *message_fields(const struct link_message *message) {
  json_t *fields = json_pack("{s:i}", "port", (int)message->port);
  json_set_string(fields, "host", message->host);
  json_set_string(fields, "rule", message->reason);
  return fields;
}

static void note_denied(struct monitor *monitor, const struct link_message *message) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *fields = message_fields(message);
  json_object_set_new(fields, "decision", json_string("deny"));
  json_object_set_new(fields, "count", json_integer(message->count));
  log_write(monitor->request->log, LOG_WARNING, "net denied", -1, json_incref(fields));
  if (monitor->audit)
    (void)audit_summary(monitor->audit, "net", fields, &error);
  else
    json_decref(fields);
}

/* ---- questions ---- */

struct network_question {
  struct network_question *next;
  struct monitor *monitor;
  uint32_t id; /* the relay's */
  uint64_t ticket;
  char name[HOST_NAME_SIZE]; /* all of its ports, for a driver; else empty */
};

struct network_answer {
  struct network_answer *next;
  struct link_message message;
};

static bool send_answer(const struct network *network, const struct link_message *message) {
  return send(network->line, message, sizeof *message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 ||
         (errno != EAGAIN && errno != EINTR); /* else it is gone, and so is who asked */
}

/* A connection would wait for ever for an answer that got lost. While there are such, nothing more
 * is read, so they are few. */
static void tell(struct network *network, enum link_kind kind, uint32_t id, bool allowed,
                 const char *reason) {
  struct link_message message = {.kind = kind, .id = id, .allowed = allowed};
  strncpy(message.reason, reason, sizeof message.reason - 1);
  if (network->line < 0 || (!network->unsent && send_answer(network, &message)))
    return;
  struct network_answer **last = &network->unsent, *kept = xcalloc(1, sizeof *kept);
  while (*last)
    last = &(*last)->next;
  kept->message = message;
  *last = kept;
}

static void answer(struct monitor *monitor, uint32_t id, bool allowed, const char *reason) {
  tell(&monitor->network, LINK_ANSWER, id, allowed, reason);
}

/* "example.org", "example.org:443", "[2001:db8::1]:443". */
static bool is_of_host(const char *entry, const char *host) {
  size_t length = strlen(host);
  bool bracketed = entry[0] == '[' && host[0] != '[';
  if (strncasecmp(entry + bracketed, host, length) != 0)
    return false;
  const char *rest = entry + bracketed + length + bracketed;
  bool with_port = *rest == ':' && (bracketed || !strchr(host, ':'));
  return *rest == '\0' || with_port;
}

bool network_revoke(struct monitor *monitor, const char *host) {
  struct host_rules *rules = monitor->request->plan->network.rules;
  const struct policy *policy = monitor->request->rules;
  bool any = false;
  if (!rules || !policy)
    return false;
  STRV_FOREACH (entry, &policy->network.granted) {
    if (!is_of_host(*entry, host))
      continue;
    any = true;
    host_rules_forget(rules, *entry); /* for a relay that is started later */
    tell(&monitor->network, LINK_FORGET, 0, false, *entry);
  }
  return any;
}

static void drop_first_answer(struct network *network) {
  struct network_answer *first = network->unsent;
  network->unsent = first->next;
  free(first);
}

static void send_answers(struct network *network) {
  while (network->unsent && send_answer(network, &network->unsent->message))
    drop_first_answer(network);
}

/* The relay waits with the connection until it is written down; if it cannot be, it is not made. */
static void record(struct monitor *monitor, const struct link_message *message) {
  _cleanup_error_ struct sb_error error = {0};
  if (!bucket_take(&monitor->network.recording, monotonic_ns())) {
    answer(monitor, message->id, false, RECORD_FLOOD);
    return;
  }
  json_t *fields = message_fields(message);
  json_object_set_new(fields, "decision", json_string("allow"));
  int result = events_write(monitor, "net", fields, &error);
  answer(monitor, message->id, result == 0, RECORD_FAILED);
}

static void forget(struct network *network, struct network_question *question) {
  struct network_question **link = &network->questions;
  while (*link && *link != question)
    link = &(*link)->next;
  if (*link)
    *link = question->next;
  free(question);
}

static void note_approved(const struct network_question *question, enum answer given) {
  if (question->name[0] && given == ANSWER_ALLOW)
    driven_note_approved(question->monitor, question->name);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answered) {
  (void)ticket;
  struct network_question *question = context;
  struct monitor *monitor = question->monitor;
  note_approved(question, answered->answer);
  answer(monitor, question->id, answered->answer == ANSWER_ALLOW, "denied when asked");
  forget(&monitor->network, question);
}

static void answer_at_once(struct network_question *question, enum answer given) {
  struct monitor *monitor = question->monitor;
  bool asked = decisions_may_allow_hosts(monitor->supervision.decisions);
  note_approved(question, given);
  answer(monitor, question->id, given == ANSWER_ALLOW, asked ? "denied when asked" : UNASKED);
  forget(&monitor->network, question);
}

pid_t network_owner(struct monitor *monitor, bool datagrams, const struct address *address,
                    uint16_t port) {
  if (!bucket_take(&monitor->network.owning, monotonic_ns()))
    return 0;
  return socket_owner(monitor->engine.init, datagrams, address, port);
}

static void ask(struct monitor *monitor, const struct link_message *message) {
  struct decisions *decisions = monitor->supervision.decisions;
  if (!decisions) {
    answer(monitor, message->id, false, UNASKED);
    return;
  }
  bool of_driver = monitor->request->plan->network.driver && message->port == 0;
  if (of_driver && driven_is_approved(monitor, message->host)) {
    answer(monitor, message->id, true, "");
    return;
  }
  struct access_request request = {
      .subject = SUBJECT_NETWORK,
      .want = WANT_CONNECT,
      .host = message->host,
      .port = message->port,
      .pid = network_owner(monitor, !message->stream, &message->client, message->client_port),
  };
  struct network_question *question = xcalloc(1, sizeof *question);
  *question = (struct network_question){
      .next = monitor->network.questions, .monitor = monitor, .id = message->id};
  monitor->network.questions = question;
  if (of_driver)
    strcpy(question->name, message->host);
  struct answered answered = {0};
  question->ticket = decisions_ask(decisions, &request, on_answer, question, &answered);
  if (answered.answer != ANSWER_PENDING)
    answer_at_once(question, answered.answer);
}

static void withdraw(struct monitor *monitor, uint32_t id) {
  struct network_question *question = monitor->network.questions;
  while (question && question->id != id)
    question = question->next;
  if (!question)
    return;
  decisions_withdraw(monitor->supervision.decisions, question->ticket);
  forget(&monitor->network, question);
}

/* ---- how names are resolved ---- */

/* If it does not get there, the relay asks again. What has not changed is not copied again, so that
 * many who ask have the same memory. */
static void send_name_files(struct network *network) {
  static const struct link_message message = {.kind = LINK_FILES};
  size_t count = name_files_renew(&network->name_files) == 0 ? NAME_FILES : 0;
  (void)fd_send(network->line, network->name_files.copies, count, &message, sizeof message);
}

/* ---- reading ---- */

/* The workload goes on without a network: what it could reach is less, never more. */
static void on_end(struct monitor *monitor) {
  struct network *network = &monitor->network;
  close(network->line);
  network->line = -1;
  while (network->unsent)
    drop_first_answer(network);
  while (network->questions)
    withdraw(monitor, network->questions->id);
  if (network->relay == 0)
    return; /* it was us */
  if (monitor->request->plan->network.driver) {
    driven_lost_resolver(monitor);
    return;
  }
  monitor_warn(monitor, network->ready ? "the network relay has ended; nothing can be reached from "
                                         "this session any more"
                                       : "the network relay could not be started; nothing can be "
                                         "reached from this session");
}

static void handle(struct monitor *monitor, struct link_message *message) {
  message->host[sizeof message->host - 1] = '\0';
  message->reason[sizeof message->reason - 1] = '\0';
  switch ((enum link_kind)message->kind) {
  case LINK_READY:
    monitor->network.ready = true;
    return;
  case LINK_RECORD:
    record(monitor, message);
    return;
  case LINK_DENIED:
    note_denied(monitor, message);
    return;
  case LINK_ASK:
    ask(monitor, message);
    return;
  case LINK_WITHDRAW:
    withdraw(monitor, message->id);
    return;
  case LINK_RENEW:
    send_name_files(&monitor->network);
    return;
  default:
    return;
  }
}

static void start_late(struct monitor *monitor) {
  if (start(monitor) < 0)
    monitor_warn(monitor, "the network relay could not be started; nothing can be reached from "
                          "this session");
  let_go(&monitor->network);
}

/* False: there is nothing more, or it has ended. */
static bool read_one(struct monitor *monitor) {
  struct link_message message;
  ssize_t got = recv(monitor->network.line, &message, sizeof message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  if (got == sizeof message)
    handle(monitor, &message);
  else
    on_end(monitor);
  return got == sizeof message;
}

static bool may_read(const struct network *network) {
  return network->line >= 0 && !network->unsent;
}

void network_read(struct monitor *monitor) {
  if (monitor->network.idle >= 0) {
    start_late(monitor);
    return;
  }
  send_answers(&monitor->network);
  for (struct turn turn = turn_new(); turn_goes_on(&turn);) {
    if (!may_read(&monitor->network) || !read_one(monitor))
      return;
  }
}

/* ---- the end ---- */

static bool was_used(const struct network *network) {
  const struct ledger *ledger = network->ledger;
  return ledger->connections || ledger->denied || ledger->failed || ledger->questions ||
         strays_count(&network->strays) > 0;
}

static void note_figures(struct monitor *monitor) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *figures = figures_to_json(&monitor->network);
  monitor->result->network = json_incref(figures);
  if (was_used(&monitor->network))
    (void)events_write(monitor, "net.summary", figures, &error);
  else
    json_decref(figures);
}

void network_stop(struct monitor *monitor) {
  driven_end(monitor);
  let_go(&monitor->network);
  if (monitor->network.relay > 0)
    kill(monitor->network.relay, SIGKILL);
}

void network_finish(struct monitor *monitor) {
  struct network *network = &monitor->network;
  network_stop(monitor);
  if (network->relay > 0) {
    (void)child_wait(network->relay);
    network->relay = 0;
  }
  while (network->line >= 0 && read_one(monitor)) /* what it said last */
    ;
  while (network->questions)
    withdraw(monitor, network->questions->id);
  while (network->unsent)
    drop_first_answer(network);
  if (network->line >= 0)
    close(network->line);
  if (network->ledger && !monitor->request->plan->network.driver)
    note_figures(monitor); /* a driver's are written down with its own */
  ledger_free(network->ledger);
  strays_close(&network->strays);
  name_files_clear(&network->name_files);
  free(network->driven.answers);
  network->driven.answers = NULL;
  bool failed = network->failed;
  struct driven driven = network->driven; /* for the explanation */
  *network = NETWORK_NONE_YET;
  network->failed = failed;
  network->driven = driven;
}
