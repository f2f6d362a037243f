/* Starts and watches the connector, and puts its questions to who decides; see connects.h. */
#include "session/connects.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "gate/walk.h"
#include "plan/distant.h"
#include "session/monitor.h"
#include "session/upkeep.h"

/* Who asks that often should not have to wait for what else the monitor has to do. */
#define ANSWERED_LIMIT 16

/* ---- the process ---- */

struct pollfd connects_watch(const struct connects *connects) {
  int fd = connects->listener >= 0 ? connects->listener : connects->connector.channel;
  bool unsaid = connector_has_unsaid(&connects->connector);
  return (struct pollfd){.fd = fd, .events = (short)(POLLIN | (unsaid ? POLLOUT : 0))};
}

/* A copy of the listener would let calls wait for ever when the connector is gone. */
static void let_go_of_listener(struct connects *connects) {
  close(connects->listener);
  connects->listener = -1;
}

/* The memory of who calls may be a file that only we can serve, and his root as well; or one of a
 * server that does not answer. */
static bool may_look_at_caller(const struct monitor *monitor) {
  const struct plan *plan = monitor->request->plan;
  bool serves =
      plan->gate == GATE_FUSE && (plan->seccomp.containers || gate_has_opened(monitor->gate));
  return !serves && !distant_exists();
}

static bool can_spare(struct monitor *monitor, int listener, const struct connect_call *call) {
  struct connects *connects = &monitor->connects;
  return connects->answered < ANSWERED_LIMIT && may_look_at_caller(monitor) &&
         connector_can_spare(listener, call) && ++connects->answered;
}

static void start(struct monitor *monitor, int listener, const struct connect_call *first) {
  _cleanup_error_ struct sb_error error = {0};
  const struct connector_input input = {.listener = listener,
                                        .user_ns = monitor->engine.user_ns,
                                        .mount_ns = monitor->engine.mount_ns,
                                        .is_told = monitor->request->plan->gate == GATE_NOTIFY,
                                        .gate_device = gate_device(monitor->gate),
                                        .plan = monitor->request->plan,
                                        .connecting = &monitor->request->report->connecting,
                                        .first = first};
  if (connector_start(&monitor->connects.connector, &input, &error) < 0)
    upkeep_give_up(monitor, NULL, error.message);
}

static void receive(struct monitor *monitor) {
  struct connects *connects = &monitor->connects;
  struct connect_call call;
  if (!connector_receive(connects->listener, &call) ||
      can_spare(monitor, connects->listener, &call))
    return;
  start(monitor, connects->listener, &call);
  let_go_of_listener(connects);
}

static void give_up(struct monitor *monitor) {
  connector_end(&monitor->connects.connector);
  upkeep_give_up(monitor, NULL,
                 "the process that connects the command's sockets is gone: the session was "
                 "ended");
}

bool connects_take(void *context, int listener, const struct connect_call *call) {
  struct monitor *monitor = context;
  struct connects *connects = &monitor->connects;
  if (!monitor->request->plan->guards_sockets || monitor->request->report->weaker_sockets)
    return false;
  if (monitor->over)
    return true; /* it is about to end */
  if (connects->connector.channel < 0) {
    if (!can_spare(monitor, listener, call))
      start(monitor, listener, call);
  } else if (connector_tell(&connects->connector, call) < 0) {
    give_up(monitor);
  }
  return true;
}

/* ---- its questions ---- */

/* A call that waits for a decision. */
struct connect_asked {
  struct connect_asked *next;
  struct monitor *monitor;
  uint64_t id, ticket;
  int object; /* the host's own, if something else is in its place inside, or the one that is seen
                 inside */
  bool hidden, movable;
};

static void asked_free(struct connect_asked *asked) {
  struct connect_asked **place = &asked->monitor->connects.asked;
  while (*place != asked)
    place = &(*place)->next;
  *place = asked->next;
  close(asked->object);
  free(asked);
}

/* While it is held, no other object gets its number, by which it was allowed. The connector, which
 * begins later, goes by that as well. */
struct held_socket {
  int fd;
  dev_t device;
  ino_t inode;
};

static bool is_held(const struct connects *connects, const struct stat *status) {
  for (size_t i = 0; i < connects->held_count; i++) {
    const struct held_socket *held = &connects->held[i];
    if (held->device == status->st_dev && held->inode == status->st_ino)
      return true;
  }
  return false;
}

static bool hold(struct connects *connects, int object) {
  struct stat status;
  if (object < 0 || fstat(object, &status) < 0)
    return false;
  if (is_held(connects, &status))
    return true;
  int copy = fcntl(object, F_DUPFD_CLOEXEC, 0);
  if (copy < 0)
    return false;
  ARRAY_GROW(connects->held, connects->held_count);
  connects->held[connects->held_count++] =
      (struct held_socket){.fd = copy, .device = status.st_dev, .inode = status.st_ino};
  return true;
}

