/* Runs what a back end wrapped: terminal or pipes, signals, wall time, limits by cgroup, captured
 * output. The process tree itself belongs to the guard; see guard.h. Never prints. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "backend/backend.h"
#include "backend/guard.h"
#include "backend/processes.h"
#include "backend/runner-control.h"
#include "backend/runner.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/path.h"
#include "overlay/remove.h"
#include "session/events.h"
#include "session/monitor.h"
#include "session/placeholders.h"
#include "session/terminal.h"

#define TIME_GRACE_NS   (2ull * 1000 * 1000 * 1000)
#define EARLY_SIGNAL_NS (3ull * 1000 * 1000 * 1000)
/* What ends sooner need not be listed, and entering the registry would be a tenth of its time. */
#define REGISTER_NS (50ull * 1000 * 1000)

struct runner {
  const struct backend *backend;
  const struct backend_request *request;
  struct session_result *result;
  struct wrapped wrapped;
  struct terminal terminal;
  struct capture capture;
  struct placeholders placeholders;
  struct limit_group limits;
  struct deadline deadline;
  struct guard_report report;
  sigset_t original_mask;
  int signals, channel, status;
  pid_t guard;
  char *scratch; /* made, and to be removed */
  int scratch_lock;
  struct text status_text;
  bool timed_out, over, reported;
  bool tidied; /* the guard removes the scratch folder: it came to its end */
  int was_subreaper;
  int early;     /* a signal that came before the command */
  int abandoned; /* the signal that ended the start */
  int passed_on; /* the last signal that went to the command, or to what was about to become it */
  uint64_t early_until_ns;
  struct runner_control control;
  uint64_t started_ns;
  uint64_t register_ns; /* when it enters the registry; 0: it has, or does not */
  bool killed;          /* by `sandbox kill` */
};

static void notify(struct runner *runner, const struct session_notice *notice) {
  if (runner->request->listener)
    runner->request->listener(runner->request->listener_context, notice);
}

/* ---- scratch folder ---- */

static char *temporary_folder(void) {
  const char *named = getenv("TMPDIR");
  char *resolved = NULL;
  return named && named[0] == '/' && file_resolve(named, &resolved) == 0 ? resolved
                                                                         : xstrdup("/tmp");
}

/* Names in /tmp can be taken by others first: then the session has a folder of its own there. */
char *backend_scratch_path(const char *session_id) {
  _cleanup_free_ char *folder = temporary_folder();
  _cleanup_free_ char *parent = xasprintf("%s/sandbox-%u", folder, (unsigned)geteuid());
  struct stat status;
  bool taken = lstat(parent, &status) == 0 &&
               (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || status.st_mode & 077);
  return taken ? xasprintf("%s-%s", parent, session_id) : path_join(parent, session_id);
}

struct sweep {
  int parent;
  struct strv dead;
};

/* Nobody holds its lock: runner and guard were killed, both. */
static bool find_dead(void *context, const struct folder_entry *entry) {
  struct sweep *sweep = context;
  _cleanup_close_ int fd = folder_open(sweep->parent, entry->name);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
    strv_add(&sweep->dead, entry->name);
  return true;
}

static void sweep_scratch(int parent) {
  struct sweep sweep = {.parent = parent};
  (void)folder_read(parent, find_dead, &sweep);
  STRV_FOREACH (name, &sweep.dead)
    (void)tree_remove(parent, *name, NULL);
  strv_clear(&sweep.dead);
}

