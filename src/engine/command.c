/* Starts a command inside the session; see command.h.
 *
 * With a terminal there is one process in between, the leader: it owns the terminal's session, and
 * the command is a process group of that session. Without it the command's group would be an
 * orphan in the sense of POSIX, and the kernel would not stop an orphan on Ctrl-Z. */
#include "engine/command.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* How often to look whether the command has stopped before it has begun. */
#define STOPPED_MS 50

static int fail(struct command_failure *failure, enum step step) {
  failure->errnum = errno;
  failure->step = step;
  return -1;
}

/* The memory devices have the major number 1. */
static const char *memory_device(int fd) {
  static const char *const names[] = {[3] = "/dev/null",
                                      [5] = "/dev/zero",
                                      [7] = "/dev/full",
                                      [8] = "/dev/random",
                                      [9] = "/dev/urandom"};
  struct stat status;
  if (fstat(fd, &status) < 0 || !S_ISCHR(status.st_mode) || major(status.st_rdev) != 1 ||
      minor(status.st_rdev) >= sizeof names / sizeof names[0])
    return NULL;
  return names[minor(status.st_rdev)];
}

/* Most programs start us with the host's /dev/null as stdin. It was opened where it is not
 * read-only, and fchmod(0) by root's uid would change it for everybody: take the session's. */
static int replace_device(int fd) {
  const char *path = memory_device(fd);
  int flags = path ? fcntl(fd, F_GETFL) : -1;
  if (flags < 0 || (fcntl(fd, F_GETFD) & FD_CLOEXEC)) /* closed for the command */
    return 0;
  int own = open(path, flags & (O_ACCMODE | O_NONBLOCK | O_APPEND));
  if (own < 0 || own == fd)
    return own < 0 ? -1 : 0;
  return dup2(own, fd); /* the other one is closed with the rest */
}

static int arrange_descriptors(const struct command *command, struct command_failure *failure) {
  for (int fd = 0; fd < 3; fd++) {
    if (command->descriptors[fd] >= 0 && dup2(command->descriptors[fd], fd) < 0)
      return fail(failure, STEP_TERMINAL);
  }
  for (int fd = 0; fd < 3; fd++) {
    if (replace_device(fd) < 0)
      return fail(failure, STEP_TERMINAL);
  }
  /* By the exec, not before it: init waits for the end of a pipe among them to know its result. */
  return syscall(SYS_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC) < 0 ? fail(failure, STEP_EXEC) : 0;
}

/* Says the path aloud before it is used: our memory is closed, and the gate would not know it. */
static const char *announce(const struct command *command, const char *path) {
  struct announced_path *announced = command->announced;
  if (!announced)
    return path;
  announced->address = 0;
  snprintf(announced->path, sizeof announced->path, "%s%s%s", path[0] == '/' ? "" : command->folder,
           path[0] == '/' ? "" : "/", path);
  announced->address = (uintptr_t)path;
  return path;
}

/* A file without #! and without a magic number is a shell script, as every shell treats it. */
static void exec_as_script(const struct command *command, char *path) {
  command->script_arguments[1] = path;
  execve("/bin/sh", command->script_arguments, command->environment);
}

/* Tries each candidate; like a shell, "permission denied" is remembered over "not found". */
static void exec_command(const struct command *command) {
  int remembered = ENOENT;
  for (char **path = command->executables; *path; path++) {
    execve(announce(command, *path), command->arguments, command->environment);
    if (errno == ENOEXEC)
      exec_as_script(command, *path);
    if (errno != ENOENT && errno != ENOTDIR)
      remembered = errno;
  }
  errno = remembered;
}

static int set_rlimits(const struct command *command, struct command_failure *failure) {
  int result = command->rlimits ? limit_rlimits_apply(command->rlimits) : 0;
  if (result == 0)
    return 0;
  errno = -result;
  return fail(failure, STEP_RLIMIT);
}

static _Noreturn void become(const struct command *command, struct command_failure *failure) {
  if (chdir(announce(command, command->folder)) < 0)
    fail(failure, STEP_WORKING_FOLDER);
  else if (arrange_descriptors(command, failure) == 0 && set_rlimits(command, failure) == 0) {
    sigprocmask(SIG_SETMASK, &command->mask, NULL);
    exec_command(command);
    fail(failure, STEP_EXEC);
  }
  _exit(127);
}

