/* What the session's init tells the monitor; see messages.h. */
#include "session/messages.h"

#include <errno.h>
#include <linux/nsfs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "session/limiting.h"
#include "session/monitor.h"
#include "session/publishing.h"
#include "session/signals.h"

static void warn(struct monitor *monitor, const char *text) {
  monitor_notify(monitor, &(struct session_notice){.event = SESSION_WARNING, .text = text});
}

static void say_all(struct monitor *monitor) {
  STRV_FOREACH (sentence, &monitor->unsaid)
    warn(monitor, *sentence);
  strv_clear(&monitor->unsaid);
}

/* It names what the workload likes, as often as it likes: a question could be pushed off the
 * screen, and its own lines put there. */
void monitor_warn(struct monitor *monitor, const char *text) {
  strv_add(&monitor->unsaid, text);
  monitor_speak(monitor);
}

void monitor_speak(struct monitor *monitor) {
  if (monitor->unsaid.count == 0 || !terminal_begin_saying(&monitor->terminal))
    return;
  say_all(monitor);
  terminal_end_saying(&monitor->terminal);
}

void monitor_speak_last(struct monitor *monitor, struct terminal_patience *patience) {
  if (monitor->unsaid.count > 0 && terminal_begin_saying_last(&monitor->terminal, patience))
    say_all(monitor);
  terminal_end_saying(&monitor->terminal);
  strv_clear(&monitor->unsaid);
}

/* Says aloud what the kernel refused, before the workload can print anything. */
static void announce(struct monitor *monitor) {
  const struct start_report *report = monitor->request->report;
  if (monitor->announced)
    return;
  monitor->announced = true;
  if (report->weaker_proc)
    warn(monitor, "weaker nested mode: this container does not allow a /proc of our own; process "
                  "names outside are visible, Landlock keeps them closed");
  if (report->weaker_sysfs)
    warn(monitor, "weaker nested mode: /sys is the container's, read-only");
  if (report->weaker_sockets)
    warn(
        monitor,
        "weaker mode: connect(2) cannot be watched here (a sandbox around this one, ptrace "
        "forbidden, or Linux before 5.6); sockets of programs outside that start later can be reached");
}

static void on_terminal(struct monitor *monitor, int master) {
  announce(monitor);
  terminal_connect(&monitor->terminal, master);
  engine_send(&monitor->engine, MESSAGE_GO, 0);
}

static void on_started(struct monitor *monitor, pid_t command, int *folders_inside) {
  announce(monitor);
  monitor->result->started = true;
  limiting_start(monitor, folders_inside);
  if (monitor->request->ready_fd >= 0) {
    (void)file_write_all(monitor->request->ready_fd, "\n", 1);
    close(monitor->request->ready_fd);
  }
  log_write(monitor->request->log, LOG_INFO, "started",
            (double)(monotonic_ns() - monitor->started_ns) / 1e3,
            json_pack("{s:i, s:i}", "init", (int)monitor->engine.init, "command", (int)command));
  monitor_notify(monitor, &(struct session_notice){.event = SESSION_STARTED,
                                                   .init = monitor->engine.init,
                                                   .command = command});
  if (monitor->early)
    signals_handle(monitor, monitor->early);
}

/* The kernel drops what there is no room for in our table of descriptors. */
static int fail_gate(struct sb_error *error, int errnum) {
  sb_fail(error, SB_CODE_SYSTEM, errnum, "taking over the session's gate");
  return sb_hint(error, "allow more open files: ulimit -n 256");
}

static void on_gate(struct monitor *monitor, int *fds) {
  struct gate_config config = {
      .plan = monitor->request->plan,
      .policy = monitor->request->policy,
      .context = &monitor->request->host->policy,
      .decisions = monitor->supervision.decisions,
      .trigger = fds[0],
      .mount_ns = fds[1],
      .user_ns = ioctl(fds[1], NS_GET_USERNS),
      .pid_ns = -1,
      .whole = fds[3],
      .root = -1,
      .announced = &monitor->request->report->announced,
      .connecting = &monitor->request->report->connecting,
      .services = {.prepare = upkeep_prepare,
                   .deny = upkeep_deny,
                   .granted = upkeep_granted,
                   .taken = upkeep_taken,
                   .held = upkeep_held,
                   .connect = connects_take,
                   .ended = supervision_gate_ended,
                   .context = monitor},
  };
  int missing = fds[1] < 0 ? EMFILE : errno;
  *(config.plan->gate == GATE_NOTIFY ? &config.root : &config.pid_ns) = fds[2];
  memset(fds, -1, FD_PASS_LIMIT * sizeof *fds);
  /* Without it nothing of the session could go on; without its namespaces nothing could be granted.
   */
  struct sb_error *error = &monitor->gate_failure;
  int result =
      config.user_ns < 0 ? fail_gate(error, missing) : gate_new(&config, &monitor->gate, error);
  monitor->over |= result < 0;
}

static void handle_message(struct monitor *monitor, const struct message *message, int *fds) {
  switch ((enum message_kind)message->kind) {
  case MESSAGE_TERMINAL:
    on_terminal(monitor, fds[0]);
    fds[0] = -1;
    return;
  case MESSAGE_NETWORK:
    network_sockets(monitor, message, fds);
    return;
  case MESSAGE_DRIVER:
    driven_start(monitor, fds);
    return;
  case MESSAGE_PUBLISH:
    publishing_start(monitor, fds);
    return;
  case MESSAGE_GATE:
    on_gate(monitor, fds);
    return;
  case MESSAGE_CONNECTS:
    monitor->connects.listener = fds[0];
    fds[0] = -1;
    return;
  case MESSAGE_STARTED:
    on_started(monitor, message->value, fds);
    upkeep_schedule(monitor);
    return;
  case MESSAGE_STOPPED:
    signals_stop_with_workload(monitor);
    return;
  case MESSAGE_EXEC_TERMINAL:
  case MESSAGE_EXEC_STARTED:
  case MESSAGE_EXEC_EXITED:
    execs_message(&monitor->execs, &monitor->engine, message, fds);
    return;
  case MESSAGE_EXITED:
    if (!monitor->result->started)
      on_started(monitor, monitor->request->report->command, (int[]){-1, -1});
    monitor->over = true;
    return;
  default:
    monitor->over = true; /* not of this protocol: end rather than guess */
  }
}

void messages_read(struct monitor *monitor) {
  struct message message = {0};
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(monitor->engine.channel, fds, &message, sizeof message);
  if (got == -EAGAIN)
    return;
  if (got != sizeof message) {
    monitor->over = true;
    return;
  }
  handle_message(monitor, &message, fds);
  for (size_t i = 0; i < FD_PASS_LIMIT; i++) {
    if (fds[i] >= 0)
      close(fds[i]);
  }
}