static int make_scratch(struct runner *runner, struct sb_error *error) {
  _cleanup_free_ char *parent = path_parent(runner->request->scratch);
  _cleanup_free_ char *shown = escape_string(runner->request->scratch);
  _cleanup_free_ char *temporary = temporary_folder();
  bool shared = strcmp(parent, temporary) == 0;
  int result = shared ? 0 : file_private_folder(parent);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making the folder for '%s'", shown);
  _cleanup_close_ int folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  /* Held until ours is locked, or another session's sweep would take it for a dead one. */
  if (folder >= 0 && !shared && flock(folder, LOCK_EX) == 0)
    sweep_scratch(folder);
  if (folder < 0 || mkdirat(folder, path_base(runner->request->scratch), 0700) < 0)
    return sb_fail_errno(error, "making the folder '%s'", shown);
  runner->scratch = xstrdup(runner->request->scratch);
  runner->scratch_lock = folder_open(folder, path_base(runner->scratch));
  if (runner->scratch_lock >= 0)
    (void)flock(runner->scratch_lock, LOCK_SH);
  return 0;
}

static int make_file(const struct wrapped_file *file, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file->path);
  if (file->folder) {
    int made = file_make_folders(file->path, 0700);
    return made < 0 ? sb_fail(error, SB_CODE_SYSTEM, -made, "making the folder '%s'", shown) : 0;
  }
  _cleanup_close_ int fd =
      open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = fd < 0 ? -errno : file_write_all(fd, file->content, file->size);
  if (result == 0 && file->unreadable && fchmod(fd, 0) < 0)
    result = -errno;
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "writing '%s'", shown) : 0;
}

static int make_files(struct runner *runner, struct sb_error *error) {
  for (size_t i = 0; i < runner->wrapped.file_count; i++) {
    const struct wrapped_file *file = &runner->wrapped.files[i];
    if (!file->path)
      continue;
    if ((!runner->scratch && make_scratch(runner, error) < 0) || make_file(file, error) < 0)
      return -1;
  }
  return 0;
}

/* ---- preparing ---- */

static const struct {
  int signal;
  enum guard_request request;
} forwarded[] = {
    {SIGINT, GUARD_SIGNAL_GROUP}, {SIGQUIT, GUARD_SIGNAL_GROUP}, {SIGTERM, GUARD_SIGNAL},
    {SIGHUP, GUARD_SIGNAL},       {SIGUSR1, GUARD_SIGNAL},       {SIGUSR2, GUARD_SIGNAL},
};

static int take_signals(struct runner *runner, struct sb_error *error) {
  sigset_t ours;
  sigemptyset(&ours);
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++)
    sigaddset(&ours, forwarded[i].signal);
  sigaddset(&ours, SIGWINCH);
  runner->signals = signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK);
  if (runner->signals < 0)
    return sb_fail_errno(error, "creating a signalfd");
  sigaddset(&ours, SIGPIPE);
  sigaddset(&ours, SIGTTOU);
  sigprocmask(SIG_BLOCK, &ours, &runner->original_mask);
  return 0;
}

/* The tools say "1" or print something of their own: what a shell would say is known before. */
static int check_command(struct runner *runner, struct sb_error *error) {
  const struct plan *plan = runner->request->plan;
  if (!(runner->backend->features & FEATURE(READ_ALL)))
    return 0;
  int remembered = ENOENT;
  STRV_FOREACH (place, &plan->executables) {
    struct stat status;
    if (stat(*place, &status) == 0 && S_ISREG(status.st_mode) && access(*place, X_OK) == 0)
      return 0;
    if (errno != ENOENT && errno != ENOTDIR)
      remembered = errno;
    if (stat(*place, &status) == 0)
      remembered = EACCES;
  }
  _cleanup_free_ char *shown = escape_string(plan->arguments.items[0]);
  runner->result->exit_code = remembered == ENOENT ? 127 : 126;
  sb_fail(error, SB_CODE_NOT_FOUND, remembered, "cannot execute '%s'", shown);
  return sb_hint(error, "name a program that exists, or its full path");
}

/* What argv holds itself, and what has been given up, is none of ours; nor is what a group around
 * the client of a container engine would not hold. */