/* Ends as the command ended, so that whoever waits for the leader sees the command's status. */
static _Noreturn void end_like(int status) {
  if (WIFSIGNALED(status)) {
    sigset_t all;
    sigfillset(&all);
    signal(WTERMSIG(status), SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &all, NULL);
    raise(WTERMSIG(status));
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

/* Stands between init and the command: stops when it stops (so that init notices), and on
 * SIGCONT gives it the terminal again and continues it. */
static _Noreturn void lead(pid_t pid) {
  for (;;) {
    int status;
    if (waitpid(pid, &status, WUNTRACED) < 0) {
      if (errno == EINTR)
        continue;
      _exit(125);
    }
    if (!WIFSTOPPED(status))
      end_like(status);
    raise(SIGSTOP);
    tcsetpgrp(0, pid);
    kill(-pid, SIGCONT);
  }
}

static void set_terminal_signals(sighandler_t disposition) {
  static const int signals[] = {SIGTTOU, SIGTTIN, SIGTSTP, SIGINT, SIGQUIT, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
    signal(signals[i], disposition);
}

/* In the leader: new session with the terminal, then the command as its foreground group. */
static _Noreturn void run_leader(const struct command *command, struct command_failure *failure,
                                 volatile pid_t *ret_command) {
  if (setsid() < 0 || ioctl(command->terminal, TIOCSCTTY, 0) < 0) {
    fail(failure, STEP_TERMINAL);
    _exit(127);
  }
  set_terminal_signals(SIG_IGN);
  pid_t pid = fork();
  if (pid < 0) {
    fail(failure, STEP_FORK);
    _exit(127);
  }
  if (pid == 0) {
    setpgid(0, 0);
    tcsetpgrp(command->terminal, getpid());
    set_terminal_signals(SIG_DFL);
    become(command, failure);
  }
  setpgid(pid, pid);
  *ret_command = pid;
  /* Descriptor 0 becomes the terminal, for tcsetpgrp; everything else is the command's. */
  dup2(command->terminal, 0);
  syscall(SYS_close_range, 1, ~0U, 0);
  lead(pid);
}

/* Waits until every copy of the pipe's other end is closed: by the exec, or by the failure. The
 * terminal's keys reach the command before that already. If one stops it, nobody would be told, nor
 * could have it go on, for we wait here: so it goes on at once. */
static void await_exec(int done[2], pid_t leader) {
  struct pollfd end = {.fd = done[0], .events = POLLIN};
  close(done[1]);
  while (poll(&end, 1, STOPPED_MS) <= 0) {
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)leader, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid == leader)
      kill(leader, SIGCONT);
  }
  close(done[0]);
}

static pid_t spawn_with_leader(const struct command *command, struct command_failure *failure,
                               volatile pid_t *ret_command) {
  int done[2];
  if (pipe2(done, O_CLOEXEC) < 0)
    return fail(failure, STEP_FORK);
  pid_t leader = fork();
  if (leader < 0) {
    close(done[0]);
    close(done[1]);
    return fail(failure, STEP_FORK);
  }
  if (leader == 0)
    run_leader(command, failure, ret_command);
  await_exec(done, leader);
  return leader;
}

/* vfork: nothing of init's memory has to be copied, and we go on exactly when the exec is done. */
static pid_t spawn_directly(const struct command *command, struct command_failure *failure,
                            volatile pid_t *ret_command) {
  pid_t pid = vfork();
  if (pid < 0)
    return fail(failure, STEP_FORK);
  if (pid == 0) {
    setsid();
    become(command, failure);
  }
  *ret_command = pid;
  return pid;
}

pid_t command_spawn(const struct command *command, struct command_failure *failure,
                    volatile pid_t *ret_command) {
  failure->step = STEP_NONE;
  pid_t pid = command->terminal >= 0 ? spawn_with_leader(command, failure, ret_command)
                                     : spawn_directly(command, failure, ret_command);
  if (pid > 0 && failure->step != STEP_NONE) {
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
      ;
    return -1;
  }
  return pid;
}
