/* PID 1 of the session; see init.h. Runs in a forked copy of the monitor, possibly of a program
 * with threads: no allocation, no stdio, raw system calls only. */
#include "engine/init.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file.h"
#include "engine/caps.h"
#include "engine/channel.h"
#include "engine/view.h"
#include "engine/workload.h"

struct init {
  const struct init_input *input;
  struct start_report *report;
  int child_signals; /* signalfd for SIGCHLD */
  pid_t workload;    /* the process we wait for: the command, or the leader of its terminal */
};

static _Noreturn void give_up(void) {
  _exit(125); /* the reason is in the report */
}

static int fail(struct init *init, enum step step) {
  return report_failure(init->report, step, -errno);
}

/* Waits for one message of the monitor. End of file: the monitor is gone, and so are we. */
static void await(struct init *init, enum message_kind kind) {
  struct message message;
  ssize_t got;
  do
    got = recv(init->input->channel, &message, sizeof message, 0);
  while (got < 0 && errno == EINTR);
  if (got != sizeof message || message.kind != kind)
    give_up();
}

static void tell(struct init *init, enum message_kind kind, int value) {
  struct message message = {.kind = kind, .value = value};
  ssize_t ignored = send(init->input->channel, &message, sizeof message, MSG_NOSIGNAL);
  (void)ignored; /* a dead monitor shows as end of file in the loop */
}

static int write_file(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  ssize_t written = write(fd, text, strlen(text));
  int saved = errno;
  close(fd);
  errno = saved;
  return written < 0 ? -1 : 0;
}

static int bring_loopback_up(void) {
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  int result = ioctl(fd, SIOCSIFFLAGS, &request);
  close(fd);
  return result;
}

/* Second wall behind seccomp: the session's user namespace can have no children. Where the outer
 * /proc/sys is read-only (a container) seccomp alone holds it. */
static void forbid_user_namespaces(struct init *init) {
  if (!init->input->plan->seccomp.containers)
    (void)write_file("/proc/sys/user/max_user_namespaces", "0");
}

static int enter_namespaces(struct init *init) {
  if (unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP) < 0)
    return fail(init, STEP_NAMESPACES);
  report_phase(init->report, PHASE_NAMESPACES);
  if (bring_loopback_up() < 0)
    return fail(init, STEP_LOOPBACK);
  const char *hostname = init->input->plan->hostname;
  if (sethostname(hostname, strlen(hostname)) < 0)
    return fail(init, STEP_HOSTNAME);
  return 0;
}

/* Children of ours are born with the shifted monotonic and boot clocks. */
static int shift_time(struct init *init) {
  const struct plan *plan = init->input->plan;
  if (!plan->has_time_offset)
    return 0;
  char text[128];
  snprintf(text, sizeof text, "monotonic %lld 0\nboottime %lld 0\n", plan->time_offset_seconds,
           plan->time_offset_seconds);
  if (unshare(CLONE_NEWTIME) < 0 || write_file("/proc/self/timens_offsets", text) < 0)
    return fail(init, STEP_TIME);
  return 0;
}

/* Opens a terminal of the session's own instance: the workload's end stays here, the other goes to
 * the monitor. */
static int open_terminal(struct init *init, int *ret_terminal) {
  *ret_terminal = -1;
  if (!init->input->has_terminal)
    return 0;
  int unlock = 0, master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0)
    return fail(init, STEP_TERMINAL);
  int slave = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0)
    return fail(init, STEP_TERMINAL);
  struct message message = {.kind = MESSAGE_TERMINAL};
  int result = fd_send(init->input->channel, master, &message, sizeof message);
  if (result < 0)
    return report_failure(init->report, STEP_TERMINAL, result);
  close(master);
  /* The monitor sets size and modes before anything can be written. */
  await(init, MESSAGE_GO);
  *ret_terminal = slave;
  return 0;
}

static int start_workload(struct init *init, int terminal) {
  struct workload_input input = {
      .plan = init->input->plan,
      .report = init->report,
      .terminal_fd = terminal,
      .original_mask = init->input->original_mask,
  };
  memcpy(input.terminal, init->input->terminal, sizeof input.terminal);
  init->workload = workload_spawn(&input);
  if (terminal >= 0)
    close(terminal);
  report_phase(init->report, PHASE_SPAWNED);
  return init->workload < 0 ? -1 : 0;
}

static _Noreturn void finish(struct init *init, int status) {
  report_phase(init->report, PHASE_EXITED);
  init->report->wait_status = status;
  init->report->workload_done = true;
  tell(init, MESSAGE_EXITED, status);
  _exit(0); /* the kernel ends everything that is left in the pid namespace */
}

static void reap(struct init *init) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0;) {
    if (pid != init->workload)
      continue; /* an orphan: reaping it was all there is to do */
    if (WIFSTOPPED(status))
      tell(init, MESSAGE_STOPPED, WSTOPSIG(status));
    else
      finish(init, status);
  }
}

static void obey(struct init *init) {
  struct message message;
  ssize_t got = recv(init->input->channel, &message, sizeof message, 0);
  if (got < 0 && errno == EINTR)
    return;
  if (got != sizeof message)
    give_up(); /* the monitor died: the session ends here and now */
  pid_t command = init->report->command;
  if (message.kind == MESSAGE_SIGNAL)
    kill(command, message.value);
  else if (message.kind == MESSAGE_SIGNAL_GROUP)
    kill(-command, message.value);
  else if (message.kind == MESSAGE_CONTINUE)
    kill(init->workload == command ? -command : init->workload, SIGCONT);
}

static _Noreturn void supervise(struct init *init) {
  struct pollfd watched[] = {{.fd = init->input->channel, .events = POLLIN},
                             {.fd = init->child_signals, .events = POLLIN}};
  for (;;) {
    if (poll(watched, 2, -1) < 0)
      continue;
    if (watched[1].revents) {
      struct signalfd_siginfo drained;
      ssize_t ignored = read(init->child_signals, &drained, sizeof drained);
      (void)ignored;
      reap(init);
    }
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
  return init->child_signals < 0 ? fail(init, STEP_FORK) : 0;
}

static int prepare(struct init *init) {
  if (setsid() < 0 || enter_namespaces(init) < 0)
    return -1;
  await(init, MESSAGE_IDENTITY_READY);
  if (shift_time(init) < 0) /* while our own files in /proc still belong to us */
    return -1;
  /* From here on nothing inside may read or trace us; before, the monitor needed our /proc. */
  prctl(PR_SET_DUMPABLE, 0);
  forbid_user_namespaces(init);
  await(init, MESSAGE_GO);
  if (view_build(init->input->plan, init->report) < 0)
    return -1;
  report_phase(init->report, PHASE_VIEW);
  return 0;
}

_Noreturn void init_main(const struct init_input *input) {
  struct init init = {.input = input, .report = input->report};
  int terminal;
  if (prepare(&init) < 0 || watch_children(&init) < 0 || open_terminal(&init, &terminal) < 0 ||
      start_workload(&init, terminal) < 0)
    give_up();
  /* Nothing we do from now on needs a capability; what could be stolen from us is none. */
  if (caps_drop_all() < 0)
    give_up();
  tell(&init, MESSAGE_STARTED, init.workload);
  /* stdin, stdout and stderr belong to the workload: a pipe must see its end when it exits. */
  close(0);
  close(1);
  close(2);
  supervise(&init);
}
