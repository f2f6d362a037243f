/* The monitor: owns a session from outside. It relays the terminal and signals, holds the limits,
 * answers the control socket, and when it ends, however it ends, the session is over. Must never
 * give the workload anything it does not have. */
#include "session/monitor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "doctor/doctor.h"
#include "session/events.h"
#include "session/limiting.h"

#define LAST_DISK_BUDGET_NS (100ull * 1000 * 1000)
#define LIFELINE_GRACE_NS   (2ull * 1000 * 1000 * 1000)
#define LENT_TERMINAL_NS    (200ull * 1000 * 1000)
#define GATE_LOOK_NS        (100ull * 1000 * 1000)
#define EARLY_SIGNAL_NS     (1000ull * 1000 * 1000)

uint64_t monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000ull + (uint64_t)now.tv_nsec;
}

void session_new_id(char ret_id[SESSION_ID_LENGTH + 1]) {
  static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* 32: no l, o, 0, 1 */
  unsigned char random[SESSION_ID_LENGTH];
  while (getrandom(random, sizeof random, 0) != sizeof random)
    ;
  for (size_t i = 0; i < SESSION_ID_LENGTH; i++)
    ret_id[i] = letters[random[i] % 32];
  ret_id[SESSION_ID_LENGTH] = '\0';
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

/* ---- signals ---- */

/* What reaches us goes on to the workload: terminal signals to its whole group, as a terminal
 * would do it, the rest to its first process. */
static const struct {
  int signal;
  enum message_kind kind;
} forwarded[] = {
    {SIGINT, MESSAGE_SIGNAL_GROUP}, {SIGQUIT, MESSAGE_SIGNAL_GROUP}, {SIGTERM, MESSAGE_SIGNAL},
    {SIGHUP, MESSAGE_SIGNAL},       {SIGUSR1, MESSAGE_SIGNAL},       {SIGUSR2, MESSAGE_SIGNAL},
};

static int take_signals(struct monitor *monitor, struct sb_error *error) {
  sigset_t ours;
  sigemptyset(&ours);
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
    sigaddset(&ours, forwarded[i].signal);
  sigaddset(&ours, SIGWINCH);
  sigaddset(&ours, SIGTSTP);
  sigaddset(&ours, SIGCONT);
  monitor->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  if (monitor->signals < 0)
    return sb_fail_errno(error, "creating a signalfd");
  sigaddset(&ours, SIGPIPE); /* a closed stdout is an error code to us, not our end */
  sigaddset(&ours, SIGXFSZ); /* so is a file of ours that may not grow */
  sigaddset(&ours, SIGTTOU); /* restoring the terminal must not stop us */
  sigprocmask(SIG_BLOCK, &ours, &monitor->original_mask);
  return 0;
}

/* A reader that left, of the output or of the status lines, has raised SIGPIPE meanwhile. */
static void forget_failed_writes(void) {
  sigset_t pipes;
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  sigaddset(&pipes, SIGXFSZ);
  while (sigtimedwait(&pipes, NULL, &(struct timespec){0}) > 0)
    ;
}

static void give_signals_back(struct monitor *monitor) {
  close(monitor->signals);
  forget_failed_writes();
  sigprocmask(SIG_SETMASK, &monitor->original_mask, NULL);
}

/* Stops our own job as Ctrl-Z does, until the user brings it back with fg or bg. Without a terminal
 * nobody pressed it: a workload that stops itself must not stop its own time limit, nor the program
 * that started us and shares our process group. */
static void stop_with_workload(struct monitor *monitor) {
  if (!monitor->terminal.any && !monitor->stop_asked)
    return;
  monitor->stop_asked = false;
  terminal_restore(&monitor->terminal);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  kill(0, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, NULL); /* we stop here */
  sigprocmask(SIG_BLOCK, &stop, NULL);
  terminal_set_raw(&monitor->terminal);
  terminal_resize(&monitor->terminal);
  supervision_redraw(monitor);
  engine_send(&monitor->engine, MESSAGE_CONTINUE, 0);
}

static void abandon(struct monitor *monitor, int signal) {
  monitor->over = true;
  monitor->abandoned = signal;
}

/* The workload may run already and only the news of it be on its way, so the first signal waits for
 * it, for a while. A second one means it. */
static void keep_early_signal(struct monitor *monitor, int signal) {
  if (monitor->early)
    abandon(monitor, signal);
  monitor->early = signal;
  monitor->early_until_ns = monotonic_ns() + EARLY_SIGNAL_NS;
}

static void handle_signal(struct monitor *monitor, int signal) {
  bool ends = signal != SIGWINCH && signal != SIGCONT && signal != SIGTSTP;
  /* Also before the news of the start is here: nobody sends this one again. */
  if (signal == SIGWINCH) {
    terminal_resize(&monitor->terminal);
    supervision_redraw(monitor);
    return;
  }
  if (!monitor->result->started || monitor->request->idle) {
    if (ends && monitor->request->idle)
      abandon(monitor, signal);
    else if (ends)
      keep_early_signal(monitor, signal);
    return;
  }
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
    if (forwarded[i].signal == signal)
      engine_send(&monitor->engine, forwarded[i].kind, signal);
  }
  /* SIGSTOP, because the workload's group may be an orphan, which ignores SIGTSTP; init tells us
   * that it stopped, and then we stop, too. */
  if (signal == SIGTSTP) {
    monitor->stop_asked = true;
    engine_send(&monitor->engine, MESSAGE_SIGNAL_GROUP, SIGSTOP);
  }
}

