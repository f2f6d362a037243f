/* The prompt on the terminal of `sandbox run`; see prompt.h. */
#include "session/prompt.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/id.h"
#include "core/text.h"
#include "session/prompt-text.h"
#include "session/screen.h"

/* Nobody reads a question and answers it faster than this; what comes earlier was typed for the
 * program. Each such key starts the time anew. */
#define QUIET_NS    (400ull * 1000 * 1000)
#define BEHIND_NS   (1000ull * 1000 * 1000) /* how long the screen may need to show the rest */
#define LENT_NS     (200ull * 1000 * 1000)  /* how often to look whether the terminal came back */
#define RESTORE_NS  (60ull * 1000 * 1000)   /* between two sizes, so that a program sees both */
#define MARK_LENGTH 6
#define CTRL_C      '\003'

struct prompt {
  struct terminal *terminal;
  struct decisions *decisions;
  struct supervisor supervisor;
  const char *session_id;
  char mark[MARK_LENGTH + 1];
  char by[64];
  int fd;             /* the user's terminal, for both ways */
  struct text output; /* not taken by it yet */
  bool shown;
  char id[QUESTION_ID_SIZE]; /* of the question that is shown */
  uint64_t quiet_until_ns;
  uint64_t behind_until_ns; /* until then the next question waits for the screen; 0: it need not */
  uint64_t resize_ns;       /* when a full-screen program gets its size back; 0: it has it */
  struct terminal_modes modes; /* if the relay had not made it raw */
  bool plain;
  bool fits; /* the question that is shown, on the screen */
};

/* ---- the terminal ---- */

/* With a descriptor of its own, so that it can be made not to block without changing the user's.
 */