static int create_limits(struct runner *runner, struct sb_error *error) {
  static const unsigned by_group =
      1u << LIMIT_MEMORY | 1u << LIMIT_CPU | 1u << LIMIT_PROCESSES | 1u << LIMIT_IO;
  struct limit_set set = *runner->request->limits;
  unsigned others = runner->wrapped.limits_held | (runner->backend->limits_by_group ? 0 : by_group);
  for (int i = 0; i < LIMIT_COUNT; i++) {
    if (others & 1u << i)
      set.value[i] = 0;
  }
  if (runner_create_group(&set, runner->request->session_id, runner->request->weaken,
                          &runner->limits, error) < 0)
    return -1;
  memcpy(runner->result->enforcers, runner->limits.enforcers, sizeof runner->result->enforcers);
  for (int i = 0; i < LIMIT_COUNT; i++) {
    if (runner->wrapped.limits_held & 1u << i)
      runner->result->enforcers[i] = ENFORCER_BACKEND;
  }
  limit_groups_recover(&runner->limits);
  return 0;
}

static int open_terminal(int *ret_slave, struct sb_error *error) {
  _cleanup_close_ int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  char name[64];
  if (master < 0 || grantpt(master) < 0 || unlockpt(master) < 0 ||
      ptsname_r(master, name, sizeof name) != 0)
    return sb_fail_errno(error, "making a terminal");
  *ret_slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
  return *ret_slave < 0 ? sb_fail_errno(error, "opening the terminal '%s'", name)
                        : steal_fd(&master);
}

/* Which descriptors the tool gets; what is opened for it is closed once the guard has it. */
struct ends {
  int slave, status, channel;
};

static void ends_close(struct ends *ends) {
  cleanup_close_fd(&ends->slave);
  cleanup_close_fd(&ends->status);
  cleanup_close_fd(&ends->channel);
}

static int open_streams(struct runner *runner, struct guard_input *input, struct ends *ends,
                        struct sb_error *error) {
  if (runner->request->capture) {
    int result = capture_open(&runner->capture, runner->request->capture_limit);
    if (result < 0)
      return sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes for the output");
    input->descriptors[1] = runner->capture.streams[0].writer;
    input->descriptors[2] = runner->capture.streams[1].writer;
  }
  if (!runner->terminal.any)
    return 0;
  int master = open_terminal(&ends->slave, error);
  if (master < 0)
    return -1;
  input->terminal = ends->slave;
  for (int fd = 0; fd < 3; fd++) {
    if (runner->terminal.used[fd])
      input->descriptors[fd] = ends->slave;
  }
  terminal_connect(&runner->terminal, master);
  return 0;
}

static int open_channels(struct runner *runner, struct guard_input *input, struct ends *ends,
                         struct sb_error *error) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
    return sb_fail_errno(error, "making a socket pair");
  runner->channel = pair[0];
  input->runner_channel = runner->channel;
  input->runner = getpid();
  input->channel = ends->channel = pair[1];
  if (runner->wrapped.status_fd < 0)
    return 0;
  if (pipe2(pair, O_CLOEXEC) < 0)
    return sb_fail_errno(error, "making a pipe");
  runner->status = pair[0];
  fcntl(runner->status, F_SETFL, O_NONBLOCK);
  input->status = ends->status = pair[1];
  return 0;
}

static void ask(struct runner *runner, enum guard_request request, int signal) {
  struct guard_message message = {request, signal};
  (void)send(runner->channel, &message, sizeof message, MSG_NOSIGNAL);
}

/* What its entrance leaves to us is done while it starts. */
static void start_guard(struct runner *runner, struct guard_input *input) {
  const struct backend_entrance *entrance = runner->backend->entrance;
  if (!entrance) {
    runner->guard = guard_start(input);
    return;
  }
  input->begun = entrance->begin(&runner->wrapped);
  _cleanup_close_ int begun = input->begun;
  runner->guard = guard_start(input);
  if (runner->guard > 0)
    ask(runner, GUARD_PREPARED, begun < 0 ? begun : entrance->prepare(&runner->wrapped, begun));
}

