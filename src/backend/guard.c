/* The guard; see guard.h. It decides nothing: it starts the tool, passes signals on, waits, kills
 * what is left, and runs the tool's own clean-up. */
#include "backend/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "backend/processes.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/confine.h"
#include "overlay/remove.h"

enum { EARLY_PAUSE_MS = 20, EARLY_ROUNDS = 100, RUNNER_PAUSE_MS = 200 };
#define PROBLEM_SIZE    64
#define HIGH_DESCRIPTOR 200 /* above every number that a tool is told */

struct guard {
  const struct guard_input *input;
  pid_t pid, tool;
  int children; /* signalfd for SIGCHLD */
  bool tool_ended;
  struct guard_message early; /* a signal that came before the command; signal 0: none */
  int early_rounds;
  bool abandoned; /* the start was given up; the status is settled */
  struct guard_report report;
};

/* ---- in the tool's process ---- */

struct problem {
  int errnum;
  char doing[PROBLEM_SIZE];
};

static _Noreturn void give_up(int pipe, const char *doing) {
  struct problem problem = {.errnum = errno};
  snprintf(problem.doing, sizeof problem.doing, "%s", doing);
  ssize_t ignored = write(pipe, &problem, sizeof problem);
  (void)ignored;
  _exit(127);
}

static int enter_group(const struct limit_group *limits) {
  int unified = limit_group_clone_fd(limits);
  if (unified < 0)
    return limit_group_enter(limits);
  _cleanup_close_ int procs = openat(unified, "cgroup.procs", O_WRONLY | O_CLOEXEC);
  return procs < 0 || write(procs, "0", 1) < 0 ? -errno : 0;
}

static void set_terminal(const struct guard_input *input, int problems) {
  setsid();
  if (input->terminal >= 0 && ioctl(input->terminal, TIOCSCTTY, 0) < 0)
    give_up(problems, "giving it a terminal");
  for (int fd = 0; fd < 3; fd++) {
    if (input->descriptors[fd] >= 0 && dup2(input->descriptors[fd], fd) < 0)
      give_up(problems, "arranging its descriptors");
  }
}

static int memory_file(const struct wrapped_file *file) {
  _cleanup_close_ int fd = memfd_create("sandbox", MFD_CLOEXEC);
  if (fd < 0 || file_write_all(fd, file->content, file->size) < 0 || lseek(fd, 0, SEEK_SET) < 0)
    return -1;
  return fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
}

/* Everything of ours is closed by the exec; only what the tool was told about survives it. */
static void place_descriptors(const struct guard_input *input, int problems) {
  syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  int status = input->status < 0 ? -1 : fcntl(input->status, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
  if (status >= 0 && dup2(status, input->wrapped->status_fd) < 0)
    give_up(problems, "arranging its descriptors");
  for (size_t i = 0; i < input->wrapped->file_count; i++) {
    const struct wrapped_file *file = &input->wrapped->files[i];
    if (file->fd < 0)
      continue;
    int memory = memory_file(file);
    if (memory < 0 || dup2(memory, file->fd) < 0)
      give_up(problems, "arranging its descriptors");
  }
}

static void set_rlimits(const struct guard_input *input, int problems) {
  int result = confine_forbid_core_files();
  if (result < 0) {
    errno = -result;
    give_up(problems, "forbidding core files");
  }
  result = limit_rlimits_apply(&input->limits->rlimits);
  if (result < 0) {
    errno = -result;
    give_up(problems, "setting its limits");
  }
}

/* Lost by an exec of a setuid program; then the runner finds it, see processes_kill_orphans. */
static void die_with_guard(const struct guard *guard) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guard->pid)
    _exit(127);
}

/* The guard cannot take it: it waits for our exec. If the runner dies, its end of the channel is
 * closed, unless a thread of the same program started a guard at the same moment, which has it,
 * too, and waits like ours. */
