/* The monitor: owns a session from outside. It relays the terminal and signals, and when it ends,
 * however it ends, the session is over. Must never give the workload anything it does not have. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "doctor/doctor.h"
#include "engine/engine.h"
#include "session/placeholders.h"
#include "session/session.h"
#include "session/terminal.h"

struct monitor {
  const struct session_request *request;
  struct session_result *result;
  struct engine engine;
  struct terminal terminal;
  struct placeholders placeholders;
  sigset_t original_mask;
  int signals; /* signalfd */
  bool announced;
  int early;     /* a signal that came before the workload: it gets it when it is there */
  int abandoned; /* the signal that ended the start */
  bool over;
};

void session_new_id(char ret_id[SESSION_ID_LENGTH + 1]) {
  static const char letters[] = "abcdefghijkmnpqrstuvwxyz23456789"; /* 32: no l, o, 0, 1 */
  unsigned char random[SESSION_ID_LENGTH];
  while (getrandom(random, sizeof random, 0) != sizeof random)
    ;
  for (size_t i = 0; i < SESSION_ID_LENGTH; i++)
    ret_id[i] = letters[random[i] % 32];
  ret_id[SESSION_ID_LENGTH] = '\0';
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
  sigaddset(&ours, SIGTTOU); /* restoring the terminal must not stop us */
  sigprocmask(SIG_BLOCK, &ours, &monitor->original_mask);
  return 0;
}

static void give_signals_back(struct monitor *monitor) {
  close(monitor->signals);
  sigprocmask(SIG_SETMASK, &monitor->original_mask, NULL);
}

/* Stops our own job as Ctrl-Z does, until the user brings it back with fg or bg. */
static void stop_with_workload(struct monitor *monitor) {
  terminal_restore(&monitor->terminal);
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  kill(0, SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, NULL); /* we stop here */
  sigprocmask(SIG_BLOCK, &stop, NULL);
  terminal_set_raw(&monitor->terminal);
  terminal_resize(&monitor->terminal);
  engine_send(&monitor->engine, MESSAGE_CONTINUE, 0);
}

/* How long a signal waits for the workload before it ends the start instead. */
#define EARLY_SIGNAL_MILLISECONDS 1000

static void abandon(struct monitor *monitor) {
  monitor->over = true;
  monitor->abandoned = monitor->early;
}

/* The workload may run already and only the news of it be on its way, so the first signal waits for
 * it. A second one means it. */
static void keep_early_signal(struct monitor *monitor, int signal) {
  if (signal == SIGWINCH || signal == SIGCONT || signal == SIGTSTP)
    return;
  if (monitor->early)
    abandon(monitor);
  monitor->early = signal;
}

static void handle_signal(struct monitor *monitor, int signal) {
  if (!monitor->result->started) {
    keep_early_signal(monitor, signal);
    return;
  }
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
    if (forwarded[i].signal == signal)
      engine_send(&monitor->engine, forwarded[i].kind, signal);
  }
  if (signal == SIGWINCH)
    terminal_resize(&monitor->terminal);
  /* SIGSTOP, because the workload's group may be an orphan, which ignores SIGTSTP; init tells us
   * that it stopped, and then we stop, too. */
  if (signal == SIGTSTP)
    engine_send(&monitor->engine, MESSAGE_SIGNAL_GROUP, SIGSTOP);
}

static void read_signals(struct monitor *monitor) {
  struct signalfd_siginfo info;
  while (read(monitor->signals, &info, sizeof info) == sizeof info)
    handle_signal(monitor, (int)info.ssi_signo);
}

/* ---- messages of the session's init ---- */

/* Says aloud what the kernel refused, before the workload can print anything. */
static void announce(struct monitor *monitor) {
  const struct start_report *report = monitor->request->report;
  if (monitor->announced)
    return;
  monitor->announced = true;
  if (report->weaker_proc)
    monitor->request->notice(monitor->request->notice_context,
                             "weaker nested mode: this container does not allow a /proc of our "
                             "own; process names outside are visible, Landlock keeps them closed");
  if (report->weaker_sysfs)
    monitor->request->notice(monitor->request->notice_context,
                             "weaker nested mode: /sys is the container's, read-only");
}

static void on_terminal(struct monitor *monitor, int master) {
  announce(monitor);
  terminal_connect(&monitor->terminal, master);
  engine_send(&monitor->engine, MESSAGE_GO, 0);
}

