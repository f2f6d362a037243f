/* PID 1 of the session; see init.h. Runs in a forked copy of the monitor, possibly of a program
 * with threads: no allocation, no stdio, raw system calls only. */
#include "engine/init.h"
#include "core/exit-code.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/pty.h"
#include "engine/channel.h"
#include "engine/command.h"
#include "engine/confine.h"
#include "engine/exec.h"
#include "engine/namespaces.h"
#include "engine/view.h"
#include "net/inside.h"

#define AT_ONCE_MS 2

struct init {
  const struct init_birth *birth;
  const struct init_input *input; /* to be looked at when the ids are mapped */
  struct start_report *report;
  struct namespaces namespaces;
  struct view view;
  int connects;      /* the connector's listener, until the monitor has it; -1: none */
  int child_signals; /* signalfd for SIGCHLD */
  pid_t workload;    /* the process we wait for: the command, or the leader of its terminal */
  struct exec_table *execs;
};

static _Noreturn void give_up(void) {
  _exit(EXIT_CODE_FAILURE); /* the reason is in the report */
}

static int fail(struct init *init, enum step step) {
  return report_failure(init->report, step, -errno);
}

/* Waits for one message of the monitor. End of file: the monitor is gone, and so are we. */
static void await(struct init *init, enum message_kind kind) {
  struct message message;
  ssize_t got;
  do
    got = recv(init->birth->channel, &message, sizeof message, 0);
  while (got < 0 && errno == EINTR);
  if (got != sizeof message || message.kind != kind)
    give_up();
}

static void tell(struct init *init, enum message_kind kind, int value, uint32_t id) {
  struct message message = {.kind = kind, .value = value, .id = id};
  ssize_t ignored = send(init->birth->channel, &message, sizeof message, MSG_NOSIGNAL);
  (void)ignored; /* a dead monitor shows as end of file in the loop */
}

/* ---- namespaces ---- */

static int write_file(const char *path, const char *text) {
  _cleanup_close_ int fd = open(path, O_WRONLY | O_CLOEXEC);
  return fd < 0 || write(fd, text, strlen(text)) < 0 ? -1 : 0;
}

/* Second wall behind seccomp: the session's user namespace can have no children. Where the outer
 * /proc/sys is read-only (a container) seccomp alone holds it. */
static void forbid_user_namespaces(struct init *init) {
  if (!init->input->base->seccomp.containers)
    (void)write_file("/proc/sys/user/max_user_namespaces", "0");
}

/* Nobody asks for the network before the command runs. */
static bool can_await_network(const struct init *init) {
  const struct plan *base = init->input->base;
  return base->network.mode == NETWORK_NONE && base->publish.count == 0 && base->gate == GATE_NONE;
}

/* Sockets of one group; those of IPv6, at its end, may be missing. */
static int send_sockets(struct init *init, const int *sockets, int first, int end, bool last) {
  struct message message = {.kind = MESSAGE_NETWORK, .value = first, .id = last};
  size_t count = 0;
  while (first + (int)count < end && sockets[first + (int)count] >= 0)
    count++;
  int result = fd_send(init->birth->channel, sockets + first, count, &message, sizeof message);
  for (size_t i = 0; i < count; i++)
    close(sockets[first + (int)i]);
  return result;
}

/* The relay accepts on these from outside. Here they are closed: when the relay goes, so does the
 * way out. */
static int prepare_network(struct init *init) {
  enum policy_network mode = init->input->base->network.mode;
  if (mode == NETWORK_NONE)
    return 0;
  int sockets[INSIDE_SOCKETS];
  /* Whether a driver's rules are about names is not known yet. */
  bool driven = init->input->base->network.driver, full = mode == NETWORK_FULL && !driven;
  int result = driven ? inside_prepare_questions(sockets) : inside_prepare(full, sockets);
  if (result == 0)
    result = send_sockets(init, sockets, 0, INSIDE_GROUP, !full);
  if (result == 0 && full)
    result = send_sockets(init, sockets, INSIDE_GROUP, 2 * INSIDE_GROUP, false);
  if (result == 0 && full)
    result = send_sockets(init, sockets, 2 * INSIDE_GROUP, INSIDE_SOCKETS, true);
  return result < 0 ? report_failure(init->report, STEP_NETWORK, result) : 0;
}

static bool has_driver(const struct init *init) {
  const struct network_settings *network = &init->input->base->network;
  return network->mode != NETWORK_NONE && network->driver;
}

