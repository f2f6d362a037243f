/* The monitor's side of a network driver; see drivers.h. */
#include "session/drivers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "session/drivers-ask.h"
#include "session/events.h"
#include "session/monitor.h"

static const struct net_driver *driver_of(const struct monitor *monitor) {
  return monitor->request->plan->network.driver;
}

static void note(struct monitor *monitor, const char *state, const char *problem) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *fields = json_pack("{s:s, s:s}", "driver", driver_of(monitor)->name, "state", state);
  if (*problem)
    json_set_string(fields, "problem", problem);
  log_write(monitor->request->log, *problem ? LOG_WARNING : LOG_INFO, "network driver", -1,
            json_incref(fields));
  if (monitor->audit)
    (void)audit_write(monitor->audit, "net.driver", fields, &error);
  else
    json_decref(fields);
}

/* ---- the start ---- */

static void fail(struct monitor *monitor, const char *problem) {
  struct driven *driven = &monitor->network.driven;
  driven->failed = true;
  snprintf(driven->problem, sizeof driven->problem, "%s", problem);
  monitor->over = true;
}

void driven_start(struct monitor *monitor, int fds[FD_PASS_LIMIT]) {
  _cleanup_error_ struct sb_error error = {0};
  const struct network_settings *network = &monitor->request->plan->network;
  int ends[2] = {-1, -1};
  monitor->network.driven.answers = xcalloc(1, sizeof *monitor->network.driven.answers);
  if (network->resolves && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
    fail(monitor, strerror(errno));
    return;
  }
  struct minder_request request = {
      .driver = network->driver,
      .session_id = monitor->request->session_id,
      .egress = {.rules = network->rules,
                 .resolves = network->resolves,
                 .asks = network->may_ask,
                 .name_servers = network->name_servers,
                 .name_server_count = network->name_server_count},
      .user_ns = fds[0],
      .net_ns = fds[1],
      .openings = ends[1],
  };
  monitor->network.driven.recording = bucket_new(RECORD_BURST, RECORD_PER_SECOND);
  monitor->network.driven.openings = ends[0];
  monitor->network.driven.counters = fds[2];
  monitor->network.driven.rules = fds[3];
  fds[2] = fds[3] = -1;
  if (minder_start(&monitor->network.driven.minder, &request, &error) < 0)
    fail(monitor, error.message);
  if (ends[1] >= 0)
    close(ends[1]);
}

int driven_explain(const struct monitor *monitor, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(monitor->network.driven.problem);
  sb_fail(error, SB_CODE_SYSTEM, 0, "starting network.driver %s: %s", driver_of(monitor)->name,
          shown);
  return sb_hint(error, "run 'sandbox doctor', or use network.driver: auto");
}

/* ---- while it runs ---- */

/* The workload goes on without a network: what it could reach is less, never more. */
static void on_gone(struct monitor *monitor, const char *problem) {
  struct driven *driven = &monitor->network.driven;
  if (driven->gone)
    return;
  driven->gone = true;
  driven_forget_questions(monitor);
  if (!driven->ready) {
    fail(monitor, *problem ? problem : "it ended at once");
    return;
  }
  const struct net_driver *driver = driver_of(monitor);
  if (driver->cut)
    driver->cut(monitor->request->session_id);
  note(monitor, "ended", *problem ? problem : "its process is gone");
  _cleanup_free_ char *text = xasprintf("the network driver %s has ended; nothing can be reached "
                                        "from this session any more",
                                        driver->name);
  monitor_warn(monitor, text);
  monitor_notify(monitor,
                 &(struct session_notice){.event = SESSION_DISCONNECTED, .text = driver->name});
}

/* After it was made: the packet filter waits for nobody. */
static void note_opened(struct monitor *monitor, const struct sighting *sighting) {
  _cleanup_error_ struct sb_error error = {0};
  if (bucket_take(&monitor->network.driven.recording, monotonic_ns()))
    (void)events_write(monitor, "net", driven_opened_to_json(monitor, sighting), &error);
}

static void handle(struct monitor *monitor, struct minder_message *message) {
  struct driven *driven = &monitor->network.driven;
  message->text[sizeof message->text - 1] = '\0';
  switch ((enum minder_kind)message->kind) {
  case MINDER_STARTED:
    driven->minder.pid = message->pid;
    return;
  case MINDER_READY:
    driven->ready = true;
    note(monitor, "started", "");
    network_note_supervisors(monitor); /* before the command's first packet */
    engine_send(&monitor->engine, MESSAGE_CONNECTED, 0);
    return;
  case MINDER_FAILED:
  case MINDER_ENDED:
    on_gone(monitor, message->text);
    return;
  case MINDER_OPENED:
    note_opened(monitor, &message->sighting);
    return;
  case MINDER_KNOCK:
    driven_ask(monitor, &message->sighting);
    return;
  case MINDER_LEFT:
    driven_left(monitor, &message->sighting);
    return;
  }
}

struct pollfd driven_watch(const struct driven *driven) {
  return (struct pollfd){.fd = driven->minder.line, .events = POLLIN};
}

void driven_lost_resolver(struct monitor *monitor) {
  on_gone(monitor, "the resolver has ended");
  minder_end(&monitor->network.driven.minder);
}

/* False: there is nothing more, or it has ended. */
static bool read_one(struct monitor *monitor) {
  struct minder *minder = &monitor->network.driven.minder;
  struct minder_message message;
  ssize_t got = recv(minder->line, &message, sizeof message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  if (got == sizeof message) {
    handle(monitor, &message);
    return true;
  }
  on_gone(monitor, "");
  minder_end(minder);
  return false;
}

void driven_read(struct monitor *monitor) {
  for (struct turn turn = turn_new(); turn_goes_on(&turn);) {
    if (!read_one(monitor))
      return;
  }
}

/* ---- the end ---- */

static void note_figures(struct monitor *monitor) {
  _cleanup_error_ struct sb_error error = {0};
  json_t *figures = driven_to_json(monitor);
  monitor->result->network = json_incref(figures);
  if (monitor->audit)
    (void)audit_write(monitor->audit, "net.summary", figures, &error);
  else
    json_decref(figures);
}

/* What it has seen and we have not read yet. */
static void read_last(struct monitor *monitor) {
  struct minder_message message;
  while (recv(monitor->network.driven.minder.line, &message, sizeof message, MSG_DONTWAIT) ==
         sizeof message) {
    if (message.kind == MINDER_OPENED)
      note_opened(monitor, &message.sighting);
  }
}

void driven_end(struct monitor *monitor) {
  struct driven *driven = &monitor->network.driven;
  if (driven->counters < 0)
    return;
  driven_forget_questions(monitor);
  read_last(monitor);
  if (driven->ready)
    note_figures(monitor); /* while its interface is there */
  minder_end(&driven->minder);
  close(driven->counters);
  if (driven->rules >= 0)
    close(driven->rules);
  if (driven->openings >= 0)
    close(driven->openings);
  driven->counters = driven->rules = driven->openings = -1;
  /* The kernel takes its time with what a namespace leaves; nobody should find it afterwards. */
  const struct net_driver *driver = driver_of(monitor);
  if (driver->cut && !driven->gone)
    driver->cut(monitor->request->session_id);
}