static int start(struct runner *runner, struct sb_error *error) {
  const struct backend_request *request = runner->request;
  placeholders_recover(request->host);
  if (check_command(runner, error) < 0 ||
      runner->backend->wrap(request, &runner->wrapped, error) < 0 ||
      create_limits(runner, error) < 0 || make_files(runner, error) < 0)
    return -1;
  if (runner->wrapped.own_placeholders &&
      placeholders_create(&runner->placeholders, request->plan, request->host, request->session_id,
                          error) < 0)
    return -1;
  __attribute__((cleanup(ends_close))) struct ends ends = {-1, -1, -1};
  struct guard_input input = {
      .backend = runner->backend,
      .wrapped = &runner->wrapped,
      .limits = &runner->limits,
      .scratch = runner->scratch,
      .descriptors = {-1, -1, -1},
      .terminal = -1,
      .status = -1,
      .mask = runner->original_mask,
  };
  if (open_streams(runner, &input, &ends, error) < 0 ||
      open_channels(runner, &input, &ends, error) < 0)
    return -1;
  prctl(PR_GET_CHILD_SUBREAPER, &runner->was_subreaper, 0, 0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  start_guard(runner, &input);
  capture_close_writers(&runner->capture);
  if (runner->guard < 0)
    return sb_fail(error, SB_CODE_SYSTEM, (int)-runner->guard, "starting the guard");
  registry_sweep(request->host); /* what the killed have left, while the tool starts */
  runner->deadline =
      deadline_new(monotonic_ns(), request->limits->value[LIMIT_TIME], TIME_GRACE_NS);
  return 0;
}

/* ---- running ---- */

static void forward(struct runner *runner, int number) {
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
    if (forwarded[i].signal != number)
      continue;
    ask(runner, forwarded[i].request, number);
    runner->passed_on = number;
  }
}

/* While the tool is busy with itself, a signal would hit its helpers: it waits for the command. */
static bool is_starting(const struct runner *runner) {
  return runner->wrapped.started_mark &&
         !strstr(text_string(&runner->status_text), runner->wrapped.started_mark);
}

static void read_signals(struct runner *runner) {
  struct signalfd_siginfo info;
  while (read(runner->signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo != SIGWINCH && is_starting(runner) && !runner->early) {
      runner->early = (int)info.ssi_signo;
      runner->early_until_ns = monotonic_ns() + EARLY_SIGNAL_NS;
    } else {
      forward(runner, (int)info.ssi_signo);
    }
    if (info.ssi_signo == SIGWINCH)
      terminal_resize(&runner->terminal);
  }
}

static void read_report(struct runner *runner) {
  ssize_t got = recv(runner->channel, &runner->report, sizeof runner->report, 0);
  runner->reported = got == sizeof runner->report;
  runner->over = true;
}

static void read_status(struct runner *runner) {
  char buffer[4096];
  ssize_t got = read(runner->status, buffer, sizeof buffer);
  if (got > 0 && runner->status_text.length < 1 << 16)
    text_append_bytes(&runner->status_text, buffer, (size_t)got);
  if (got == 0) {
    close(runner->status);
    runner->status = -1;
  }
}

static void name_limit(struct runner *runner, enum limit_kind kind) {
  if (runner->result->limit_hit)
    return;
  runner->result->limit_hit = true;
  runner->result->limit = kind;
  _cleanup_free_ char *described = limit_describe(runner->request->limits, kind);
  notify(runner, &(struct session_notice){
                     .event = SESSION_LIMIT, .text = described, .result = runner->result});
}

static void check_early_signal(struct runner *runner) {
  if (!runner->early || (is_starting(runner) && monotonic_ns() < runner->early_until_ns))
    return;
  if (is_starting(runner)) {
    runner->abandoned = runner->early;
    ask(runner, GUARD_END, 0);
  } else {
    forward(runner, runner->early);
  }
  runner->early = 0;
}