static int await_prepared(const struct guard_input *input) {
  struct guard_message message;
  struct pollfd watched = {.fd = input->channel, .events = POLLIN};
  while (poll(&watched, 1, RUNNER_PAUSE_MS) <= 0) {
    if (kill(input->runner, 0) < 0 && errno == ESRCH)
      return -ECANCELED;
  }
  ssize_t got = recv(input->channel, &message, sizeof message, 0);
  if (got != sizeof message || message.request != GUARD_PREPARED)
    return -ECANCELED; /* the runner is gone */
  return message.signal;
}

static void enter(const struct guard_input *input, int problems) {
  const struct backend_entrance *entrance = input->backend->entrance;
  const char *doing = "confining it";
  int result = entrance->enter(input->wrapped, &doing);
  if (result == 0) {
    doing = "preparing its confinement";
    result = await_prepared(input);
  }
  if (result == 0)
    result = entrance->finish(input->wrapped, input->begun, &doing);
  errno = -result;
  if (result < 0)
    give_up(problems, doing);
}

static _Noreturn void become_tool(const struct guard *guard, int problems) {
  const struct guard_input *input = guard->input;
  const struct wrapped *wrapped = input->wrapped;
  char **argv = wrapped->argv.items;
  die_with_guard(guard);
  if (enter_group(input->limits) < 0)
    give_up(problems, "entering its cgroup");
  set_terminal(input, problems);
  int high = fcntl(problems, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
  sigprocmask(SIG_SETMASK, &input->mask, NULL);
  if (wrapped->shielded) {
    signal(SIGINT, SIG_IGN);
    signal(SIGQUIT, SIG_IGN);
  }
  environ = wrapped->environment.items ? wrapped->environment.items : (char *[]){NULL};
  if (input->backend->entrance) {
    syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
    set_rlimits(input, high);
    enter(input, high);
    argv += wrapped->command_index;
  } else {
    place_descriptors(input, high);
    set_rlimits(input, high); /* last: our own high numbers would be over the limit */
  }
  execvp(argv[0], argv);
  give_up(high, "");
}

/* ---- the guard itself ---- */

/* Returns when the exec has succeeded (the pipe is closed by it) or failed. */
static bool await_exec(struct guard *guard, int reader) {
  struct problem problem;
  ssize_t got;
  while ((got = read(reader, &problem, sizeof problem)) < 0 && errno == EINTR)
    ;
  if (got != sizeof problem)
    return true;
  guard->report.errnum = problem.errnum;
  memcpy(guard->report.doing, problem.doing, sizeof guard->report.doing);
  return false;
}

/* vfork: nothing of ours has to be copied, and until its exec there is nothing to do here. */
static bool start_tool(struct guard *guard) {
  int ends[2];
  pid_t tool = pipe2(ends, O_CLOEXEC) < 0 ? -1 : vfork();
  if (tool < 0) {
    guard->report.errnum = errno;
    snprintf(guard->report.doing, sizeof guard->report.doing, "starting a process");
    return false;
  }
  if (tool == 0)
    become_tool(guard, ends[1]);
  guard->tool = tool;
  close(ends[1]);
  _cleanup_close_ int reader = ends[0];
  return await_exec(guard, reader);
}

/* Nothing of the workload's may stay open here, or whoever reads its output waits for us. */
static void let_go(const struct guard *guard) {
  const int kept[] = {guard->input->channel, guard->children};
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; null >= 0 && fd < 3; fd++)
    dup2(null, fd);
  fd_close_others(kept, ARRAY_SIZE(kept));
}

static void reap(struct guard *guard) {
  struct signalfd_siginfo info;
  while (read(guard->children, &info, sizeof info) == sizeof info)
    ;
  for (;;) {
    int status;
    struct rusage used;
    pid_t pid = wait4(-1, &status, WNOHANG, &used);
    if (pid <= 0)
      return;
    if (pid == guard->tool && !guard->abandoned) {
      guard->tool_ended = true;
      guard->report.wait_status = status;
      guard->report.used = used;
    }
  }
}

/* Kills whatever is below us. Each round reaches at least one generation, since orphans become our
 * own children; a bomb is held by its cgroup, or ends at the limit of processes. */