/* Whoever accepts on published ports connects from within our network; a driver ends in it. */
static int hand_over_network(struct init *init) {
  bool publishes = init->input->base->publish.count > 0, driven = has_driver(init);
  if (!publishes && !driven)
    return 0;
  _cleanup_close_ int user = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
  _cleanup_close_ int net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  _cleanup_close_ int routes =
      driven ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE) : -1;
  _cleanup_close_ int rules =
      driven ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER) : -1;
  if (user < 0 || net < 0 || (driven && (routes < 0 || rules < 0)))
    return fail(init, STEP_NETWORK);
  const int fds[] = {user, net, routes, rules};
  struct message message = {.kind = MESSAGE_PUBLISH};
  int result = publishes ? fd_send(init->birth->channel, fds, 2, &message, sizeof message) : 0;
  message.kind = MESSAGE_DRIVER;
  if (result == 0 && driven)
    result = fd_send(init->birth->channel, fds, ARRAY_SIZE(fds), &message, sizeof message);
  return result < 0 ? report_failure(init->report, STEP_NETWORK, result) : 0;
}

static int set_hostname(struct init *init) {
  const char *hostname = init->input->base->hostname;
  return sethostname(hostname, strlen(hostname)) < 0 ? fail(init, STEP_HOSTNAME) : 0;
}

/* Children of ours are born with the shifted monotonic and boot clocks. */
static int shift_time(struct init *init) {
  const struct plan *plan = init->input->base;
  if (!plan->has_time_offset)
    return 0;
  char text[128];
  snprintf(text, sizeof text, "monotonic %lld 0\nboottime %lld 0\n", plan->time_offset_seconds,
           plan->time_offset_seconds);
  if (unshare(CLONE_NEWTIME) < 0 || write_file("/proc/self/timens_offsets", text) < 0)
    return fail(init, STEP_TIME);
  return 0;
}

/* Whatever the monitor, or a program that has us as a library, had open: a copy that stays open
 * here would keep somebody waiting for the end of a pipe. */
static void close_inherited(const struct init_birth *birth) {
  const int kept[] = {birth->channel, birth->descriptors[0], birth->descriptors[1],
                      birth->descriptors[2]};
  fd_close_others(kept, ARRAY_SIZE(kept));
}

/* First stage: what every session has, while the monitor still reads the policy; then the base,
 * while it compiles the plan. */
static int prepare_base(struct init *init) {
  int result = init->birth->limits ? limit_group_enter(init->birth->limits) : 0;
  if (result < 0)
    return report_failure(init->report, STEP_LIMITS, result);
  close_inherited(init->birth);
  if (setsid() < 0 || namespaces_enter(&init->namespaces, init->report) < 0)
    return -1;
  await(init, MESSAGE_MAPPED); /* from here on there are ids, and we know what for */
  if (!can_await_network(init) &&
      (namespaces_join(&init->namespaces, init->report) < 0 || prepare_network(init) < 0))
    return -1;
  if (init->input->base->network.mode == NETWORK_FULL)
    inside_allow_ping(getegid(), has_driver(init));
  if (init->input->base->publish.count > 0)
    inside_allow_ports();
  /* While our own files in /proc still belong to us: */
  if (shift_time(init) < 0 || hand_over_network(init) < 0)
    return -1;
  /* From here on nothing inside may read or trace us; before, the monitor needed our /proc. */
  prctl(PR_SET_DUMPABLE, 0);
  forbid_user_namespaces(init);
  if (set_hostname(init) < 0 || view_begin(&init->view, init->input->base, init->report,
                                           init->birth->channel, can_await_network(init)) < 0)
    return -1;
  report_phase(init->report, PHASE_BASE);
  return 0;
}

/* Second stage: the places, protections and masks of the complete plan; then the door closes. */
static int prepare(struct init *init) {
  if (prepare_base(init) < 0)
    return -1;
  await(init, MESSAGE_GO);
  int ruleset, listener;
  if (view_enter(&init->view, init->input->plan) < 0 ||
      namespaces_leave_root(&init->namespaces, init->report) < 0 ||
      confine_prepare(init->input->plan, init->report, &ruleset) < 0 ||
      namespaces_join(&init->namespaces, init->report) < 0)
    return -1;
  report_phase(init->report, PHASE_NAMESPACES);
  /* Where processes are limited or counted there is none but ours. */
  if (view_finish(&init->view) < 0 ||
      namespaces_finish(&init->namespaces, init->input->tell_at_once, init->report) < 0)
    return -1;
  report_phase(init->report, PHASE_VIEW);
  await(init, MESSAGE_READY);
  if (has_driver(init))
    await(init, MESSAGE_CONNECTED); /* with its rules; the monitor says why if it does not come */
  /* Nothing we do from now on needs a privilege, and whatever we start inherits the lack of it. */
  if (confine_self(init->input->plan, init->report, ruleset, &listener) < 0)
    return -1;
  if (init->input->plan->gate != GATE_NOTIFY) {
    init->connects = listener;
    return 0;
  }
  /* From here on our own paths wait for the monitor, too. It never waits for us, so nobody is
   * stuck; and all we start has the same filter and the same listener. */
  int result = view_hand_over_listener(&init->view, listener);
  return result < 0 ? report_failure(init->report, STEP_LISTENER, result) : 0;
}