static void read_message(struct monitor *monitor) {
  struct message message = {0};
  int fd = -1;
  ssize_t got = fd_receive(monitor->engine.channel, &fd, &message, sizeof message);
  if (got != sizeof message) {
    monitor->over = true;
    return;
  }
  switch ((enum message_kind)message.kind) {
  case MESSAGE_TERMINAL:
    on_terminal(monitor, fd);
    return;
  case MESSAGE_STARTED:
    announce(monitor);
    monitor->result->started = true;
    if (monitor->early)
      handle_signal(monitor, monitor->early);
    return;
  case MESSAGE_STOPPED:
    stop_with_workload(monitor);
    return;
  case MESSAGE_EXITED:
    monitor->over = true;
    return;
  default:
    monitor->over = true; /* not of this protocol: end the session rather than guess */
  }
}

/* ---- the session ---- */

#define LENT_TERMINAL_MILLISECONDS 200

/* How long to wait for news; -1 is for ever. */
static int patience(const struct monitor *monitor) {
  if (monitor->early && !monitor->result->started)
    return EARLY_SIGNAL_MILLISECONDS;
  return terminal_is_lent(&monitor->terminal) ? LENT_TERMINAL_MILLISECONDS : -1;
}

static void supervise(struct monitor *monitor) {
  while (!monitor->over) {
    struct pollfd watched[4] = {{.fd = monitor->engine.channel, .events = POLLIN},
                                {.fd = monitor->signals, .events = POLLIN}};
    terminal_watch(&monitor->terminal, watched + 2);
    int ready = poll(watched, ARRAY_SIZE(watched), patience(monitor));
    if (ready == 0 && monitor->early && !monitor->result->started)
      abandon(monitor);
    if (monitor->terminal.master >= 0)
      terminal_set_raw(&monitor->terminal); /* if it has come back meanwhile */
    if (ready <= 0)
      continue;
    terminal_relay(&monitor->terminal, watched + 2);
    if (watched[1].revents)
      read_signals(monitor);
    if (watched[0].revents)
      read_message(monitor);
  }
}

/* The kernel's errno alone ("No space left on device") explains nothing. */
static int explain_refusal(struct sb_error *error) {
  return error->code == SB_CODE_UNSUPPORTED ? doctor_explain_userns(error) : -1;
}

static int start(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  struct engine_input input = {
      .plan = request->plan,
      .original_mask = monitor->original_mask,
      .title = request->title,
      .title_size = request->title_size,
  };
  memcpy(input.terminal, monitor->terminal.used, sizeof input.terminal);
  if (engine_clone(&input, request->report, &monitor->engine, error) < 0 ||
      engine_map_identity(&monitor->engine, error) < 0)
    return explain_refusal(error);
  prctl(PR_SET_DUMPABLE, 0); /* nobody attaches to us from now on */
  if (placeholders_create(&monitor->placeholders, request->plan, request->host, request->session_id,
                          error) < 0)
    return -1;
  report_phase(request->report, PHASE_PLACEHOLDERS);
  return engine_go(&monitor->engine, error);
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
  if (monitor->abandoned) {
    result->exit_code = 128 + monitor->abandoned;
    return 0;
  }
  if (report->failed != STEP_NONE) {
    engine_explain(&monitor->engine, &result->exit_code, error);
    /* AppArmor lets a user namespace be made, but not used. */
    return report->failed == STEP_NAMESPACES ? explain_refusal(error) : -1;
  }
  if (!report->workload_done) {
    result->exit_code = 128 + SIGKILL;
    return 0; /* init itself was killed, from outside or by kill(-1) as uid 0 of the host */
  }
  result->started = true;
  result->wait_status = report->wait_status;
  result->exit_code = exit_code_of(report->wait_status);
  return 0;
}

int session_run(const struct session_request *request, struct session_result *ret_result,
                struct sb_error *error) {
  *ret_result = (struct session_result){.exit_code = 125};
  struct monitor monitor = {
      .request = request,
      .result = ret_result,
      .engine = {.init = -1, .pidfd = -1, .channel = -1},
      .terminal = terminal_new(request->plan->terminal),
      .placeholders = {.journal_fd = -1},
  };
  if (take_signals(&monitor, error) < 0)
    return -1;
  placeholders_recover(request->host);

  int result = start(&monitor, error);
  if (result == 0)
    supervise(&monitor);
  struct engine ended = monitor.engine; /* engine_destroy forgets the plan and the report */
  engine_destroy(&monitor.engine);
  terminal_drain(&monitor.terminal); /* now that nobody is left to write more */
  terminal_restore(&monitor.terminal);
  placeholders_remove(&monitor.placeholders);
  if (result == 0) {
    monitor.engine = ended;
    result = conclude(&monitor, error);
  }
  give_signals_back(&monitor);
  report_phase(request->report, PHASE_FINISHED);
  memcpy(ret_result->phases, request->report->phases, sizeof ret_result->phases);
  return result;
}
