/* The user's terminal while a session runs; see terminal.h. */
#include "session/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/file.h"

#define BUFFER_SIZE 8192

/* How long the last output of a session waits that somebody has ended: he waits as well. */
#define KILLED_WAIT_NS (2ull * 1000 * 1000 * 1000)
#define LAST_STEP_MS   50

static int first_terminal_output(const struct terminal *terminal) {
  static const int order[] = {STDOUT_FILENO, STDERR_FILENO, STDIN_FILENO};
  for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
    if (terminal->used[order[i]])
      return order[i];
  }
  return -1;
}

/* Of our own, and one that does not block, so that the user's stays as it is. Without it a screen
 * that stands still would stop us in the middle of a line; and another session with the same
 * keyboard may read a key that woke both of us: one that waits for the next would wait with all it
 * has to do, and take it from whoever has the terminal then. */
static int open_own(int fd, int access) {
  char path[32];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  const char *const names[] = {path, "/dev/tty"}; /* the latter after su: it is another user's */
  unsigned device, found;
  for (size_t i = 0; i < ARRAY_SIZE(names) && ioctl(fd, TIOCGDEV, &device) == 0; i++) {
    int own = open(names[i], access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (own >= 0 && ioctl(own, TIOCGDEV, &found) == 0 && found == device)
      return own;
    if (own >= 0)
      close(own);
  }
  return fd;
}

static void close_own(struct terminal *terminal) {
  if (terminal->input != STDIN_FILENO)
    close(terminal->input);
  if (terminal->screen_out != terminal->output)
    close(terminal->screen_out);
  terminal->input = STDIN_FILENO;
  terminal->screen_out = terminal->output;
}

struct terminal terminal_new(enum terminal_mode mode) {
  struct terminal terminal = {
      .master = -1, .input = STDIN_FILENO, .output = -1, .turn = TERMINAL_TURN_ALONE};
  for (int fd = 0; fd < 3; fd++) {
    terminal.used[fd] = mode == TERMINAL_ALWAYS || (mode == TERMINAL_AUTO && isatty(fd));
    terminal.any |= terminal.used[fd];
  }
  terminal.output = first_terminal_output(&terminal);
  terminal.input_open = terminal.used[STDIN_FILENO];
  terminal.raw_wanted =
      terminal.used[0] && terminal.used[1] && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
  return terminal;
}

void terminal_resize(struct terminal *terminal) {
  struct winsize size;
  if (terminal->master >= 0 && !terminal->paused && ioctl(terminal->output, TIOCGWINSZ, &size) == 0)
    ioctl(terminal->master, TIOCSWINSZ, &size);
}

/* Started with &, or stopped and sent on with bg: then the terminal is the shell's. */
static bool in_background(void) {
  pid_t group = tcgetpgrp(STDIN_FILENO); /* -1: not our controlling terminal, so nobody else's */
  return group >= 0 && group != getpgrp();
}

bool terminal_is_lent(const struct terminal *terminal) {
  return terminal->master >= 0 && (terminal->waits || (terminal->input_open && in_background()));
}

void terminal_join(struct terminal *terminal, const char *state_home) {
  if (terminal->any || isatty(STDERR_FILENO)) /* where we say something ourselves */
    terminal->turn = terminal_turn_open(state_home);
}

void terminal_leave(struct terminal *terminal) {
  terminal_turn_close(&terminal->turn);
}

void terminal_set_raw(struct terminal *terminal) {
  if (!terminal->raw_wanted || in_background())
    return;
  if (!terminal->modes.raw)
    terminal_modes_take(&terminal->modes, &terminal->turn, STDIN_FILENO);
  else if (!terminal->paused && terminal_modes_are_lost(&terminal->modes, STDIN_FILENO))
    terminal_modes_regain(&terminal->modes, &terminal->turn, STDIN_FILENO);
}

void terminal_restore(struct terminal *terminal) {
  terminal_modes_put_back(&terminal->modes, &terminal->turn, STDIN_FILENO);
}

/* As the user's terminal is. While that is the shell's its modes are those of a line that is being
 * edited, or of another job: only what the keys do is the user's then. */
static void set_full_modes(struct terminal *terminal) {
  struct termios modes, users;
  if (terminal->modes.raw)
    tcsetattr(terminal->master, TCSANOW, &terminal->modes.saved);
  else if (tcgetattr(terminal->master, &modes) == 0 && tcgetattr(STDIN_FILENO, &users) == 0) {
    memcpy(modes.c_cc, users.c_cc, sizeof modes.c_cc);
    tcsetattr(terminal->master, TCSANOW, &modes);
  }
}

/* The user's own terminal echoes already, or there is nobody to echo to. */
static void set_partial_modes(struct terminal *terminal) {
  struct termios modes;
  if (tcgetattr(terminal->master, &modes) < 0)
    return;
  modes.c_lflag &= ~(tcflag_t)ECHO;
  if (isatty(terminal->output))
    modes.c_oflag &= ~(tcflag_t)OPOST; /* it makes its own line ends, too */
  tcsetattr(terminal->master, TCSANOW, &modes);
}

void terminal_connect(struct terminal *terminal, int master) {
  terminal->master = master;
  terminal->to_session.data = xmalloc(BUFFER_SIZE);
  terminal->to_user.data = xmalloc(BUFFER_SIZE);
  fcntl(master, F_SETFL, fcntl(master, F_GETFL) | O_NONBLOCK);
  if (terminal->input_open)
    terminal->input = open_own(STDIN_FILENO, O_RDONLY);
  terminal->screen_out = open_own(terminal->output, O_WRONLY);
  terminal_resize(terminal);
  terminal_set_raw(terminal);
  if (terminal->raw_wanted)
    set_full_modes(terminal);
  else
    set_partial_modes(terminal);
}

/* ---- copying ---- */

static bool is_empty(const struct terminal_buffer *buffer) {
  return buffer->start == buffer->end;
}

/* A user who pauses the screen pauses the workload, as outside, but never us: then its terminal is
 * not read until the screen takes more, and limits and signals go on. */
void terminal_watch(const struct terminal *terminal, struct pollfd watched[TERMINAL_WATCH_COUNT]) {
  for (size_t i = 0; i < TERMINAL_WATCH_COUNT; i++)
    watched[i] = (struct pollfd){.fd = -1};
  if (terminal->modes.raw)
    watched[3] = (struct pollfd){.fd = terminal->turn.news, .events = POLLIN};
  if (terminal->master < 0 || terminal->paused || terminal->waits)
    return;
  if (terminal->input_open && is_empty(&terminal->to_session) && !in_background())
    watched[0] = (struct pollfd){.fd = terminal->input, .events = POLLIN};
  if (!is_empty(&terminal->to_user))
    watched[2] = (struct pollfd){.fd = terminal->screen_out, .events = POLLOUT};
  else
    watched[1] = (struct pollfd){
        .fd = terminal->master,
        .events = (short)(POLLIN | (is_empty(&terminal->to_session) ? 0 : POLLOUT))};
}

/* Returns false when the descriptor has nothing more to give. */
static bool fill(struct terminal_buffer *buffer, int fd) {
  ssize_t got = read(fd, buffer->data, BUFFER_SIZE);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  buffer->start = 0;
  buffer->end = (size_t)got;
  return got > 0;
}

static void flush_to_session(struct terminal *terminal) {
  struct terminal_buffer *buffer = &terminal->to_session;
  while (!is_empty(buffer)) {
    ssize_t written =
        write(terminal->master, buffer->data + buffer->start, buffer->end - buffer->start);
    if (written <= 0)
      return;
    buffer->start += (size_t)written;
  }
}

/* Without a terminal behind it, the end of our input is the end-of-file character inside. */
static void end_input(struct terminal *terminal) {
  terminal->input_open = false;
  terminal->to_session.data[0] = 4; /* Ctrl-D */
  terminal->to_session.start = 0;
  terminal->to_session.end = 1;
}

static void clear_buffer(struct terminal_buffer *buffer) {
  free(buffer->data);
  *buffer = (struct terminal_buffer){0};
}

static void close_master(struct terminal *terminal) {
  close_own(terminal);
  close(terminal->master);
  terminal->master = -1;
  clear_buffer(&terminal->to_session);
  clear_buffer(&terminal->to_user);
}

/* If it is not a terminal the descriptor is the user's and stays blocking; but what poll says is
 * writable takes this much without waiting, if it is a pipe. Returns false if nobody can read it
 * any more. */
static bool flush_to_user(struct terminal *terminal) {
  struct terminal_buffer *buffer = &terminal->to_user;
  struct pollfd ready = {.fd = terminal->screen_out, .events = POLLOUT};
  while (!is_empty(buffer) && poll(&ready, 1, 0) > 0) {
    size_t length = buffer->end - buffer->start;
    ssize_t written = write(terminal->screen_out, buffer->data + buffer->start,
                            length < PIPE_BUF ? length : PIPE_BUF);
    if (written < 0)
      return errno == EAGAIN || errno == EINTR;
    screen_feed(&terminal->screen, buffer->data + buffer->start, (size_t)written);
    buffer->start += (size_t)written;
  }
  return true;
}

/* A session that never stops writing must not keep us. */
#define CATCH_UP_ROUNDS 16

/* The kernel brings what was written to a terminal to its other end a moment later, or when that
 * end is polled. */
static bool has_output(const struct terminal *terminal) {
  struct pollfd ready = {.fd = terminal->master, .events = POLLIN};
  return poll(&ready, 1, 0) > 0 && ready.revents & POLLIN;
}

static bool catch_up(struct terminal *terminal) {
  for (int round = 0; terminal->master >= 0 && round < CATCH_UP_ROUNDS; round++) {
    bool alive = flush_to_user(terminal);
    if (alive && !is_empty(&terminal->to_user))
      return false;
    if (alive && !has_output(terminal))
      return true;
    if (!alive || !fill(&terminal->to_user, terminal->master))
      close_master(terminal);
  }
  return terminal->master < 0;
}

bool terminal_catch_up(struct terminal *terminal) {
  if (!terminal_turn_share(&terminal->turn))
    return false;
  bool done = catch_up(terminal);
  terminal_turn_leave(&terminal->turn);
  return done;
}

void terminal_pause(struct terminal *terminal, bool paused) {
  terminal->paused = paused;
}

/* The kernel makes a signal of a character a moment later only, and takes away then what the
 * program wrote before it. */
bool terminal_interrupt(struct terminal *terminal) {
  static const char key = '\003';
  struct termios modes;
  if (terminal->master < 0 || !terminal->raw_wanted || !is_empty(&terminal->to_session))
    return false;
  if (tcgetattr(terminal->master, &modes) == 0 && modes.c_lflag & ISIG && modes.c_cc[VINTR] == key)
    return ioctl(terminal->master, TIOCSIG, SIGINT) == 0;
  return write(terminal->master, &key, 1) == 1; /* at once, paused or not */
}

static void relay(struct terminal *terminal, const struct pollfd watched[TERMINAL_WATCH_COUNT]) {
  if (watched[0].revents && !fill(&terminal->to_session, terminal->input))
    end_input(terminal);
  flush_to_session(terminal);
  if (watched[1].revents & (POLLIN | POLLHUP | POLLERR) &&
      !fill(&terminal->to_user, terminal->master))
    close_master(terminal);
  if (terminal->master >= 0 && !flush_to_user(terminal))
    close_master(terminal);
}

void terminal_relay(struct terminal *terminal, const struct pollfd watched[TERMINAL_WATCH_COUNT]) {
  bool ready = terminal->waits;
  if (watched[3].revents) /* the caller has made it raw again, if need be */
    terminal_turn_read_news(&terminal->turn);
  for (size_t i = 0; i < TERMINAL_WATCH_COUNT - 1; i++)
    ready |= watched[i].revents != 0;
  if (terminal->paused || terminal->master < 0 || !ready)
    return;
  terminal->waits = !terminal_turn_share(&terminal->turn);
  if (terminal->waits)
    return;
  relay(terminal, watched);
  terminal_turn_leave(&terminal->turn);
}

/* ---- the end ---- */

struct terminal_patience terminal_patience_new(int signals, bool killed) {
  return (struct terminal_patience){.signals = signals,
                                    .until_ns = killed ? monotonic_ns() + KILLED_WAIT_NS : 0};
}

static bool wants_end(int signal) {
  return signal != SIGWINCH && signal != SIGCONT && signal != SIGTSTP;
}

static bool may_wait(struct terminal_patience *patience) {
  struct signalfd_siginfo info;
  while (read(patience->signals, &info, sizeof info) == sizeof info)
    patience->over |= wants_end((int)info.ssi_signo);
  patience->over |= patience->until_ns && monotonic_ns() >= patience->until_ns;
  return !patience->over;
}

static bool await_turn(const struct terminal *terminal, struct terminal_patience *patience) {
  while (!terminal_turn_share(&terminal->turn)) {
    if (!may_wait(patience))
      return false;
    poll(NULL, 0, LAST_STEP_MS);
  }
  return true;
}

/* Nothing runs any more, so we may wait for the user. */
static bool write_rest(struct terminal *terminal, struct terminal_patience *patience) {
  while (flush_to_user(terminal)) {
    if (is_empty(&terminal->to_user))
      return true;
    if (!may_wait(patience))
      return false;
    struct pollfd ready = {.fd = terminal->screen_out, .events = POLLOUT};
    poll(&ready, 1, LAST_STEP_MS);
  }
  return false;
}

/* What would be painted over somebody else's question is not shown at all. */
void terminal_drain(struct terminal *terminal, struct terminal_patience *patience) {
  bool any = terminal->master >= 0 && (!is_empty(&terminal->to_user) || has_output(terminal));
  bool goes_on = any && await_turn(terminal, patience);
  while (goes_on)
    goes_on = write_rest(terminal, patience) && has_output(terminal) &&
              fill(&terminal->to_user, terminal->master);
  if (terminal->master >= 0)
    close_master(terminal);
  terminal_turn_leave(&terminal->turn);
}

/* ---- what we say ourselves ---- */

bool terminal_begin_saying(const struct terminal *terminal) {
  struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
  return !terminal->modes.raw && !terminal->paused && poll(&ready, 1, 0) > 0 &&
         terminal_turn_share(&terminal->turn);
}

bool terminal_begin_saying_last(const struct terminal *terminal,
                                struct terminal_patience *patience) {
  return await_turn(terminal, patience);
}

void terminal_end_saying(const struct terminal *terminal) {
  terminal_turn_leave(&terminal->turn);
}
