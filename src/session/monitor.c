/* The monitor: owns a session from outside. It relays the terminal and signals, holds the limits,
 * answers the control socket, and when it ends, however it ends, the session is over. Must never
 * give the workload anything it does not have. */
#include "session/monitor.h"
#include "core/exit-code.h"

#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/id.h"
#include "plan/distant.h"
#include "session/events.h"
#include "session/limiting.h"
#include "session/messages.h"
#include "session/publishing.h"
#include "session/signals.h"

#define LAST_DISK_BUDGET_NS (100ull * 1000 * 1000)
#define LIFELINE_GRACE_NS   (2ull * 1000 * 1000 * 1000)
#define LENT_TERMINAL_NS    (200ull * 1000 * 1000)
#define GATE_LOOK_NS        (100ull * 1000 * 1000)
#define TURN_NS             (5ull * 1000 * 1000)
#define TURN_MESSAGES       32

struct turn turn_new(void) {
  return (struct turn){.until_ns = monotonic_ns() + TURN_NS};
}

bool turn_goes_on(struct turn *turn) {
  return turn->messages++ < TURN_MESSAGES && monotonic_ns() < turn->until_ns;
}

void session_new_id(char ret_id[SESSION_ID_LENGTH + 1]) {
  id_draw(ret_id, SESSION_ID_LENGTH);
}

void session_result_clear(struct session_result *result) {
  capture_clear(&result->capture);
  changes_free(result->changes);
  result->changes = NULL;
  json_decref(result->denials);
  result->denials = NULL;
  json_decref(result->network);
  result->network = NULL;
}

void monitor_notify(struct monitor *monitor, const struct session_notice *notice) {
  if (monitor->request->listener)
    monitor->request->listener(monitor->request->listener_context, notice);
}

/* ---- time ---- */

/* An idle session has no command of its own whose end would be the session's. */
static void end_if_deserted(struct monitor *monitor) {
  if (monitor->request->idle && monitor->deadline.state == DEADLINE_TERMINATING &&
      monitor->execs.count == 0)
    monitor->over = true;
}

static void ask_to_end(struct monitor *monitor) {
  engine_send(&monitor->engine, MESSAGE_SIGNAL_ALL, SIGTERM);
  engine_send(&monitor->engine, MESSAGE_SIGNAL_ALL, SIGCONT);
  end_if_deserted(monitor);
}

void monitor_terminate(struct monitor *monitor, uint64_t grace_ns) {
  if (grace_ns == 0) {
    monitor->over = true;
    return;
  }
  monitor->deadline = (struct deadline){
      .state = DEADLINE_TERMINATING, .at_ns = monotonic_ns() + grace_ns, .grace_ns = grace_ns};
  ask_to_end(monitor);
}

static void check_time(struct monitor *monitor, uint64_t now) {
  if (monitor->early && !monitor->result->started && now >= monitor->early_until_ns)
    signals_abandon(monitor, monitor->early);
  enum deadline_action action = deadline_step(&monitor->deadline, now);
  if (action == DEADLINE_TERM) {
    monitor->timed_out = true;
    limiting_name(monitor, LIMIT_TIME);
    ask_to_end(monitor);
  } else if (action == DEADLINE_KILL) {
    monitor->over = true;
  }
}

/* The earlier of a timeout in milliseconds (-1: none) and a point in time (0: none). */
static int earlier(int timeout, uint64_t at_ns, uint64_t now) {
  if (at_ns == 0)
    return timeout;
  uint64_t wait = at_ns > now ? (at_ns - now) / 1000000 + 1 : 0;
  return timeout < 0 || (uint64_t)timeout > wait ? (int)wait : timeout;
}

static int next_timeout(const struct monitor *monitor) {
  uint64_t now = monotonic_ns();
  int timeout = deadline_timeout_ms(&monitor->deadline, now);
  timeout = earlier(timeout, monitor->next_look_ns, now);
  timeout = earlier(timeout, supervision_next_step(monitor), now);
  timeout = earlier(timeout, monitor->upkeep.start_at_ns, now);
  timeout = earlier(timeout, gate_wants_look(monitor->gate) ? now + GATE_LOOK_NS : 0, now);
  timeout = earlier(timeout, control_is_behind(monitor->control) ? now : 0, now);
  bool unsaid = monitor->unsaid.count > 0 && !monitor->terminal.modes.raw;
  if (terminal_is_lent(&monitor->terminal) || unsaid)
    timeout = earlier(timeout, now + LENT_TERMINAL_NS, now);
  bool waiting = monitor->early && !monitor->result->started;
  return earlier(timeout, waiting ? monitor->early_until_ns : 0, now);
}

/* ---- the session ---- */

