/* What becomes of signals that reach the monitor; see signals.h. */
#include "session/signals.h"

#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "session/monitor.h"

#define EARLY_SIGNAL_NS (1000ull * 1000 * 1000)

/* What reaches us goes on to the workload: terminal signals to its whole group, as a terminal
 * would do it, the rest to its first process. */
static const struct {
  int signal;
  enum message_kind kind;
} forwarded[] = {
    {SIGINT, MESSAGE_SIGNAL_GROUP}, {SIGQUIT, MESSAGE_SIGNAL_GROUP}, {SIGTERM, MESSAGE_SIGNAL},
    {SIGHUP, MESSAGE_SIGNAL},       {SIGUSR1, MESSAGE_SIGNAL},       {SIGUSR2, MESSAGE_SIGNAL},
};

int signals_take(struct monitor *monitor, struct sb_error *error) {
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

void signals_give_back(struct monitor *monitor) {
  close(monitor->signals);
  forget_failed_writes();
  sigprocmask(SIG_SETMASK, &monitor->original_mask, NULL);
}

static volatile sig_atomic_t came_back;

static void note_return(int signal) {
  (void)signal;
  came_back = 1;
}

/* Whoever was brought back before he came to it must not stop: nobody would bring him back again. A
 * stop signal makes the kernel forget a SIGCONT that waits to be read, so from here on it does not
 * wait; and one that comes later makes it forget the stop. */
static void stop(pid_t stopped) {
  sigset_t stop, back;
  struct sigaction noted = {.sa_handler = note_return}, usual;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  sigemptyset(&back);
  sigaddset(&back, SIGCONT);
  sigaction(SIGCONT, &noted, &usual);
  sigprocmask(SIG_UNBLOCK, &back, NULL);
  kill(stopped, SIGTSTP);
  if (came_back && stopped)
    sigtimedwait(&stop, NULL, &(struct timespec){0});
  sigprocmask(SIG_UNBLOCK, &stop, NULL); /* we stop here */
  sigprocmask(SIG_BLOCK, &stop, NULL);
  sigprocmask(SIG_BLOCK, &back, NULL);
  sigaction(SIGCONT, &usual, NULL);
}

/* Stops our own job as Ctrl-Z does, until the user brings it back with fg or bg. Without a terminal
 * nobody pressed it: a workload that stops itself must not stop its own time limit, nor the program
 * that started us and shares our process group. */
void signals_stop_with_workload(struct monitor *monitor) {
  if (!monitor->terminal.any && !monitor->stop_asked)
    return;
  /* Who was asked to stop is not the one to stop others: another session of the same job has done
   * so, and stopping it again after the user has brought it back would be the opposite. */
  pid_t stopped = monitor->stop_asked ? getpid() : 0;
  came_back = monitor->stop_asked && monitor->continued;
  monitor->stop_asked = false;
  supervision_lend(monitor); /* or all others at this terminal would wait for it */
  terminal_restore(&monitor->terminal);
  stop(stopped);
  terminal_set_raw(&monitor->terminal);
  terminal_resize(&monitor->terminal);
  engine_send(&monitor->engine, MESSAGE_CONTINUE, 0);
}

void signals_abandon(struct monitor *monitor, int signal) {
  monitor->over = true;
  monitor->abandoned = signal;
}

/* The workload may run already and only the news of it be on its way, so the first signal waits for
 * it, for a while. A second one means it. */
static void keep_early_signal(struct monitor *monitor, int signal) {
  if (monitor->early)
    signals_abandon(monitor, signal);
  monitor->early = signal;
  monitor->early_until_ns = monotonic_ns() + EARLY_SIGNAL_NS;
}

/* SIGSTOP, because the workload's group may be an orphan, which ignores SIGTSTP; init tells us that
 * it stopped, and then we stop, too. */
static void pass_stop(struct monitor *monitor) {
  monitor->stop_asked = true;
  monitor->continued = false;
  engine_send(&monitor->engine, MESSAGE_SIGNAL_GROUP, SIGSTOP);
}

/* Perhaps nothing is ever told to have stopped: whoever waits for a child that he shares his memory
 * with (vfork) cannot stop, and the child has. */
static void pass_return(struct monitor *monitor) {
  monitor->continued = true;
  if (monitor->stop_asked)
    engine_send(&monitor->engine, MESSAGE_CONTINUE, 0);
}

void signals_handle(struct monitor *monitor, int signal) {
  bool ends = signal != SIGWINCH && signal != SIGCONT && signal != SIGTSTP;
  /* Also before the news of the start is here: nobody sends this one again. */
  if (signal == SIGWINCH) {
    terminal_resize(&monitor->terminal);
    supervision_redraw(monitor);
    return;
  }
  if (!monitor->result->started || monitor->request->idle) {
    if (ends && monitor->request->idle)
      signals_abandon(monitor, signal);
    else if (ends)
      keep_early_signal(monitor, signal);
    return;
  }
  for (size_t i = 0; i < ARRAY_SIZE(forwarded); i++) {
    if (forwarded[i].signal == signal)
      engine_send(&monitor->engine, forwarded[i].kind, signal);
  }
  if (signal == SIGTSTP)
    pass_stop(monitor);
  else if (signal == SIGCONT)
    pass_return(monitor);
}

void signals_read(struct monitor *monitor) {
  struct signalfd_siginfo info;
  while (read(monitor->signals, &info, sizeof info) == sizeof info)
    signals_handle(monitor, (int)info.ssi_signo);
}
