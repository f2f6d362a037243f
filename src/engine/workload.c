/* The untrusted command's last steps; see workload.h.
 *
 * With a terminal there is one process in between, the leader: it owns the terminal's session, and
 * the command is a process group of that session. Without it the command's group would be an
 * orphan in the sense of POSIX, and the kernel would not stop an orphan on Ctrl-Z. */
#include "engine/workload.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/caps.h"
#include "engine/landlock.h"
#include "engine/seccomp.h"

static int fail(const struct workload_input *input, enum step step) {
  return report_failure(input->report, step, -errno);
}

/* Everything that cannot be undone, outermost first; seccomp last because it forbids the rest. */
static int confine(const struct workload_input *input) {
  /* A session keyring of its own: the caller's may hold passwords and disk keys. Kernels without
   * keyrings have nothing to hide. */
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
    return fail(input, STEP_KEYRING);
  /* A core file would copy approved secrets into a writable folder, or reach a host handler. */
  struct rlimit no_core = {0, 0};
  if (setrlimit(RLIMIT_CORE, &no_core) < 0)
    return fail(input, STEP_RLIMIT);
  int result = caps_drop_all();
  if (result < 0)
    return report_failure(input->report, STEP_CAPABILITIES, result);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return fail(input, STEP_CAPABILITIES);
  const char *failed_path = NULL;
  result = landlock_apply(&input->plan->landlock, &failed_path);
  if (result < 0) {
    input->report->detail = failed_path;
    return report_failure(input->report, STEP_LANDLOCK, result);
  }
  result = seccomp_install(seccomp_program(input->plan->seccomp));
  return result < 0 ? report_failure(input->report, STEP_SECCOMP, result) : 0;
}

static int arrange_descriptors(const struct workload_input *input) {
  for (int fd = 0; fd < 3; fd++) {
    if (input->terminal[fd] && dup2(input->terminal_fd, fd) < 0)
      return fail(input, STEP_TERMINAL);
  }
  return syscall(SYS_close_range, 3, ~0U, 0) < 0 ? fail(input, STEP_EXEC) : 0;
}

/* A file without #! and without a magic number is a shell script, as every shell treats it. */
static void exec_as_script(const struct plan *plan, char *path) {
  plan->script_arguments.items[1] = path; /* our own copy of the plan: nobody else sees it */
  execve("/bin/sh", plan->script_arguments.items, plan->environment.items);
}

/* Tries each candidate; like a shell, "permission denied" is remembered over "not found". */
static void exec_command(const struct workload_input *input) {
  const struct plan *plan = input->plan;
  int remembered = ENOENT;
  STRV_FOREACH(path, &plan->executables) {
    execve(*path, plan->arguments.items, plan->environment.items);
    if (errno == ENOEXEC)
      exec_as_script(plan, *path);
    if (errno != ENOENT && errno != ENOTDIR)
      remembered = errno;
  }
  errno = remembered;
}

static _Noreturn void become_workload(const struct workload_input *input) {
  if (chdir(input->plan->working_folder) < 0)
    fail(input, STEP_WORKING_FOLDER);
  else if (confine(input) == 0 && arrange_descriptors(input) == 0) {
    sigprocmask(SIG_SETMASK, &input->original_mask, NULL);
    exec_command(input);
    fail(input, STEP_EXEC);
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
static _Noreturn void lead(pid_t command) {
  for (;;) {
    int status;
    if (waitpid(command, &status, WUNTRACED) < 0) {
      if (errno == EINTR)
        continue;
      _exit(125);
    }
    if (!WIFSTOPPED(status))
      end_like(status);
    raise(SIGSTOP);
    tcsetpgrp(0, command);
    kill(-command, SIGCONT);
  }
}

static void set_terminal_signals(sighandler_t disposition) {
  static const int signals[] = {SIGTTOU, SIGTTIN, SIGTSTP, SIGINT, SIGQUIT, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
    signal(signals[i], disposition);
}

/* In the leader: new session with the terminal, then the command as its foreground group. */
static _Noreturn void run_leader(const struct workload_input *input, int done) {
  if (setsid() < 0 || ioctl(input->terminal_fd, TIOCSCTTY, 0) < 0) {
    fail(input, STEP_TERMINAL);
    _exit(127);
  }
  set_terminal_signals(SIG_IGN);
  pid_t command = fork();
  if (command < 0) {
    fail(input, STEP_FORK);
    _exit(127);
  }
  if (command == 0) {
    setpgid(0, 0);
    tcsetpgrp(input->terminal_fd, getpid());
    set_terminal_signals(SIG_DFL);
    become_workload(input);
  }
  setpgid(command, command);
  input->report->command = command;
  /* Descriptor 0 becomes the terminal for tcsetpgrp above; everything else is the command's. */
  dup2(input->terminal_fd, 0);
  close(done);
  syscall(SYS_close_range, 1, ~0U, 0);
  caps_drop_all();
  lead(command);
}

/* Waits until every copy of the pipe's other end is closed: by the exec, or by the failure. */
static void await_exec(int done[2]) {
  char byte;
  close(done[1]);
  while (read(done[0], &byte, 1) < 0 && errno == EINTR)
    ;
  close(done[0]);
}

static pid_t spawn_with_leader(const struct workload_input *input) {
  int done[2];
  if (pipe2(done, O_CLOEXEC) < 0)
    return fail(input, STEP_FORK);
  pid_t leader = fork();
  if (leader < 0)
    return fail(input, STEP_FORK);
  if (leader == 0) {
    close(done[0]);
    run_leader(input, done[1]);
  }
  await_exec(done);
  return leader;
}

/* vfork: nothing of init's memory has to be copied, and we go on exactly when the exec is done. */
static pid_t spawn_directly(const struct workload_input *input) {
  pid_t pid = vfork();
  if (pid < 0)
    return fail(input, STEP_FORK);
  if (pid == 0) {
    setsid();
    become_workload(input);
  }
  input->report->command = pid;
  return pid;
}

pid_t workload_spawn(const struct workload_input *input) {
  pid_t pid = input->terminal_fd >= 0 ? spawn_with_leader(input) : spawn_directly(input);
  return input->report->failed != STEP_NONE ? -1 : pid;
}