static void read_signals(struct monitor *monitor) {
  struct signalfd_siginfo info;
  while (read(monitor->signals, &info, sizeof info) == sizeof info)
    handle_signal(monitor, (int)info.ssi_signo);
}

/* ---- messages of the session's init ---- */

static void warn(struct monitor *monitor, const char *text) {
  monitor_notify(monitor, &(struct session_notice){.event = SESSION_WARNING, .text = text});
}

void monitor_warn(struct monitor *monitor, const char *text) {
  if (monitor->terminal.raw)
    strv_add(&monitor->unsaid, text);
  else
    warn(monitor, text);
}

/* Says aloud what the kernel refused, before the workload can print anything. */
static void announce(struct monitor *monitor) {
  const struct start_report *report = monitor->request->report;
  if (monitor->announced)
    return;
  monitor->announced = true;
  if (report->weaker_proc)
    warn(monitor, "weaker nested mode: this container does not allow a /proc of our own; process "
                  "names outside are visible, Landlock keeps them closed");
  if (report->weaker_sysfs)
    warn(monitor, "weaker nested mode: /sys is the container's, read-only");
  if (report->weaker_sockets)
    warn(
        monitor,
        "weaker mode: connect(2) cannot be watched here (a sandbox around this one, ptrace "
        "forbidden, or Linux before 5.6); sockets of programs outside that start later can be reached");
}

static void on_terminal(struct monitor *monitor, int master) {
  announce(monitor);
  terminal_connect(&monitor->terminal, master);
  engine_send(&monitor->engine, MESSAGE_GO, 0);
}

static void on_started(struct monitor *monitor, pid_t command, int *folders_inside) {
  announce(monitor);
  monitor->result->started = true;
  limiting_start(monitor, folders_inside);
  if (monitor->request->ready_fd >= 0) {
    (void)file_write_all(monitor->request->ready_fd, "\n", 1);
    close(monitor->request->ready_fd);
  }
  log_write(monitor->request->log, LOG_INFO, "started",
            (double)(monotonic_ns() - monitor->started_ns) / 1e3,
            json_pack("{s:i, s:i}", "init", (int)monitor->engine.init, "command", (int)command));
  monitor_notify(monitor, &(struct session_notice){.event = SESSION_STARTED,
                                                   .init = monitor->engine.init,
                                                   .command = command});
  if (monitor->early)
    handle_signal(monitor, monitor->early);
}