enum {
  WATCH_CHANNEL,
  WATCH_SIGNALS,
  WATCH_NETWORK,
  WATCH_DRIVER,
  WATCH_PUBLISHER,
  WATCH_LIFELINE,
  WATCH_UPKEEP,
  WATCH_CONNECTS,
  WATCH_TERMINAL,
  WATCH_CAPTURE = WATCH_TERMINAL + TERMINAL_WATCH_COUNT,
  WATCH_PROMPT = WATCH_CAPTURE + 2,
  WATCH_GATE,
  WATCH_CONTROL = WATCH_GATE + GATE_WATCH_COUNT,
};

/* Watched from the command's start, which sets the clocks, until it is cut. */
static int lifeline_of(const struct monitor *monitor) {
  bool watched = monitor->request->lifeline > 0 && monitor->result->started && !monitor->cut;
  return watched ? monitor->request->lifeline : -1;
}

/* Whoever wanted the result is gone, and nobody is left to end it. */
static void lifeline_is_cut(struct monitor *monitor) {
  monitor->cut = monitor->killed = true;
  monitor_terminate(monitor, LIFELINE_GRACE_NS);
}

static void say_silence(struct monitor *monitor) {
  _cleanup_free_ char *point = distant_take_news(), *shown = point ? escape_string(point) : NULL;
  if (!point)
    return;
  _cleanup_free_ char *sentence =
      xasprintf("the file system at '%s' does not answer: what is in it gives 'Connection timed "
                "out' until it does",
                shown);
  monitor_warn(monitor, sentence);
}

static void look_once(struct monitor *monitor) {
  network_note_supervisors(monitor);
  struct pollfd watched[WATCH_CONTROL + CONTROL_WATCH_LIMIT] = {
      [WATCH_CHANNEL] = {.fd = monitor->engine.channel, .events = POLLIN},
      [WATCH_SIGNALS] = {.fd = monitor->signals, .events = POLLIN},
      [WATCH_NETWORK] = network_watch(&monitor->network),
      [WATCH_DRIVER] = driven_watch(&monitor->network.driven),
      [WATCH_PUBLISHER] = publishing_watch(monitor),
      [WATCH_LIFELINE] = {.fd = lifeline_of(monitor)},
      [WATCH_UPKEEP] = upkeep_watch(&monitor->upkeep),
      [WATCH_CONNECTS] = connects_watch(&monitor->connects),
  };
  terminal_watch(&monitor->terminal, watched + WATCH_TERMINAL);
  capture_watch(&monitor->capture, watched + WATCH_CAPTURE);
  supervision_watch(monitor, watched + WATCH_PROMPT);
  gate_watch(monitor->gate, watched + WATCH_GATE);
  size_t clients = control_watch(monitor->control, watched + WATCH_CONTROL);
  int ready = poll(watched, WATCH_CONTROL + clients, next_timeout(monitor));
  if (monitor->terminal.master >= 0)
    terminal_set_raw(&monitor->terminal); /* if it has come back meanwhile */
  if (ready < 0)
    return;
  terminal_relay(&monitor->terminal, watched + WATCH_TERMINAL);
  capture_read(&monitor->capture, watched + WATCH_CAPTURE);
  gate_serve(monitor->gate, watched + WATCH_GATE);
  if (watched[WATCH_SIGNALS].revents)
    signals_read(monitor);
  if (watched[WATCH_CHANNEL].revents)
    messages_read(monitor);
  if (watched[WATCH_NETWORK].revents)
    network_read(monitor);
  if (watched[WATCH_DRIVER].revents)
    driven_read(monitor);
  publishing_step(monitor, watched + WATCH_PUBLISHER);
  if (watched[WATCH_LIFELINE].revents)
    lifeline_is_cut(monitor);
  control_dispatch(monitor->control, watched + WATCH_CONTROL, clients);
  supervision_step(monitor, watched + WATCH_PROMPT);
  say_silence(monitor);
  monitor_speak(monitor);
  uint64_t now = monotonic_ns();
  upkeep_step(monitor, now, watched + WATCH_UPKEEP);
  connects_step(monitor, watched + WATCH_CONNECTS);
  offline_step(monitor, now);
  check_time(monitor, now);
  limiting_look(monitor, now);
  end_if_deserted(monitor);
}

static int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Called when init is gone: what became of the workload? */
static int conclude(struct monitor *monitor, struct sb_error *error) {
  struct session_result *result = monitor->result;
  const struct start_report *report = monitor->request->report;
  result->weaker_proc = report->weaker_proc;
  result->weaker_sysfs = report->weaker_sysfs;
  if (monitor->abandoned && !monitor->request->idle) {
    result->exit_code = 128 + monitor->abandoned;
    return 0;
  }
  if (monitor->gate_failure.message) { /* whatever init failed at, this is why */
    *error = monitor->gate_failure;
    monitor->gate_failure = (struct sb_error){0};
    return -1;
  }
  if (report->failed != STEP_NONE) {
    engine_explain(&monitor->engine, &result->exit_code, error);
    /* AppArmor lets a user namespace be made, but not used. */
    return report->failed == STEP_NAMESPACES ? monitor_explain_refusal(error) : -1;
  }
  if (monitor->network.driven.failed)
    return driven_explain(monitor, error);
  if (monitor->network.failed)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "starting the network relay");
  limiting_conclude(monitor);
  if (monitor->timed_out)
    result->exit_code = EXIT_CODE_TIMEOUT;
  else if (monitor->request->idle)
    result->exit_code = 0;
  else if (monitor->killed || !report->workload_done)
    result->exit_code = 128 + SIGKILL; /* by a limit, by `kill`, or init itself was killed */
  else
    result->exit_code = exit_code_of(report->wait_status);
  if (report->workload_done)
    result->wait_status = report->wait_status;
  return 0;
}