static void kill_everything(struct guard *guard) {
  for (int round = 0; round < 2000; round++) {
    reap(guard);
    if (waitid(P_ALL, 0, &(siginfo_t){0}, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD)
      return;
    processes_signal_below(getpid(), SIGKILL);
    struct timespec pause = {.tv_nsec = 1000000};
    nanosleep(&pause, NULL);
  }
}

/* The command may not be there yet: then the signal waits for it, for a while. */
static void pass_signal(struct guard *guard, const struct guard_message *message) {
  bool inside = guard->input->wrapped->signals_inside;
  pid_t target = inside ? processes_first_inside(guard->tool) : guard->tool;
  if (target == 0) {
    if (!guard->early.signal)
      guard->early_rounds = EARLY_ROUNDS;
    guard->early = *message;
    return;
  }
  guard->early = (struct guard_message){0};
  if (message->request == GUARD_SIGNAL_ALL && guard->input->wrapped->signals_inside)
    processes_signal_inside(guard->tool, message->signal);
  else if (message->request == GUARD_SIGNAL_ALL && guard->input->backend->entrance)
    processes_signal_below(getpid(), message->signal);
  else if (message->request == GUARD_SIGNAL_GROUP && getpgid(target) == target)
    kill(-target, message->signal);
  else
    kill(target, message->signal);
}

/* False when the runner is gone or wants the end. */
static bool obey(struct guard *guard) {
  struct guard_message message;
  ssize_t got = recv(guard->input->channel, &message, sizeof message, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return true;
  if (got != sizeof message || message.request == GUARD_END)
    return false;
  pass_signal(guard, &message);
  return true;
}

/* False when the command has not appeared in time: whoever sent it wants the end. */
static bool retry_early_signal(struct guard *guard) {
  struct guard_message message = guard->early;
  if (!message.signal)
    return true;
  pass_signal(guard, &message);
  if (guard->early.signal && guard->early_rounds-- == 0) {
    guard->report.wait_status = message.signal; /* as if it had died of it */
    guard->abandoned = true;
    return false;
  }
  return true;
}

static void supervise(struct guard *guard) {
  struct pollfd watched[] = {{.fd = guard->input->channel, .events = POLLIN},
                             {.fd = guard->children, .events = POLLIN}};
  while (!guard->tool_ended) {
    if (poll(watched, ARRAY_SIZE(watched), guard->early.signal ? EARLY_PAUSE_MS : -1) < 0)
      continue;
    if (watched[1].revents)
      reap(guard);
    if (!guard->tool_ended && !retry_early_signal(guard))
      return;
    if (watched[0].revents && !guard->tool_ended && !obey(guard))
      return;
  }
}

void guard_remove_scratch(const char *path) {
  _cleanup_free_ char *parent = path_parent(path);
  _cleanup_close_ int folder = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder >= 0)
    (void)tree_remove(folder, path_base(path), NULL);
}

static void run_end_command(const struct guard *guard) {
  const struct strv *argv = &guard->input->wrapped->end_argv;
  if (argv->count == 0)
    return;
  pid_t pid = fork();
  if (pid == 0) {
    environ = guard->input->wrapped->environment.items;
    execvp(argv->items[0], argv->items);
    _exit(127);
  }
  (void)child_wait(pid);
}

static _Noreturn void guard_main(const struct guard_input *input) {
  struct guard guard = {.input = input, .pid = getpid()};
  sigset_t set;
  close(input->runner_channel);
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, NULL);
  guard.children = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  bool started = start_tool(&guard);
  let_go(&guard);
  if (started)
    supervise(&guard);
  kill_everything(&guard);
  run_end_command(&guard);
  (void)send(input->channel, &guard.report, sizeof guard.report, MSG_NOSIGNAL);
  if (input->scratch)
    guard_remove_scratch(input->scratch); /* while the runner wakes up; it waits for our end */
  _exit(0);
}

pid_t guard_start(const struct guard_input *input) {
  pid_t pid = fork();
  if (pid == 0)
    guard_main(input);
  return pid < 0 ? -errno : pid;
}
