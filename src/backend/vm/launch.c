/* Beside QEMU, inside the same sandbox: starts it, gives the guest our input, output and signals,
 * and ends as the command in the guest did. Words: NAME:PROCESSORS[,NAME:PROCESSORS] CONSOLE QEMU
 * OPTION... If the guest does not come up with the first accelerator, the next one is tried. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "backend/vm/flow.h"
#include "backend/vm/guest.h"
#include "core/exit-code.h"

enum { BOOT_SECONDS_KVM = 20, BOOT_SECONDS = 180 };
enum { PORT_CONTROL, PORT_STDIN, PORT_STDOUT, PORT_STDERR, PORT_COUNT };
enum { WATCH_CONTROL, WATCH_SIGNALS, WATCH_FLOWS, WATCH_COUNT = WATCH_FLOWS + 6 };

static const char *const port_names[PORT_COUNT] = {VM_PORT_CONTROL, VM_PORT_STDIN, VM_PORT_STDOUT,
                                                   VM_PORT_STDERR};

struct launch {
  const char *console; /* where the guest's kernel speaks */
  char **words;        /* QEMU and its options */
  int count;
  int ours[PORT_COUNT], theirs[PORT_COUNT];
  int signals;
  pid_t machine;
  bool gone; /* QEMU has ended */
  bool running, over, told[2];
  int status;
  uint64_t expected[2];
  struct flow flows[3];
  bool terminal;
  struct termios saved;
};

static void say(const char *text, const char *detail) {
  dprintf(STDERR_FILENO, "sandbox: %s%s%s\n", text, detail ? ": " : "", detail ? detail : "");
}

/* What comes from a guest, or names files that a command has made, is not for a terminal as it is.
 */
static void make_plain(char *text, ssize_t length, bool has_lines) {
  for (ssize_t i = 0; i < length; i++) {
    bool plain = (has_lines && text[i] == '\n') || (text[i] >= ' ' && text[i] <= '~');
    text[i] = plain ? text[i] : '.';
  }
}

/* ---- QEMU ---- */

static char *word(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *word(const char *format, ...) {
  char *text;
  va_list arguments;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) < 0)
    abort();
  va_end(arguments);
  return text;
}

static char **machine_words(const struct launch *launch, const char *accelerator) {
  char **words = calloc((size_t)launch->count + 6 + 4 * PORT_COUNT, sizeof *words);
  size_t at = 0;
  if (!words)
    abort();
  for (int i = 0; i < launch->count; i++)
    words[at++] = launch->words[i];
  int name = (int)strcspn(accelerator, ":");
  bool emulated = strncmp(accelerator, "tcg:", 4) == 0;
  words[at++] = "-accel";
  words[at++] = word("%.*s%s", name, accelerator, emulated ? ",tb-size=256" : "");
  words[at++] = "-smp";
  words[at++] = (char *)accelerator + name + 1;
  for (int i = 0; i < PORT_COUNT; i++) {
    words[at++] = "-chardev";
    words[at++] = word("socket,id=%s,fd=%d", port_names[i], launch->theirs[i]);
    words[at++] = "-device";
    words[at++] = word("virtserialport,chardev=%s,name=%s", port_names[i], port_names[i]);
  }
  return words;
}

/* What QEMU itself has to say; only of interest if the machine does not come up. */
static int open_errors(const struct launch *launch, int flags) {
  char path[300];
  snprintf(path, sizeof path, "%s.errors", launch->console);
  return open(path, flags | O_CLOEXEC, 0600);
}

static _Noreturn void become_machine(const struct launch *launch, const char *accelerator) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid(); /* the terminal's signals are for the command in the guest */
  for (int i = 0; i < PORT_COUNT; i++)
    fcntl(launch->theirs[i], F_SETFD, 0);
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  int errors = open_errors(launch, O_WRONLY | O_CREAT | O_TRUNC);
  if (null >= 0 && errors >= 0 && dup2(null, STDIN_FILENO) == STDIN_FILENO &&
      dup2(errors, STDOUT_FILENO) == STDOUT_FILENO && dup2(errors, STDERR_FILENO) == STDERR_FILENO)
    execv(launch->words[0], machine_words(launch, accelerator));
  say(launch->words[0], strerror(errno));
  _exit(EXIT_CODE_FAILURE);
}