static void on_publish(struct monitor *monitor, const int *fds) {
  _cleanup_error_ struct sb_error error = {0};
  if (publisher_start(&monitor->publisher, fds[0], fds[1], &error) < 0)
    monitor_warn(monitor, error.message); /* the ports stay closed */
}

static void on_gate(struct monitor *monitor, int *fds) {
  _cleanup_error_ struct sb_error error = {0};
  struct gate_config config = {
      .plan = monitor->request->plan,
      .policy = monitor->request->policy,
      .decisions = monitor->supervision.decisions,
      .trigger = fds[0],
      .mount_ns = fds[1],
      .user_ns = ioctl(fds[1], NS_GET_USERNS),
      .pid_ns = -1,
      .whole = fds[3],
      .root = -1,
      .announced = &monitor->request->report->announced,
      .services = {.prepare = upkeep_prepare,
                   .granted = upkeep_granted,
                   .taken = upkeep_taken,
                   .held = upkeep_held,
                   .context = monitor},
  };
  *(config.plan->gate == GATE_NOTIFY ? &config.root : &config.pid_ns) = fds[2];
  memset(fds, -1, FD_PASS_LIMIT * sizeof *fds);
  /* Without it nothing of the session could go on; without its namespaces nothing could be granted.
   */
  if (config.user_ns < 0 || gate_new(&config, &monitor->gate, &error) < 0)
    monitor->over = true;
}

static void handle_message(struct monitor *monitor, const struct message *message, int *fds) {
  switch ((enum message_kind)message->kind) {
  case MESSAGE_TERMINAL:
    on_terminal(monitor, fds[0]);
    fds[0] = -1;
    return;
  case MESSAGE_NETWORK:
    network_sockets(monitor, message, fds);
    return;
  case MESSAGE_DRIVER:
    driven_start(monitor, fds);
    return;
  case MESSAGE_PUBLISH:
    on_publish(monitor, fds);
    return;
  case MESSAGE_GATE:
    on_gate(monitor, fds);
    return;
  case MESSAGE_CONNECTS:
    monitor->connects.listener = fds[0];
    fds[0] = -1;
    return;
  case MESSAGE_STARTED:
    on_started(monitor, message->value, fds);
    upkeep_schedule(monitor);
    return;
  case MESSAGE_STOPPED:
    stop_with_workload(monitor);
    return;
  case MESSAGE_EXEC_TERMINAL:
  case MESSAGE_EXEC_STARTED:
  case MESSAGE_EXEC_EXITED:
    execs_message(&monitor->execs, &monitor->engine, message, fds);
    return;
  case MESSAGE_EXITED:
    if (!monitor->result->started)
      on_started(monitor, monitor->request->report->command, (int[]){-1, -1});
    monitor->over = true;
    return;
  default:
    monitor->over = true; /* not of this protocol: end rather than guess */
  }
}