static void check_time(struct runner *runner) {
  enum deadline_action action = deadline_step(&runner->deadline, monotonic_ns());
  if (action == DEADLINE_NOTHING)
    return;
  runner->timed_out = !runner->killed;
  if (runner->timed_out)
    name_limit(runner, LIMIT_TIME);
  ask(runner, action == DEADLINE_TERM ? GUARD_SIGNAL_ALL : GUARD_END, SIGTERM);
}

/* ---- in the registry ---- */

static void end_by_client(void *context, bool now) {
  struct runner *runner = context;
  runner->killed = true;
  runner->deadline = deadline_new(monotonic_ns(), 1, now ? 0 : TIME_GRACE_NS);
}

static void signal_by_client(void *context, int signal) {
  ask(context, GUARD_SIGNAL, signal);
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
    check_early_signal(runner);
    return;
  }
  terminal_relay(&runner->terminal, watched + WATCH_TERMINAL);
  capture_read(&runner->capture, watched + WATCH_CAPTURE);
  if (watched[WATCH_STATUS].revents)
    read_status(runner);
  if (watched[WATCH_SIGNALS].revents)
    read_signals(runner);
  check_early_signal(runner);
  if (watched[WATCH_CHANNEL].revents)
    read_report(runner);
  if (watched[WATCH_LIFELINE].revents)
    runner->over = true; /* nobody is left who wants to know how it ends */
  runner_control_dispatch(&runner->control, watched + WATCH_COUNT, clients);
}

/* ---- the end ---- */

static int wait_for(pid_t guard) {
  int status = 0;
  while (guard > 0 && waitpid(guard, &status, 0) < 0 && errno == EINTR)
    ;
  return status;
}

/* The guard ends what is still there; if it was killed itself, its children have come to us. When
 * it reports, nothing is left but itself and the scratch folder, which it removes. */
static void end_guard(struct runner *runner) {
  if (runner->channel >= 0)
    close(runner->channel);
  if (runner->reported && runner->request->guard) {
    *runner->request->guard = runner->guard;
    runner->tidied = true;
  } else {
    int status = wait_for(runner->guard);
    runner->tidied = runner->reported && WIFEXITED(status);
  }
  if (runner->guard > 0 && !runner->reported)
    processes_kill_orphans(runner->request->session_id);
  if (!runner->was_subreaper)
    prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0);
}

static void finish(struct runner *runner) {
  runner_control_leave(&runner->control);
  end_guard(runner);
  limit_group_sample(&runner->limits, &runner->result->usage);
  usage_add_rusage(&runner->result->usage, &runner->report.used);
  limit_group_kill(&runner->limits);
  terminal_drain(&runner->terminal);
  capture_drain(&runner->capture);
  terminal_restore(&runner->terminal);
  while (runner->status >= 0 && poll(&(struct pollfd){runner->status, POLLIN, 0}, 1, 0) > 0)
    read_status(runner);
  placeholders_remove(&runner->placeholders);
  if (runner->scratch && !runner->tidied)
    guard_remove_scratch(runner->scratch);
}

static int explain_start(struct runner *runner, struct sb_error *error) {
  const struct guard_report *report = &runner->report;
  const char *program = report->doing[0]            ? runner->backend->name
                        : runner->backend->entrance ? runner->request->plan->arguments.items[0]
                                                    : runner->wrapped.argv.items[0];
  _cleanup_free_ char *shown = escape_string(program);
  if (report->doing[0])
    return sb_fail(error, SB_CODE_UNSUPPORTED, report->errnum, "%s: %s", shown, report->doing);
  if (runner->backend->entrance)
    runner->result->exit_code = report->errnum == ENOENT ? 127 : 126;
  return sb_fail(error, SB_CODE_NOT_FOUND, report->errnum, "cannot execute '%s'", shown);
}