static int open_terminal(void) {
  static const char *const names[] = {"/dev/tty", "/proc/self/fd/0"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (i > 0 && !isatty(STDIN_FILENO))
      continue;
    int fd = open(names[i], O_RDWR | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
      return fd;
  }
  return -1;
}

/* A workload that holds the user's terminal itself could paint over any question; and where none of
 * our descriptors is a terminal, whoever started us did not mean us to use his. */
static bool is_ours(const struct terminal *terminal) {
  size_t terminals = 0;
  for (int fd = 0; fd < 3; fd++) {
    if (isatty(fd) && !terminal->used[fd])
      return false;
    terminals += (size_t)isatty(fd);
  }
  return terminals > 0;
}

static bool is_lent(const struct prompt *prompt) {
  pid_t group = tcgetpgrp(prompt->fd);
  return group >= 0 && group != getpgrp();
}

unsigned prompt_width(int terminal) {
  struct winsize size;
  return ioctl(terminal, TIOCGWINSZ, &size) < 0 ? 0 : size.ws_col;
}

unsigned prompt_height(int terminal) {
  struct winsize size;
  return ioctl(terminal, TIOCGWINSZ, &size) < 0 ? 0 : size.ws_row;
}

/* Another session at this terminal has ended and has put the user's modes back. */
static bool has_lost_modes(const struct prompt *prompt) {
  struct termios modes;
  return !is_lent(prompt) && tcgetattr(prompt->fd, &modes) == 0 &&
         modes.c_lflag & (ICANON | ECHO | ISIG);
}

static bool make_raw(struct prompt *prompt) {
  return prompt->terminal->modes.raw ||
         terminal_modes_take(&prompt->modes, &prompt->terminal->turn, prompt->fd);
}

/* Ours again: as the relay made them, or as we did. */
static bool regain_modes(struct prompt *prompt) {
  const struct terminal *terminal = prompt->terminal;
  return make_raw(prompt) &&
         terminal_modes_regain(terminal->modes.raw ? &terminal->modes : &prompt->modes,
                               &terminal->turn, prompt->fd);
}

static void make_cooked(struct prompt *prompt) {
  terminal_modes_put_back(&prompt->modes, &prompt->terminal->turn, prompt->fd);
}

static void await_quiet(struct prompt *prompt) {
  prompt->quiet_until_ns = monotonic_ns() + QUIET_NS;
}

/* What the screen takes late is seen late: then the time in which no key counts begins again. */
static void flush_output(struct prompt *prompt) {
  while (prompt->output.length > 0) {
    ssize_t written = write(prompt->fd, prompt->output.data, prompt->output.length);
    await_quiet(prompt);
    if (written < 0 && (errno == EAGAIN || errno == EINTR))
      return;
    size_t done = written > 0 ? (size_t)written : prompt->output.length; /* gone: so is it */
    prompt->output.length -= done;
    memmove(prompt->output.data, prompt->output.data + done, prompt->output.length);
  }
}

/* A full-screen program draws itself anew when its size changes, and for sure only then: it has one
 * line less for a moment. Not while it waits: a signal could end the very call we ask about. */
static void shrink_screen(const struct terminal *terminal) {
  struct winsize size;
  if (terminal->master < 0 || ioctl(terminal->master, TIOCGWINSZ, &size) < 0 || size.ws_row < 2)
    return;
  size.ws_row--;
  ioctl(terminal->master, TIOCSWINSZ, &size);
}

/* ---- showing ---- */

static const struct question *shown_question(const struct prompt *prompt) {
  const struct question *question;
  for (size_t i = 0; (question = decisions_pending(prompt->decisions, i)); i++) {
    if (strcmp(question->id, prompt->id) == 0)
      return question;
  }
  return NULL;
}

static size_t count_pending(const struct prompt *prompt) {
  return (size_t)decisions_counts(prompt->decisions).pending;
}

/* TERM may be missing though the terminal knows sequences, and the program uses them: it could have
 * made all that follows invisible. */
static bool is_plain(const struct prompt *prompt) {
  return prompt->plain && !prompt->terminal->screen.used;
}

static void draw(struct prompt *prompt) {
  const struct question *question = shown_question(prompt);
  if (!question)
    return;
  uint64_t now = monotonic_ns();
  struct prompt_view view = {
      .session_id = prompt->session_id,
      .mark = prompt->mark,
      .more = count_pending(prompt) - 1,
      .seconds = question->deadline_ns > now
                     ? (unsigned)((question->deadline_ns - now) / 1000000000 + 1)
                     : 0,
      .width = prompt_width(prompt->fd),
      .height = prompt_height(prompt->fd),
      .plain = is_plain(prompt),
  };
  if (!view.plain)
    screen_append_reset(&prompt->terminal->screen, &prompt->output);
  if (!view.plain && screen_is_alternate(&prompt->terminal->screen))
    text_append(&prompt->output, "\033[H\033[2J");
  prompt->fits = prompt_append_question(&prompt->output, question, &view);
  flush_output(prompt);
}

static void show(struct prompt *prompt, const struct question *question) {
  if (!prompt->shown) {
    terminal_pause(prompt->terminal, true);
    make_raw(prompt);
  }
  prompt->shown = true;
  prompt->resize_ns = 0;
  memcpy(prompt->id, question->id, sizeof prompt->id);
  tcflush(prompt->fd, TCIFLUSH); /* typed before anybody could see the question */
  draw(prompt);
  await_quiet(prompt);
}

/* What was typed in the meantime was meant for the question. */
static void hide(struct prompt *prompt) {
  if (!prompt->shown)
    return;
  prompt->shown = false;
  prompt->id[0] = '\0';
  bool alternate = screen_is_alternate(&prompt->terminal->screen);
  if (!is_plain(prompt)) {
    if (alternate)
      text_append(&prompt->output, "\033[H\033[2J");
    screen_append_restore(&prompt->terminal->screen, &prompt->output);
  }
  flush_output(prompt);
  tcflush(prompt->fd, TCIFLUSH);
  make_cooked(prompt);
  terminal_pause(prompt->terminal, false);
  terminal_turn_leave(&prompt->terminal->turn);
  terminal_resize(prompt->terminal); /* if it has changed meanwhile */
  if (alternate)
    shrink_screen(prompt->terminal);
  prompt->resize_ns = alternate ? monotonic_ns() + RESTORE_NS : 0;
}

static void show_next(struct prompt *prompt) {
  const struct question *next = decisions_pending(prompt->decisions, 0);
  if (next && !is_lent(prompt) && terminal_turn_take(&prompt->terminal->turn))
    show(prompt, next);
  else
    hide(prompt);
}

/* ---- answering ---- */

static void say_problem(struct prompt *prompt, const struct sb_error *error) {
  text_appendf(&prompt->output, "\r\n%s\r\n", error->message);
  if (error->hint)
    text_appendf(&prompt->output, "%s\r\n", error->hint);
  draw(prompt);
  await_quiet(prompt);
}

static void answer(struct prompt *prompt, const struct reply *given) {
  _cleanup_error_ struct sb_error error = {0};
  struct reply reply = *given;
  char id[QUESTION_ID_SIZE];
  reply.by = prompt->by;
  memcpy(id, prompt->id, sizeof id);
  if (decisions_answer(prompt->decisions, id, &reply, &error) < 0 && shown_question(prompt))
    say_problem(prompt, &error);
}

/* Ctrl-C is for the program: it is interrupted, and told no. In this order, or it might be over
 * before the interrupt comes. */
static void interrupt(struct prompt *prompt) {
  if (!terminal_interrupt(prompt->terminal))
    kill(getpid(), SIGINT); /* the monitor passes it on */
  answer(prompt, &(struct reply){.allow = false, .scope = SCOPE_ONCE});
}

static void take_key(struct prompt *prompt, char key) {
  const struct question *question = shown_question(prompt);
  struct reply reply;
  if (!question)
    return;
  if (key == CTRL_C) {
    interrupt(prompt);
  } else if (prompt_key_reply(question, key, &reply) && (prompt->fits || !reply.allow)) {
    answer(prompt, &reply);
  } else if (key == 'f') {
    prompt_append_full(&prompt->output, question, prompt_width(prompt->fd));
    draw(prompt);
    await_quiet(prompt);
  } else {
    /* Perhaps the first byte of what a terminal answers to a program that asked it something: the
     * rest of it comes right behind. */
    await_quiet(prompt);
  }
}

/* The terminal is gone: nobody can answer here any more. */
static void give_up(struct prompt *prompt) {
  terminal_pause(prompt->terminal, false);
  terminal_turn_leave(&prompt->terminal->turn);
  prompt->shown = false;
  decisions_remove_supervisor(prompt->decisions, &prompt->supervisor);
  close(prompt->fd);
  prompt->fd = -1;
}

/* Several bytes at once are no key: something pasted, a sequence of a function key or a mouse, or
 * what was typed while we looked elsewhere. */
static void read_keys(struct prompt *prompt) {
  char bytes[256];
  ssize_t got = read(prompt->fd, bytes, sizeof bytes);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return;
  if (got <= 0) {
    give_up(prompt);
    return;
  }
  if (monotonic_ns() < prompt->quiet_until_ns || got > 1 || prompt->output.length > 0) {
    bool interrupted = memchr(bytes, CTRL_C, (size_t)got); /* denies, so it is never too early */
    if (interrupted)
      interrupt(prompt);
    else
      await_quiet(prompt);
    return;
  }
  take_key(prompt, bytes[0]);
}

/* ---- as a supervisor ---- */

static void on_settled(void *context, const struct question *question, const char *how,
                       const char *by) {
  struct prompt *prompt = context;
  if (!prompt->shown || strcmp(prompt->id, question->id) != 0)
    return;
  prompt_append_end(&prompt->output, how, by && strcmp(by, prompt->by) != 0 ? by : NULL);
  flush_output(prompt);
  prompt->id[0] = '\0'; /* the next one is shown from prompt_step */
}

/* ---- the loop ---- */

void prompt_watch(const struct prompt *prompt, struct pollfd *watched) {
  *watched = (struct pollfd){.fd = -1};
  if (!prompt || prompt->fd < 0 || (!prompt->shown && prompt->output.length == 0))
    return;
  watched->fd = prompt->fd;
  watched->events = (short)((prompt->shown ? POLLIN : 0) | (prompt->output.length ? POLLOUT : 0));
}

/* What was said before it was asked comes before it, unless the screen stands still. */
static bool has_caught_up(struct prompt *prompt) {
  uint64_t now = monotonic_ns();
  if (prompt->behind_until_ns == 0)
    prompt->behind_until_ns = now + BEHIND_NS;
  if (!terminal_catch_up(prompt->terminal) && now < prompt->behind_until_ns)
    return false;
  prompt->behind_until_ns = 0;
  return true;
}

void prompt_step(struct prompt *prompt, const struct pollfd *watched) {
  if (!prompt || prompt->fd < 0)
    return;
  flush_output(prompt);
  if (prompt->shown && watched->revents & (POLLIN | POLLHUP | POLLERR))
    read_keys(prompt);
  if (prompt->fd < 0)
    return;
  if (prompt->resize_ns && monotonic_ns() >= prompt->resize_ns) {
    prompt->resize_ns = 0;
    terminal_resize(prompt->terminal);
  }
  if (prompt->shown && has_lost_modes(prompt) && regain_modes(prompt))
    prompt_redraw(prompt);
  if (count_pending(prompt) == 0)
    prompt->behind_until_ns = 0;
  if (prompt->shown ? !shown_question(prompt) : count_pending(prompt) > 0 && has_caught_up(prompt))
    show_next(prompt);
}

uint64_t prompt_next_step(const struct prompt *prompt) {
  if (!prompt || prompt->fd < 0)
    return 0;
  if (prompt->resize_ns)
    return prompt->resize_ns;
  if (!prompt->shown && count_pending(prompt) == 0)
    return 0;
  uint64_t next = monotonic_ns() + LENT_NS;
  return prompt->behind_until_ns && prompt->behind_until_ns < next ? prompt->behind_until_ns : next;
}

void prompt_redraw(struct prompt *prompt) {
  if (!prompt || !prompt->shown)
    return;
  draw(prompt);
  await_quiet(prompt);
}

void prompt_lend(struct prompt *prompt) {
  if (prompt && prompt->fd >= 0)
    hide(prompt);
}

/* ---- beginning and end ---- */

/* Ours was opened as /dev/tty, which says nothing of which one it is. */
static void name_terminal(const struct prompt *prompt, char *ret_name, size_t size) {
  const int fds[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, prompt->fd};
  for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
    if (ttyname_r(fds[i], ret_name, size) == 0 && strcmp(ret_name, "/dev/tty") != 0)
      return;
  }
  snprintf(ret_name, size, "the terminal");
}

