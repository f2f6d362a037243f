/* sandbox-init: the first process of a container. The kernel gives pid 1 no default actions of
 * signals, so a command that is pid 1 itself does not end by SIGTERM; and the usual inits answer a
 * command that does not exist with 1. Words: [--] COMMAND ARGUMENT... */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/exit-code.h"

static _Noreturn void become_command(char **words, const sigset_t *mask) {
  /* In the foreground of its terminal, if it has one: Ctrl-C is for the command. */
  setpgid(0, 0);
  if (isatty(STDIN_FILENO))
    tcsetpgrp(STDIN_FILENO, getpid()); /* SIGTTOU is still blocked */
  sigprocmask(SIG_SETMASK, mask, NULL);
  execvp(words[0], words);
  int errnum = errno;
  dprintf(STDERR_FILENO, "sandbox: cannot execute '%s': %s\n", words[0], strerror(errnum));
  _exit(errnum == ENOENT || errnum == ENOTDIR ? EXIT_CODE_NOT_FOUND : EXIT_CODE_CANNOT_EXECUTE);
}

/* Reaps whatever has ended; true if the command is among it. */
static bool reap(pid_t command, int *ret_status) {
  int status;
  bool ended = false;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != command)
      continue;
    ended = true;
    *ret_status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  }
  return ended;
}

int main(int count, char **words) {
  int first = count > 1 && strcmp(words[1], "--") == 0 ? 2 : 1, status = EXIT_CODE_FAILURE;
  sigset_t all, mask;
  if (first >= count)
    return EXIT_CODE_FAILURE;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &mask);
  pid_t command = fork();
  if (command == 0)
    become_command(words + first, &mask);
  if (command < 0)
    return EXIT_CODE_FAILURE;
  for (siginfo_t information;;) {
    int number = sigwaitinfo(&all, &information);
    if (number == SIGCHLD && reap(command, &status))
      return status; /* with pid 1 the kernel ends all that is left */
    if (number > 0 && number != SIGCHLD)
      kill(command, number);
  }
}