static void read_message(struct monitor *monitor) {
  struct message message = {0};
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(monitor->engine.channel, fds, &message, sizeof message);
  if (got == -EAGAIN)
    return;
  if (got != sizeof message) {
    monitor->over = true;
    return;
  }
  handle_message(monitor, &message, fds);
  for (size_t i = 0; i < FD_PASS_LIMIT; i++) {
    if (fds[i] >= 0)
      close(fds[i]);
  }
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
    abandon(monitor, monitor->early);
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
  if (terminal_is_lent(&monitor->terminal))
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

static void look_once(struct monitor *monitor) {
  network_note_supervisors(monitor);
  struct pollfd watched[WATCH_CONTROL + CONTROL_WATCH_LIMIT] = {
      [WATCH_CHANNEL] = {.fd = monitor->engine.channel, .events = POLLIN},
      [WATCH_SIGNALS] = {.fd = monitor->signals, .events = POLLIN},
      [WATCH_NETWORK] = network_watch(&monitor->network),
      [WATCH_DRIVER] = driven_watch(&monitor->network.driven),
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
    read_signals(monitor);
  if (watched[WATCH_CHANNEL].revents)
    read_message(monitor);
  if (watched[WATCH_NETWORK].revents)
    network_read(monitor);
  if (watched[WATCH_DRIVER].revents)
    driven_read(monitor);
  if (watched[WATCH_LIFELINE].revents)
    lifeline_is_cut(monitor);
  control_dispatch(monitor->control, watched + WATCH_CONTROL, clients);
  supervision_step(monitor, watched + WATCH_PROMPT);
  uint64_t now = monotonic_ns();
  upkeep_step(monitor, now, watched + WATCH_UPKEEP);
  connects_step(monitor, watched + WATCH_CONNECTS);
  check_time(monitor, now);
  limiting_look(monitor, now);
  end_if_deserted(monitor);
}

static void client_gone(void *context, struct client *client) {
  struct monitor *monitor = context;
  execs_client_gone(&monitor->execs, &monitor->engine, client);
  supervision_client_gone(monitor, client);
}

const struct strv *session_command(const struct session_request *request) {
  return request->command ? request->command : &request->plan->arguments;
}

static json_t *session_state(const struct session_request *request) {
  json_t *state = registry_state(&(struct registry_subject){
      .host = request->host,
      .session_id = request->session_id,
      .mode = request->mode,
      .backend = request->backend ? request->backend : "native",
      .command = request->idle ? NULL : session_command(request),
  });
  json_object_set_new(state, "outside_files",
                      json_boolean(plan_holds_outside_files(request->plan)));
  return state;
}

static int register_session(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  json_t *state = session_state(request);
  int result =
      registry_add(request->host, request->session_id, state, &monitor->registration, error);
  json_decref(state);
  if (result == 0)
    result = control_open(monitor->registration.folder, monitor_commands, monitor, client_gone,
                          &monitor->control, error);
  return result < 0 ? -1 : registry_publish(&monitor->registration, error);
}

static int open_capture(struct monitor *monitor, int descriptors[3], struct sb_error *error) {
  if (!monitor->request->capture)
    return 0;
  int result = capture_open(&monitor->capture, monitor->request->capture_limit);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes for the output");
  descriptors[1] = monitor->capture.streams[0].writer;
  descriptors[2] = monitor->capture.streams[1].writer;
  return 0;
}

/* The kernel's errno alone ("No space left on device") explains nothing. */
static int explain_refusal(struct sb_error *error) {
  return error->code == SB_CODE_UNSUPPORTED ? doctor_explain_userns(error) : -1;
}

/* The process that was started ahead does, if nothing is special about its birth. */
static int clone_init(struct monitor *monitor, const struct engine_birth *birth,
                      struct sb_error *error) {
  struct engine *ahead = monitor->request->ahead;
  bool there = ahead && ahead->init > 0;
  if (there && monitor->limits.hierarchy_count == 0 && !monitor->request->capture) {
    monitor->engine = *ahead;
    *ahead = ENGINE_NONE;
    return 0;
  }
  if (there)
    engine_destroy(ahead, NULL);
  return engine_clone(birth, monitor->request->report, &monitor->engine, error);
}

static int begin(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  struct engine_birth birth = {
      .limits = &monitor->limits,
      .descriptors = {-1, -1, -1},
      .title = request->title,
      .title_size = request->title_size,
  };
  struct engine_input input = {
      .base = request->plan,
      .rlimits = &monitor->limits.rlimits,
      .original_mask = monitor->original_mask,
      .idle = request->idle,
      /* Limits count from then on, and what waits for an answer should not wait for us. */
      .tell_at_once =
          request->idle || !limit_set_is_empty(request->limits) || request->plan->gate != GATE_NONE,
  };
  memcpy(input.terminal, monitor->terminal.used, sizeof input.terminal);
  if (limiting_begin(monitor, error) < 0 || open_capture(monitor, birth.descriptors, error) < 0)
    return -1;
  if (clone_init(monitor, &birth, error) < 0 ||
      engine_map_identity(&monitor->engine, &input, error) < 0)
    return explain_refusal(error);
  return 0;
}

static int start(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  if (begin(monitor, error) < 0)
    return -1;
  capture_close_writers(&monitor->capture);
  prctl(PR_SET_DUMPABLE, 0); /* nobody attaches to us from now on */
  placeholders_recover(request->host);
  if (request->compile(request->compile_context, error) < 0 ||
      publisher_listen(&monitor->publisher, &request->plan->publish, error) < 0)
    return -1;
  report_phase(request->report, PHASE_PLANNED);
  /* All this while the child makes its namespaces and the base; the snapshot before our
   * placeholders are in the project. */
  if (request->watched->count > 0)
    monitor->snapshot = changes_snapshot_begin(request->watched->items, request->watched->count,
                                               &changes_default_limits);
  if (events_start(monitor, error) < 0 ||
      placeholders_create(&monitor->placeholders, request->plan, request->host, request->session_id,
                          error) < 0)
    return -1;
  report_phase(request->report, PHASE_PLACEHOLDERS);
  if (engine_go(&monitor->engine, request->plan, error) < 0)
    return -1;
  /* While the child mounts the places. */
  if (register_session(monitor, error) < 0 || supervision_start(monitor, error) < 0 ||
      engine_ready(&monitor->engine, error) < 0)
    return -1;
  registry_sweep(request->host); /* what the killed have left, while the command starts */
  return 0;
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
  if (report->failed != STEP_NONE) {
    engine_explain(&monitor->engine, &result->exit_code, error);
    /* AppArmor lets a user namespace be made, but not used. */
    return report->failed == STEP_NAMESPACES ? explain_refusal(error) : -1;
  }
  if (monitor->network.driven.failed)
    return driven_explain(monitor, error);
  if (monitor->network.failed)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "starting the network relay");
  limiting_conclude(monitor);
  if (monitor->timed_out)
    result->exit_code = 124;
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

static void finish(struct monitor *monitor) {
  struct rusage used = {0};
  supervision_hide(monitor);
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
  engine_destroy(&monitor->engine, &used);
  usage_add_rusage(&monitor->result->usage, &used);
  network_finish(monitor);            /* after the last who could use it */
  terminal_drain(&monitor->terminal); /* now that nobody is left to write more */
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
  *ret_result = (struct session_result){.exit_code = 125, .capture = CAPTURE_NONE};
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
      .registration = REGISTRATION_NONE,
      .network = NETWORK_NONE_YET,
      .limits = LIMIT_GROUP_NONE,
      .execs = {.log = request->log},
      .started_ns = monotonic_ns(),
  };
  if (take_signals(&monitor, error) < 0)
    return -1;
  int result = start(&monitor, error);
  while (result == 0 && !monitor.over)
    look_once(&monitor);
  struct engine ended = monitor.engine; /* engine_destroy forgets the plan and the report */
  finish(&monitor);
  if (result == 0) {
    monitor.engine = ended;
    result = conclude(&monitor, error);
  }
  events_end(&monitor);
  limit_group_remove(&monitor.limits);
  keeper_reap(&monitor.upkeep.keeper);
  connector_reap(&monitor.connects.connector);
  control_close(monitor.control); /* `sandbox kill` waits for it: nothing is left now */
  ret_result->capture = monitor.capture;
  report_phase(request->report, PHASE_FINISHED);
  memcpy(ret_result->phases, request->report->phases, sizeof ret_result->phases);
  log_write(request->log, LOG_INFO, "exited", ret_result->wall_seconds * 1e6,
            json_pack("{s:i}", "exit", ret_result->exit_code));
  monitor_notify(&monitor, &(struct session_notice){.event = SESSION_EXITED, .result = ret_result});
  give_signals_back(&monitor);
  return result;
}
