/* Runs what a back end wrapped: terminal or pipes, signals, wall time, limits by cgroup, captured
 * output. The process tree itself belongs to the guard; see guard.h. Never prints. */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "backend/runner-private.h"
#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/exit-code.h"
#include "session/events.h"

/* What ends sooner need not be listed, and entering the registry would be a tenth of its time. */
#define REGISTER_NS (50ull * 1000 * 1000)

/* ---- to the guard, to whoever listens ---- */

void runner_ask(struct runner *runner, enum guard_request request, int signal) {
  struct guard_message message = {request, signal};
  (void)send(runner->channel, &message, sizeof message, MSG_NOSIGNAL);
}

static void notify(struct runner *runner, const struct session_notice *notice) {
  if (runner->request->listener)
    runner->request->listener(runner->request->listener_context, notice);
}

void runner_name_limit(struct runner *runner, enum limit_kind kind) {
  if (runner->result->limit_hit)
    return;
  runner->result->limit_hit = true;
  runner->result->limit = kind;
  _cleanup_free_ char *described = limit_describe(runner->request->limits, kind);
  notify(runner, &(struct session_notice){
                     .event = SESSION_LIMIT, .text = described, .result = runner->result});
}

/* ---- what the guard and the tool say ---- */

static void read_report(struct runner *runner) {
  ssize_t got = recv(runner->channel, &runner->report, sizeof runner->report, 0);
  runner->reported = got == sizeof runner->report;
  runner->over = true;
}

void runner_read_status(struct runner *runner) {
  char buffer[4096];
  ssize_t got = read(runner->status, buffer, sizeof buffer);
  if (got > 0 && runner->status_text.length < 1 << 16)
    text_append_bytes(&runner->status_text, buffer, (size_t)got);
  if (got == 0) {
    close(runner->status);
    runner->status = -1;
  }
}

/* ---- time ---- */

static void check_time(struct runner *runner) {
  enum deadline_action action = deadline_step(&runner->deadline, monotonic_ns());
  if (action == DEADLINE_NOTHING)
    return;
  runner->timed_out = !runner->killed;
  if (runner->timed_out)
    runner_name_limit(runner, LIMIT_TIME);
  runner_ask(runner, action == DEADLINE_TERM ? GUARD_SIGNAL_ALL : GUARD_END, SIGTERM);
}

/* ---- in the registry ---- */

static void end_by_client(void *context, bool now) {
  struct runner *runner = context;
  runner->killed = true;
  runner->deadline = deadline_new(monotonic_ns(), 1, now ? 0 : TIME_GRACE_NS);
}

static void signal_by_client(void *context, int signal) {
  runner_ask(context, GUARD_SIGNAL, signal);
}

static void enter_registry(struct runner *runner) {
  _cleanup_error_ struct sb_error error = {0};
  const struct runner_subject subject = {
      .backend = runner->backend,
      .request = runner->request,
      .wrapped = &runner->wrapped,
      .limits = &runner->limits,
      .guard = runner->guard,
      .started_ns = runner->started_ns,
      .end = end_by_client,
      .signal = signal_by_client,
      .context = runner,
  };
  if (runner->register_ns == 0 || monotonic_ns() < runner->register_ns)
    return;
  runner->register_ns = 0;
  if (runner_control_open(&runner->control, &subject, &error) == 0)
    return;
  runner_control_leave(&runner->control);
  _cleanup_free_ char *text = xasprintf("this session is not in 'sandbox ps': %s", error.message);
  notify(runner, &(struct session_notice){.event = SESSION_WARNING, .text = text});
}

/* ---- one look ---- */

enum {
  WATCH_CHANNEL,
  WATCH_SIGNALS,
  WATCH_STATUS,
  WATCH_LIFELINE,
  WATCH_TERMINAL,
  WATCH_CAPTURE = WATCH_TERMINAL + TERMINAL_WATCH_COUNT,
  WATCH_COUNT = WATCH_CAPTURE + 2
};

static int earlier(int timeout, int other) {
  return timeout < 0 || other < timeout ? other : timeout;
}

static int next_timeout(const struct runner *runner) {
  uint64_t now = monotonic_ns();
  int timeout = deadline_timeout_ms(&runner->deadline, now);
  if (terminal_is_lent(&runner->terminal) || runner->early)
    timeout = earlier(timeout, 200);
  if (runner->register_ns)
    timeout = earlier(
        timeout, runner->register_ns > now ? (int)((runner->register_ns - now) / 1000000) + 1 : 0);
  return timeout;
}