static void finish(struct monitor *monitor, struct terminal_patience *patience) {
  struct rusage used = {0};
  supervision_hide(monitor);
  monitor->result->tried_network = offline_end(monitor);
  if (monitor->limits.set.value[LIMIT_DISK])
    limit_group_watch_disk(&monitor->limits, LAST_DISK_BUDGET_NS);
  limit_group_sample(&monitor->limits, &monitor->result->usage);
  gate_free(monitor->gate); /* first: who waits for it cannot even be killed */
  monitor->gate = NULL;     /* the keeper's last words may be for it */
  engine_kill(&monitor->engine);
  upkeep_end(monitor);
  connects_end(monitor);
  network_stop(monitor);
  registry_remove(&monitor->registration); /* while the kernel takes it apart */
  publisher_end(&monitor->publisher);
  if (!engine_destroy(&monitor->engine, &used))
    monitor_warn(monitor, "a process of the session waits for a file system that does not answer, "
                          "and cannot be ended before that does");
  usage_add_rusage(&monitor->result->usage, &used);
  network_finish(monitor);                      /* after the last who could use it */
  terminal_drain(&monitor->terminal, patience); /* now that nobody is left to write more */
  capture_drain(&monitor->capture);
  terminal_restore(&monitor->terminal);
  supervision_end(monitor);
  execs_clear(&monitor->execs);
  placeholders_remove(&monitor->placeholders);
  if (monitor->snapshot)
    monitor->result->changes =
        changes_report(monitor->snapshot, monitor->request->host->home, &changes_default_limits);
  snapshot_free(monitor->snapshot);
  monitor->result->wall_seconds = (double)(monotonic_ns() - monitor->started_ns) / 1e9;
}

int session_run(const struct session_request *request, struct session_result *ret_result,
                struct sb_error *error) {
  *ret_result = (struct session_result){.exit_code = EXIT_CODE_FAILURE, .capture = CAPTURE_NONE};
  struct monitor monitor = {
      .request = request,
      .result = ret_result,
      .engine = ENGINE_NONE,
      .terminal =
          terminal_new(request->idle || request->capture ? TERMINAL_NEVER : request->terminal),
      .capture = CAPTURE_NONE,
      .placeholders = PLACEHOLDERS_NONE,
      .publisher = PUBLISHER_NONE,
      .upkeep = UPKEEP_NONE,
      .connects = CONNECTS_NONE,
      .offline = OFFLINE_NONE,
      .registration = REGISTRATION_NONE,
      .network = NETWORK_NONE_YET,
      .limits = LIMIT_GROUP_NONE,
      .execs = {.log = request->log},
      .started_ns = monotonic_ns(),
  };
  if (signals_take(&monitor, error) < 0)
    return -1;
  int result = monitor_start(&monitor, error);
  connects_begin(&monitor); /* the plan is complete now */
  while (result == 0 && !monitor.over)
    look_once(&monitor);
  struct engine engine = monitor.engine; /* engine_destroy forgets the plan and the report */
  bool ended = monitor.killed || monitor.timed_out || monitor.abandoned;
  struct terminal_patience patience = terminal_patience_new(monitor.signals, ended);
  finish(&monitor, &patience);
  if (result == 0) {
    monitor.engine = engine;
    result = conclude(&monitor, error);
  }
  sb_error_clear(&monitor.gate_failure);
  events_end(&monitor);
  limit_group_remove(&monitor.limits);
  keeper_reap(&monitor.upkeep.keeper);
  connector_reap(&monitor.connects.connector);
  control_close(monitor.control); /* `sandbox kill` waits for it: nothing is left now */
  monitor_speak_last(&monitor, &patience);
  terminal_leave(&monitor.terminal);
  ret_result->capture = monitor.capture;
  report_phase(request->report, PHASE_FINISHED);
  memcpy(ret_result->phases, request->report->phases, sizeof ret_result->phases);
  log_write(request->log, LOG_INFO, "exited", ret_result->wall_seconds * 1e6,
            json_pack("{s:i}", "exit", ret_result->exit_code));
  monitor_notify(&monitor, &(struct session_notice){.event = SESSION_EXITED, .result = ret_result});
  signals_give_back(&monitor);
  return result;
}
