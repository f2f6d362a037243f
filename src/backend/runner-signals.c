/* Signals that the runner gets are meant for the command: which go on to it, how, and when. They
 * are read, never handled, so that no call of ours is interrupted. */
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "backend/runner-private.h"
#include "core/cleanup.h"

#define EARLY_SIGNAL_NS (3ull * 1000 * 1000 * 1000)

static const struct {
  int signal;
  enum guard_request request;
} forwarded[] = {
    {SIGINT, GUARD_SIGNAL_GROUP}, {SIGQUIT, GUARD_SIGNAL_GROUP}, {SIGTERM, GUARD_SIGNAL},
    {SIGHUP, GUARD_SIGNAL},       {SIGUSR1, GUARD_SIGNAL},       {SIGUSR2, GUARD_SIGNAL},
};

int runner_take_signals(struct runner *runner, struct sb_error *error) {
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

void runner_give_signals_back(struct runner *runner) {
  sigset_t pipes;
  close(runner->signals);
  sigemptyset(&pipes);
  sigaddset(&pipes, SIGPIPE);
  while (sigtimedwait(&pipes, NULL, &(struct timespec){0}) > 0)
    ;
  sigprocmask(SIG_SETMASK, &runner->original_mask, NULL);
}

/* ---- passing on ---- */

static void forward(struct runner *runner, int number) {
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
    if (forwarded[i].signal != number)
      continue;
    runner_ask(runner, forwarded[i].request, number);
    runner->passed_on = number;
  }
}

/* While the tool is busy with itself, a signal would hit its helpers: it waits for the command. */
static bool is_starting(const struct runner *runner) {
  return runner->wrapped.started_mark &&
         !strstr(text_string(&runner->status_text), runner->wrapped.started_mark);
}

void runner_read_signals(struct runner *runner) {
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

void runner_check_early_signal(struct runner *runner) {
  if (!runner->early || (is_starting(runner) && monotonic_ns() < runner->early_until_ns))
    return;
  if (is_starting(runner)) {
    runner->abandoned = runner->early;
    runner_ask(runner, GUARD_END, 0);
  } else {
    forward(runner, runner->early);
  }
  runner->early = 0;
}