/* ---- the workload ---- */

/* Opens a terminal of the session's own instance: the workload's end stays here, the other goes to
 * the monitor, who sets size and modes before anything can be written. */
static int open_terminal(struct init *init, int *ret_terminal) {
  *ret_terminal = -1;
  if (!init->input->has_terminal)
    return 0;
  int master, slave, result = pty_open(&master, &slave);
  if (result < 0)
    return report_failure(init->report, STEP_TERMINAL, result);
  struct message message = {.kind = MESSAGE_TERMINAL};
  result = fd_send(init->birth->channel, &master, 1, &message, sizeof message);
  close(master);
  if (result < 0)
    return report_failure(init->report, STEP_TERMINAL, result);
  await(init, MESSAGE_GO);
  *ret_terminal = slave;
  return 0;
}

static int start_workload(struct init *init, int terminal) {
  const struct plan *plan = init->input->plan;
  struct command command = {
      .arguments = plan->arguments.items,
      .script_arguments = plan->script_arguments.items,
      .environment = plan->environment.items,
      .executables = plan->executables.items,
      .folder = plan->working_folder,
      .terminal = terminal,
      .mask = init->input->original_mask,
      .rlimits = &init->input->rlimits,
      .announced = &init->report->announced,
  };
  for (int fd = 0; fd < 3; fd++)
    command.descriptors[fd] = init->input->terminal[fd] ? terminal : init->birth->descriptors[fd];
  init->workload = command_spawn(&command, &init->report->spawn, &init->report->command);
  if (terminal >= 0)
    close(terminal);
  report_phase(init->report, PHASE_SPAWNED);
  if (init->workload < 0)
    return report_failure(init->report, init->report->spawn.step, -init->report->spawn.errnum);
  return 0;
}

static _Noreturn void finish(struct init *init, int status) {
  report_phase(init->report, PHASE_EXITED);
  init->report->wait_status = status;
  init->report->workload_done = true;
  tell(init, MESSAGE_EXITED, status, 0);
  _exit(0); /* the kernel ends everything that is left in the pid namespace */
}

static void reap(struct init *init) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    uint32_t id;
    if (pid == init->workload && WIFSTOPPED(status))
      tell(init, MESSAGE_STOPPED, WSTOPSIG(status), 0);
    else if (pid == init->workload)
      finish(init, status);
    else if (!WIFSTOPPED(status) && exec_table_end(init->execs, pid, &id))
      tell(init, MESSAGE_EXEC_EXITED, status, id);
  }
}

static void reap_signalled(struct init *init) {
  struct signalfd_siginfo drained;
  ssize_t ignored = read(init->child_signals, &drained, sizeof drained);
  (void)ignored;
  reap(init);
}

/* ---- what the monitor asks for ---- */

static void start_exec(struct init *init, const struct message *message, int fds[FD_PASS_LIMIT]) {
  struct exec_input input = {
      .channel = init->birth->channel,
      .id = message->id,
      .report = init->report,
      .mask = init->input->original_mask,
      .rlimits = &init->input->rlimits,
      .fds = fds,
  };
  int result = exec_start(init->execs, &input);
  tell(init, MESSAGE_EXEC_STARTED, result, message->id);
}

static void obey_message(struct init *init, const struct message *message, int fds[FD_PASS_LIMIT]) {
  pid_t command = init->report->command;
  switch ((enum message_kind)message->kind) {
  case MESSAGE_SIGNAL:
    if (command > 0)
      kill(command, message->value);
    return;
  case MESSAGE_SIGNAL_GROUP:
    if (command > 0)
      kill(-command, message->value);
    return;
  case MESSAGE_SIGNAL_ALL:
    kill(-1, message->value); /* in our pid namespace, and never ourselves */
    return;
  case MESSAGE_CONTINUE:
    if (command > 0)
      kill(init->workload == command ? -command : init->workload, SIGCONT);
    return;
  case MESSAGE_EXEC:
    start_exec(init, message, fds);
    return;
  case MESSAGE_EXEC_SIGNAL:
    exec_table_signal(init->execs, message->id, message->value);
    return;
  default:
    give_up(); /* not of this protocol */
  }
}