/* Policy names them by what they were at the start. */
void connects_begin(struct monitor *monitor) {
  const struct plan *plan = monitor->request->plan;
  for (size_t i = 0; i < plan->socket_count; i++) {
    _cleanup_close_ int object = open(plan->sockets[i].path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    (void)hold(&monitor->connects, object);
  }
}

static void settle(struct connect_asked *asked, const struct answered *answer) {
  struct monitor *monitor = asked->monitor;
  bool lasts = asked->movable && answer->scope != SCOPE_ONCE;
  bool allowed =
      answer->answer == ANSWER_ALLOW && (!lasts || hold(&monitor->connects, asked->object));
  int result = connector_answer(&monitor->connects.connector, asked->id, allowed ? 0 : -EACCES,
                                allowed && asked->hidden ? asked->object : -1);
  asked_free(asked);
  if (result < 0 && monitor->connects.connector.channel >= 0)
    give_up(monitor);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answer) {
  (void)ticket;
  settle(context, answer);
}

/* What FUSE serves by this name. */
static int open_host(const char *path) {
  if (distant_answers(path) < 0)
    return -ETIMEDOUT;
  return walk_open_with(AT_FDCWD, path, O_NOFOLLOW, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* Policy has decided about these, whoever listens there by now: unless the command has put him
 * there. */
static bool is_named(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->socket_count; i++) {
    if (!plan->sockets[i].movable && strcmp(plan->sockets[i].path, path) == 0)
      return true;
  }
  return false;
}

static void ask(struct monitor *monitor, const struct connect_question *question, int object,
                const struct stat *status) {
  /* Who has held a folder since before it could be written to finds FUSE there, if he takes the
   * name away for an instant. */
  bool movable = question->movable || gate_writable_mount(monitor->gate, question->path);
  const struct access_request request = {
      .subject = SUBJECT_FILE,
      .want = WANT_CONNECT,
      .path = question->path,
      .device = status->st_dev,
      .inode = status->st_ino,
      .socket = true,
      .movable = movable,
      .pid = question->process,
  };
  struct answered answer = {0};
  struct connect_asked *asked = xcalloc(1, sizeof *asked);
  *asked = (struct connect_asked){.next = monitor->connects.asked,
                                  .monitor = monitor,
                                  .id = question->id,
                                  .object = object,
                                  .hidden = question->about == CONNECT_TO_HIDDEN,
                                  .movable = movable};
  monitor->connects.asked = asked;
  if (asked->hidden && is_named(monitor->request->plan, question->path))
    answer.answer = ANSWER_ALLOW;
  else
    asked->ticket =
        decisions_ask(monitor->supervision.decisions, &request, on_answer, asked, &answer);
  if (answer.answer != ANSWER_PENDING)
    settle(asked, &answer);
}

static void hear_question(struct monitor *monitor, const struct connect_question *question) {
  struct stat status;
  bool hidden = question->about == CONNECT_TO_HIDDEN;
  _cleanup_close_ int object = hidden ? open_host(question->path) : question->object;
  int result = object < 0 ? (hidden ? object : -EACCES) : fstat(object, &status) < 0 ? -errno : 0;
  if (result == 0 && !S_ISSOCK(status.st_mode))
    result = -ECONNREFUSED;
  if (result == 0)
    ask(monitor, question, steal_fd(&object), &status);
  else if (connector_answer(&monitor->connects.connector, question->id, result, -1) < 0)
    give_up(monitor);
}

static void withdraw(struct monitor *monitor, uint64_t id) {
  struct connect_asked *asked = monitor->connects.asked;
  while (asked && asked->id != id)
    asked = asked->next;
  if (!asked)
    return;
  decisions_withdraw(monitor->supervision.decisions, asked->ticket);
  asked_free(asked);
}

/* Where nothing is decided, nobody asks why, either. */
static void note_unreadable(struct monitor *monitor, const char *name) {
  struct decisions *decisions = monitor->supervision.decisions;
  if (decisions)
    decisions_note_unreadable(decisions, name, UNREAD_SOCKETS);
}

static void hear(struct monitor *monitor, const struct connect_question *question) {
  switch (question->about) {
  case CONNECT_TO_VISIBLE:
  case CONNECT_TO_HIDDEN:
    hear_question(monitor, question);
    return;
  case CONNECT_WITHDRAWN:
    withdraw(monitor, question->id);
    return;
  case CONNECT_UNREADABLE:
    note_unreadable(monitor, question->path);
    return;
  }
}

static void listen_to_it(struct monitor *monitor) {
  static struct connect_question question;
  const struct connector *connector = &monitor->connects.connector;
  for (struct turn turn = turn_new(); turn_goes_on(&turn) && connector->channel >= 0;) {
    int got = connector_listen(connector, &question);
    if (got < 0)
      give_up(monitor);
    if (got <= 0)
      return;
    hear(monitor, &question);
  }
}

/* ---- in the loop ---- */

static void talk_to_it(struct monitor *monitor, short events) {
  if (events & POLLOUT && connector_say_more(&monitor->connects.connector) < 0)
    give_up(monitor);
  else if (events & ~POLLOUT)
    listen_to_it(monitor);
}

void connects_step(struct monitor *monitor, const struct pollfd *watched) {
  struct connects *connects = &monitor->connects;
  if (!watched->revents || monitor->over)
    return;
  if (watched->fd == connects->listener) {
    if (watched->revents & POLLIN)
      receive(monitor);
    else
      let_go_of_listener(connects); /* nobody is left who could call */
  } else if (watched->fd == connects->connector.channel) {
    talk_to_it(monitor, watched->revents);
  }
}

/* The command may have ended before its refusal was heard of. */
static void hear_last_words(struct monitor *monitor) {
  struct connect_question question;
  while (monitor->connects.connector.channel >= 0 &&
         connector_listen(&monitor->connects.connector, &question) > 0) {
    if (question.about == CONNECT_UNREADABLE)
      note_unreadable(monitor, question.path);
    else if (question.object >= 0)
      close(question.object);
  }
}

void connects_end(struct monitor *monitor) {
  struct connects *connects = &monitor->connects;
  if (connects->listener >= 0)
    let_go_of_listener(connects);
  hear_last_words(monitor);
  connector_end(&connects->connector);
  while (connects->asked)
    withdraw(monitor, connects->asked->id);
  for (size_t i = 0; i < connects->held_count; i++)
    close(connects->held[i].fd);
  free(connects->held);
  connects->held_count = 0;
}
