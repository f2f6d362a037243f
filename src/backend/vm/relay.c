/* While the command runs in the guest: its input, output and signals, and its end. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/vm/flow.h"
#include "backend/vm/guest.h"

enum { WATCH_CONTROL, WATCH_SIGNALS, WATCH_FLOWS, WATCH_COUNT = WATCH_FLOWS + 6 };
enum { FLOW_INPUT, FLOW_OUTPUT, FLOW_ERROR, FLOW_COUNT };

struct relay {
  const struct guest *guest;
  struct guest_command *command;
  struct flow *flows; /* FLOW_COUNT */
  bool over;
  int status;
};

static void close_flow(struct flow *flow) {
  flow->ended = flow->broken = true;
  flow->start = flow->end = 0;
}

/* The host's reader has gone: the command learns it by SIGPIPE, as from any pipe. */
static void close_output(struct relay *relay, uint32_t which) {
  struct flow *flow = &relay->flows[which == 1 ? FLOW_OUTPUT : FLOW_ERROR];
  if (relay->guest->terminal || flow->ended)
    return;
  close(flow->from);
  close_flow(flow);
}

static void set_size(const struct relay *relay, const struct vm_message *message) {
  struct winsize size = {.ws_row = (unsigned short)message->first,
                         .ws_col = (unsigned short)message->second};
  if (relay->guest->terminal)
    ioctl(relay->command->input, TIOCSWINSZ, &size);
}

static void obey(struct relay *relay) {
  struct vm_message message;
  guest_read_exactly(relay->guest, relay->guest->control, &message, sizeof message);
  if (message.kind == VM_SIGNAL && !relay->over)
    kill(-relay->command->pid, (int)message.value);
  else if (message.kind == VM_SIZE)
    set_size(relay, &message);
  else if (message.kind == VM_CLOSED)
    close_output(relay, message.value);
}

static int shell_status(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* With the command everything else that it started ends. */
static void reap(struct relay *relay, int signals) {
  struct signalfd_siginfo information;
  int status;
  while (read(signals, &information, sizeof information) > 0)
    ;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != relay->command->pid)
      continue;
    relay->over = true;
    relay->status = shell_status(status);
    kill(-1, SIGKILL);
  }
}

/* The command's input ends when the host's has; a terminal's never does. */
static void end_input(struct relay *relay) {
  struct flow *flow = &relay->flows[FLOW_INPUT];
  if (relay->guest->terminal || flow->to < 0)
    return;
  if (flow_is_done(flow) || flow->broken) {
    close(flow->to);
    flow->to = -1;
    flow->broken = true;
  }
}

static bool is_finished(const struct relay *relay) {
  return relay->over && flow_is_done(&relay->flows[FLOW_OUTPUT]) &&
         flow_is_done(&relay->flows[FLOW_ERROR]);
}

static void step(struct relay *relay, int signals) {
  struct pollfd watched[WATCH_COUNT] = {
      [WATCH_CONTROL] = {.fd = relay->guest->control, .events = POLLIN},
      [WATCH_SIGNALS] = {.fd = signals, .events = POLLIN},
  };
  for (int i = 0; i < FLOW_COUNT; i++)
    flow_watch(&relay->flows[i], &watched[WATCH_FLOWS + 2 * i]);
  if (poll(watched, WATCH_COUNT, -1) < 0)
    return;
  if (watched[WATCH_CONTROL].revents & POLLIN)
    obey(relay);
  if (watched[WATCH_SIGNALS].revents)
    reap(relay, signals);
  for (int i = 0; i < FLOW_COUNT; i++)
    flow_move(&relay->flows[i], &watched[WATCH_FLOWS + 2 * i]);
  end_input(relay);
}

static int watch_children(const struct guest *guest) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0)
    guest_fail(guest, errno, "watching", "the command");
  return signals;
}

static void never_wait(int fd) {
  if (fd >= 0)
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

void guest_relay(const struct guest *guest, struct guest_command *command) {
  struct flow *flows = calloc(FLOW_COUNT, sizeof *flows);
  if (!flows)
    guest_fail(guest, ENOMEM, "starting", "the relay");
  const int ends[FLOW_COUNT][2] = {{guest->input, command->input},
                                   {command->output, guest->output},
                                   {command->error, guest->error}};
  for (int i = 0; i < FLOW_COUNT; i++) {
    flows[i] = (struct flow){.from = ends[i][0], .to = ends[i][1], .ended = ends[i][0] < 0};
    never_wait(ends[i][0]);
    never_wait(ends[i][1]);
  }
  struct relay relay = {guest, command, flows, false, 0};
  int signals = watch_children(guest);
  while (!is_finished(&relay))
    step(&relay, signals);
  sync();
  guest_send(guest, (struct vm_message){.kind = VM_EXIT,
                                        .value = (uint32_t)relay.status,
                                        .first = flows[FLOW_OUTPUT].taken,
                                        .second = flows[FLOW_ERROR].taken});
  for (;;)
    pause(); /* the host switches us off */
}