static int start_machine(struct launch *launch, const char *accelerator) {
  for (int i = 0; i < PORT_COUNT; i++) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
      return -1;
    launch->ours[i] = ends[0];
    launch->theirs[i] = ends[1];
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  launch->machine = fork();
  if (launch->machine == 0)
    become_machine(launch, accelerator);
  for (int i = 0; i < PORT_COUNT; i++)
    close(launch->theirs[i]);
  launch->gone = launch->machine < 0;
  return launch->gone ? -1 : 0;
}

static void stop_machine(struct launch *launch) {
  if (!launch->gone) {
    kill(launch->machine, SIGKILL);
    while (waitpid(launch->machine, NULL, 0) < 0 && errno == EINTR)
      ;
  }
  launch->gone = true;
  for (int i = 0; i < PORT_COUNT; i++)
    close(launch->ours[i]);
}

/* ---- messages ---- */

/* Short and rare: the socket has room for them. */
static void tell(const struct launch *launch, struct vm_message message) {
  (void)!write(launch->ours[PORT_CONTROL], &message, sizeof message);
}

static struct vm_message size_message(enum vm_message_kind kind, bool terminal) {
  struct winsize size = {0};
  if (terminal)
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
  return (struct vm_message){
      .kind = kind, .value = terminal, .first = size.ws_row, .second = size.ws_col};
}

static void pass_signal(struct launch *launch) {
  struct signalfd_siginfo information;
  while (read(launch->signals, &information, sizeof information) > 0) {
    int status;
    if (information.ssi_signo == SIGCHLD)
      launch->gone = launch->gone || waitpid(launch->machine, &status, WNOHANG) > 0;
    else if (information.ssi_signo == SIGWINCH)
      tell(launch, size_message(VM_SIZE, launch->terminal));
    else if (launch->running)
      tell(launch, (struct vm_message){.kind = VM_SIGNAL, .value = information.ssi_signo});
    else if (information.ssi_signo != SIGUSR1 && information.ssi_signo != SIGUSR2)
      launch->over = true, launch->status = 128 + (int)information.ssi_signo;
  }
}

/* Messages are written whole and small, so they are read whole. */
static bool hear(struct launch *launch) {
  struct vm_message message;
  ssize_t length = read(launch->ours[PORT_CONTROL], &message, sizeof message);
  if (length < 0 && (errno == EAGAIN || errno == EINTR))
    return true;
  if (length != sizeof message)
    return false;
  if (message.kind == VM_RUNNING) {
    launch->running = true;
    launch->flows[0].ended = false;
  } else if (message.kind == VM_EXIT) {
    launch->running = launch->over = true;
    launch->status = (int)message.value;
    launch->expected[0] = message.first;
    launch->expected[1] = message.second;
  } else if (message.kind == VM_FAILED) {
    char text[512] = "";
    usleep(100000); /* the sentence follows */
    make_plain(text, read(launch->ours[PORT_CONTROL], text, sizeof text - 1), false);
    say(text, NULL);
    launch->over = true;
    launch->status = EXIT_CODE_FAILURE;
  }
  return true;
}

/* ---- input and output ---- */

static void set_flows(struct launch *launch) {
  launch->flows[0] = (struct flow){.from = STDIN_FILENO, .to = launch->ours[PORT_STDIN]};
  launch->flows[0].ended = true; /* until the command runs: nothing is taken for nobody */
  for (int i = 1; i < 3; i++)
    launch->flows[i] = (struct flow){
        .from = launch->ours[PORT_STDIN + i], .to = i, .chunk = 4096}; /* a pipe's atomic size */
}

static void close_ends(struct launch *launch) {
  struct flow *input = &launch->flows[0];
  if (launch->running && input->to >= 0 && (flow_is_done(input) || input->broken)) {
    shutdown(launch->ours[PORT_STDIN], SHUT_WR);
    input->ended = true;
    input->to = -1;
  }
  for (int i = 1; i < 3; i++) {
    if (launch->flows[i].broken && !launch->told[i - 1]) {
      launch->told[i - 1] = true;
      tell(launch, (struct vm_message){.kind = VM_CLOSED, .value = (uint32_t)i});
    }
  }
}