/* Did the tool itself fail, or the command in it? */
static bool tool_failed(const struct runner *runner) {
  return runner->wrapped.ran_mark && !runner->timed_out && WIFEXITED(runner->report.wait_status) &&
         WEXITSTATUS(runner->report.wait_status) != 0 &&
         !strstr(text_string(&runner->status_text), runner->wrapped.ran_mark);
}

static int conclude(struct runner *runner, struct sb_error *error) {
  struct session_result *result = runner->result;
  enum limit_kind kind;
  int status = runner->report.wait_status;
  if (runner->abandoned || !runner->reported) {
    result->exit_code = 128 + (runner->abandoned ? runner->abandoned : SIGKILL);
    return 0;
  }
  if (runner->report.errnum)
    return explain_start(runner, error);
  if (tool_failed(runner) && runner->passed_on) {
    result->exit_code = 128 + runner->passed_on;
    return 0;
  }
  if (tool_failed(runner)) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s could not start the command", runner->backend->name);
    return sb_hint(error, "it said why above; 'sandbox backends' lists what else works here");
  }
  result->started = true;
  result->wait_status = status;
  result->exit_code = runner->killed        ? 128 + SIGKILL
                      : runner->timed_out   ? 124
                      : WIFSIGNALED(status) ? 128 + WTERMSIG(status)
                                            : WEXITSTATUS(status);
  if (limit_group_check(&runner->limits, &result->usage, &kind) != LIMIT_FINE)
    name_limit(runner, kind);
  else if (result->exit_code > 128 &&
           limit_group_explains_signal(&runner->limits, result->exit_code - 128, &kind))
    name_limit(runner, kind);
  return 0;
}

static void give_signals_back(struct runner *runner) {
  sigset_t pipes;
  close(runner->signals);
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  while (sigtimedwait(&pipes, NULL, &(struct timespec){0}) > 0)
    ;
  sigprocmask(SIG_SETMASK, &runner->original_mask, NULL);
}

static void clear(struct runner *runner) {
  limit_group_remove(&runner->limits);
  runner_control_close(&runner->control); /* `sandbox kill` waits for it: nothing is left now */
  wrapped_clear(&runner->wrapped);
  text_clear(&runner->status_text);
  free(runner->scratch);
  cleanup_close_fd(&runner->scratch_lock);
  cleanup_close_fd(&runner->status);
}

int backend_run_wrapped(const struct backend *backend, const struct backend_request *request,
                        struct session_result *ret_result, struct sb_error *error) {
  struct runner runner = {
      .backend = backend,
      .request = request,
      .result = ret_result,
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
      .started_ns = monotonic_ns(),
  };
  runner.register_ns = runner.started_ns + REGISTER_NS;
  if (take_signals(&runner, error) < 0)
    return -1;
  int result = start(&runner, error);
  if (result == 0)
    notify(&runner, &(struct session_notice){.event = SESSION_STARTED, .init = runner.guard});
  while (result == 0 && !runner.over)
    look_once(&runner);
  finish(&runner);
  if (result == 0)
    result = conclude(&runner, error);
  ret_result->capture = runner.capture;
  ret_result->wall_seconds = (double)(monotonic_ns() - runner.started_ns) / 1e9;
  log_write(request->log, LOG_INFO, "exited", ret_result->wall_seconds * 1e6,
            json_pack("{s:i, s:s}", "exit", ret_result->exit_code, "backend", backend->name));
  notify(&runner, &(struct session_notice){.event = SESSION_EXITED, .result = ret_result});
  clear(&runner);
  give_signals_back(&runner);
  return result;
}

int backend_run(const struct backend *backend, const struct backend_request *request,
                struct session_result *ret_result, struct sb_error *error) {
  *ret_result = (struct session_result){.exit_code = 125, .capture = CAPTURE_NONE};
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
  (void)wait_for(guard);
  return result;
}