static void name_answerer(struct prompt *prompt) {
  char name[40];
  name_terminal(prompt, name, sizeof name);
  snprintf(prompt->by, sizeof prompt->by, "uid %u at %s", (unsigned)getuid(), name);
}

struct prompt *prompt_new(struct terminal *terminal, struct decisions *decisions,
                          const char *session_id) {
  int fd = is_ours(terminal) ? open_terminal() : -1;
  if (fd < 0)
    return NULL;
  struct prompt *prompt = xcalloc(1, sizeof *prompt);
  const char *kind = getenv("TERM");
  prompt->terminal = terminal;
  prompt->decisions = decisions;
  prompt->session_id = session_id;
  prompt->fd = fd;
  prompt->plain = !kind || strcmp(kind, "dumb") == 0;
  /* Shown in every question of the session and nowhere else, so that a workload that draws a
   * question of its own cannot draw this. */
  id_draw(prompt->mark, MARK_LENGTH);
  name_answerer(prompt);
  prompt->supervisor = (struct supervisor){.settled = on_settled, .context = prompt};
  decisions_add_supervisor(decisions, &prompt->supervisor);
  return prompt;
}

void prompt_free(struct prompt *prompt) {
  if (!prompt)
    return;
  if (prompt->fd >= 0) {
    hide(prompt);
    decisions_remove_supervisor(prompt->decisions, &prompt->supervisor);
    close(prompt->fd);
  }
  text_clear(&prompt->output);
  free(prompt);
}