static bool has_all_output(const struct launch *launch) {
  for (int i = 1; i < 3; i++) {
    if (launch->flows[i].taken < launch->expected[i - 1] || !flow_is_empty(&launch->flows[i]))
      return false;
  }
  return true;
}

static void step(struct launch *launch, int milliseconds) {
  struct pollfd watched[WATCH_COUNT] = {
      [WATCH_CONTROL] = {.fd = launch->ours[PORT_CONTROL], .events = POLLIN},
      [WATCH_SIGNALS] = {.fd = launch->signals, .events = POLLIN},
  };
  for (int i = 0; i < 3; i++)
    flow_watch(&launch->flows[i], &watched[WATCH_FLOWS + 2 * i]);
  if (poll(watched, WATCH_COUNT, milliseconds) < 0)
    return;
  if (watched[WATCH_SIGNALS].revents)
    pass_signal(launch);
  if (watched[WATCH_CONTROL].revents && !hear(launch))
    launch->gone = launch->gone || waitpid(launch->machine, NULL, 0) > 0;
  for (int i = 0; i < 3; i++)
    flow_move(&launch->flows[i], &watched[WATCH_FLOWS + 2 * i]);
  close_ends(launch);
}

/* ---- the whole ---- */

static void show_end(int fd) {
  char text[2048];
  off_t size = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
  if (size <= 0)
    return;
  off_t start = size > (off_t)sizeof text ? size - (off_t)sizeof text : 0;
  ssize_t length = pread(fd, text, sizeof text, start);
  make_plain(text, length, true);
  (void)!write(STDERR_FILENO, text, length > 0 ? (size_t)length : 0);
}

static void explain_failure(const struct launch *launch) {
  say(launch->running ? "the virtual machine ended before the command did"
                      : "the virtual machine did not start",
      "its last words follow");
  show_end(open_errors(launch, O_RDONLY));
  show_end(open(launch->console, O_RDONLY | O_CLOEXEC));
}

static void set_raw(struct launch *launch) {
  struct termios raw;
  launch->terminal = isatty(STDIN_FILENO) && tcgetattr(STDIN_FILENO, &launch->saved) == 0;
  if (!launch->terminal)
    return;
  raw = launch->saved;
  cfmakeraw(&raw);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
}

/* Returns true if it came up at all. */
static bool run_with(struct launch *launch, const char *accelerator) {
  time_t limit =
      time(NULL) + (strncmp(accelerator, "kvm:", 4) == 0 ? BOOT_SECONDS_KVM : BOOT_SECONDS);
  if (start_machine(launch, accelerator) < 0)
    return false;
  set_flows(launch);
  tell(launch, size_message(VM_START, launch->terminal));
  while (!launch->gone && !launch->over && (launch->running || time(NULL) < limit))
    step(launch, launch->running ? -1 : 1000);
  while (!launch->gone && launch->over && launch->running && !has_all_output(launch))
    step(launch, -1);
  stop_machine(launch);
  return launch->running || launch->over;
}

static void watch_signals(struct launch *launch) {
  static const int passed[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                               SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < sizeof passed / sizeof passed[0]; i++)
    sigaddset(&set, passed[i]);
  sigprocmask(SIG_BLOCK, &set, NULL);
  signal(SIGPIPE, SIG_IGN);
  launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

int launch_main(int count, char **words) {
  static struct launch launch;
  if (count < 4 || !strchr(words[1], ':')) {
    say("sandbox-vm is started by 'sandbox run --backend vm'", NULL);
    return EXIT_CODE_FAILURE;
  }
  launch.console = words[2];
  launch.words = words + 3;
  launch.count = count - 3;
  watch_signals(&launch);
  set_raw(&launch);
  bool up = false;
  char *rest = words[1];
  for (char *accelerator; !up && !launch.over && (accelerator = strsep(&rest, ","));)
    up = run_with(&launch, accelerator);
  if (launch.terminal)
    tcsetattr(STDIN_FILENO, TCSANOW, &launch.saved);
  if (launch.over)
    return launch.status;
  explain_failure(&launch);
  return EXIT_CODE_FAILURE;
}