static void obey(struct init *init) {
  struct message message;
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(init->birth->channel, fds, &message, sizeof message);
  if (got != sizeof message)
    give_up(); /* the monitor died: the session ends here and now */
  obey_message(init, &message, fds);
  for (size_t i = 0; i < FD_PASS_LIMIT; i++) {
    if (fds[i] >= 0)
      close(fds[i]);
  }
}

static _Noreturn void supervise(struct init *init) {
  struct pollfd watched[] = {{.fd = init->birth->channel, .events = POLLIN},
                             {.fd = init->child_signals, .events = POLLIN}};
  for (;;) {
    if (poll(watched, 2, -1) < 0)
      continue;
    if (watched[1].revents)
      reap_signalled(init);
    if (watched[0].revents)
      obey(init);
  }
}

static int watch_children(struct init *init) {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  sigprocmask(SIG_BLOCK, &children, NULL);
  signal(SIGCHLD, SIG_DFL); /* an inherited SIG_IGN would reap behind our back */
  init->child_signals = signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK);
  if (init->child_signals < 0)
    return fail(init, STEP_FORK);
  reap(init); /* the maker, if it has ended already */
  return 0;
}

/* stdin, stdout and stderr belong to the workload: a pipe must see its end when it exits. But the
 * numbers stay taken, or the next descriptor we open would be somebody's stdin. */
static void let_go_of_stdio(const struct init_birth *birth) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++) {
    if (birth->descriptors[fd] > 2)
      close(birth->descriptors[fd]);
  }
  for (int fd = 0; null >= 0 && fd < 3; fd++)
    dup2(null, fd);
  if (null > 2)
    close(null);
}

/* The monitor sees the session through its first process, but not through us (see watch.c). An idle
 * session has no other. */
static void tell_started(struct init *init) {
  struct message message = {.kind = MESSAGE_STARTED, .value = init->report->command};
  bool idle = init->input->idle;
  _cleanup_close_ int proc = idle ? open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  _cleanup_close_ int files = idle ? open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
  const int fds[] = {proc, files};
  bool have_both = proc >= 0 && files >= 0;
  (void)fd_send(init->birth->channel, fds, have_both ? ARRAY_SIZE(fds) : 0, &message,
                sizeof message);
}

/* Who connects waits for the connector, which the monitor starts. */
static void hand_over_connects(struct init *init) {
  struct message message = {.kind = MESSAGE_CONNECTS};
  if (init->connects < 0)
    return;
  (void)fd_send(init->birth->channel, &init->connects, 1, &message, sizeof message);
  close(init->connects);
  init->connects = -1;
}

/* The end of a command says that it was started: one that ends at once wakes the monitor once. Two
 * ends are waited for, the maker's and the command's, and no more: a command that leaves us dead
 * processes all the time must not keep us from the monitor. */
static void await_quick_end(struct init *init) {
  struct pollfd watched[] = {{.fd = init->child_signals, .events = POLLIN},
                             {.fd = init->connects, .events = POLLIN}};
  for (int i = 0; i < 2; i++) {
    if (poll(watched, ARRAY_SIZE(watched), AT_ONCE_MS) <= 0 || watched[1].revents)
      return;
    reap_signalled(init); /* does not return if it was the command */
  }
}

_Noreturn void init_main(const struct init_birth *birth) {
  static struct exec_table execs; /* three pages, which most sessions never touch */
  const struct init_input *input = birth->input;
  struct init init = {
      .birth = birth, .input = input, .report = birth->report, .connects = -1, .execs = &execs};
  int terminal;
  if (prepare(&init) < 0 || watch_children(&init) < 0 || open_terminal(&init, &terminal) < 0)
    give_up();
  if (!input->idle && start_workload(&init, terminal) < 0)
    give_up();
  let_go_of_stdio(birth);
  /* What is weaker than usual is said before the command can print anything. */
  bool weaker =
      init.report->weaker_proc || init.report->weaker_sysfs || init.report->weaker_sockets;
  if (!input->tell_at_once && !weaker)
    await_quick_end(&init);
  hand_over_connects(&init);
  tell_started(&init);
  supervise(&init);
}