static void look_once(struct runner *runner) {
  struct pollfd watched[WATCH_COUNT + CONTROL_WATCH_LIMIT] = {
      [WATCH_CHANNEL] = {.fd = runner->channel, .events = POLLIN},
      [WATCH_SIGNALS] = {.fd = runner->signals, .events = POLLIN},
      [WATCH_LIFELINE] = {.fd = runner->request->lifeline > 0 ? runner->request->lifeline : -1},
      [WATCH_STATUS] = {.fd = runner->status, .events = POLLIN},
  };
  terminal_watch(&runner->terminal, watched + WATCH_TERMINAL);
  capture_watch(&runner->capture, watched + WATCH_CAPTURE);
  size_t clients = runner_control_watch(&runner->control, watched + WATCH_COUNT);
  int ready = poll(watched, WATCH_COUNT + clients, next_timeout(runner));
  if (runner->terminal.master >= 0)
    terminal_set_raw(&runner->terminal);
  check_time(runner);
  enter_registry(runner);
  if (ready <= 0) {
    runner_check_early_signal(runner);
    return;
  }
  terminal_relay(&runner->terminal, watched + WATCH_TERMINAL);
  capture_read(&runner->capture, watched + WATCH_CAPTURE);
  if (watched[WATCH_STATUS].revents)
    runner_read_status(runner);
  if (watched[WATCH_SIGNALS].revents)
    runner_read_signals(runner);
  runner_check_early_signal(runner);
  if (watched[WATCH_CHANNEL].revents)
    read_report(runner);
  if (watched[WATCH_LIFELINE].revents)
    runner->over = true; /* nobody is left who wants to know how it ends */
  runner_control_dispatch(&runner->control, watched + WATCH_COUNT, clients);
}

/* ---- one run ---- */

static struct runner new_runner(const struct backend *backend,
                                const struct backend_request *request,
                                struct session_result *result) {
  uint64_t now = monotonic_ns();
  return (struct runner){
      .backend = backend,
      .request = request,
      .result = result,
      .wrapped = WRAPPED_NONE,
      .terminal = terminal_new(request->capture ? TERMINAL_NEVER : request->terminal),
      .capture = CAPTURE_NONE,
      .placeholders = PLACEHOLDERS_NONE,
      .limits = LIMIT_GROUP_NONE,
      .channel = -1,
      .status = -1,
      .scratch_lock = -1,
      .was_subreaper = 1,
      .control = RUNNER_CONTROL_NONE,
      .started_ns = now,
      .register_ns = now + REGISTER_NS,
  };
}

/* The result is complete; whoever waits for it learns it before the last things are removed. */
static void tell_end(struct runner *runner) {
  struct session_result *result = runner->result;
  result->capture = runner->capture;
  result->wall_seconds = (double)(monotonic_ns() - runner->started_ns) / 1e9;
  log_write(runner->request->log, LOG_INFO, "exited", result->wall_seconds * 1e6,
            json_pack("{s:i, s:s}", "exit", result->exit_code, "backend", runner->backend->name));
  notify(runner, &(struct session_notice){.event = SESSION_EXITED, .result = result});
}

#define ATTEMPTS 3 /* to start a tool */

/* Nobody learns of a start that is tried again. */
static void forget_attempt(struct runner *runner, struct sb_error *error) {
  capture_clear(&runner->capture);
  sb_error_clear(error);
  if (runner->request->guard)
    (void)child_wait(*runner->request->guard);
}

/* Returns true if it is to be tried again. */
static bool run_once(struct runner *runner, int attempt, int *ret_result, struct sb_error *error) {
  *ret_result = runner_take_signals(runner, error);
  if (*ret_result < 0)
    return false;
  int result = runner_start(runner, error);
  if (result == 0 && attempt == 0)
    notify(runner, &(struct session_notice){.event = SESSION_STARTED, .init = runner->guard});
  while (result == 0 && !runner->over)
    look_once(runner);
  runner_finish(runner);
  bool vanished = result == 0 && runner_met_vanished(runner);
  if (result == 0)
    result = runner_conclude(runner, error);
  bool again = vanished && result < 0 && attempt + 1 < ATTEMPTS;
  if (again)
    forget_attempt(runner, error);
  else
    tell_end(runner);
  runner_clear(runner);
  runner_give_signals_back(runner);
  *ret_result = result;
  return again;
}

int backend_run_wrapped(const struct backend *backend, const struct backend_request *request,
                        struct session_result *ret_result, struct sb_error *error) {
  bool again = true;
  int result = -1;
  for (int attempt = 0; again; attempt++) {
    struct runner runner = new_runner(backend, request, ret_result);
    again = run_once(&runner, attempt, &result, error);
  }
  return result;
}

int backend_run(const struct backend *backend, const struct backend_request *request,
                struct session_result *ret_result, struct sb_error *error) {
  *ret_result = (struct session_result){.exit_code = EXIT_CODE_FAILURE, .capture = CAPTURE_NONE};
  const struct events_subject subject = {
      .host = request->host,
      .session_id = request->session_id,
      .mode = "static",
      .backend = backend->name,
      .command = &request->plan->arguments,
      .listener = request->listener,
      .listener_context = request->listener_context,
  };
  struct audit *audit = NULL;
  if (!backend->keeps_log && events_open(&subject, &audit, error) < 0)
    return -1;
  pid_t guard = 0;
  struct backend_request audited = *request;
  audited.audit = audit;
  audited.guard = &guard;
  int result = backend->run ? backend->run(&audited, ret_result, error)
                            : backend_run_wrapped(backend, &audited, ret_result, error);
  events_close(audit, ret_result);
  (void)child_wait(guard);
  return result;
}
