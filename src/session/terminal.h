/* The user's terminal while a session runs: which of our descriptors are terminals, raw mode, size,
 * and the copying between them and the session's own terminal. Restores what it changed. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plan/plan.h"
#include "session/screen.h"
#include "session/terminal-modes.h"
#include "session/terminal-turn.h"

struct terminal_buffer {
  char *data; /* there is one while there is a master */
  size_t start, end;
};

struct terminal {
  bool used[3];    /* descriptors that become the session's terminal */
  bool any;        /* one of them */
  bool raw_wanted; /* keyboard and screen are both ours: full relay */
  int input;       /* where the keys come from: does not block, if it is a terminal */
  int output;      /* where the session's terminal output goes */
  int screen_out;  /* the same while the session runs: does not block, if it is a terminal */
  int master;      /* the session's terminal, our side; -1 before and after */
  bool input_open;
  bool paused;               /* a question has keyboard and screen */
  bool waits;                /* so does a question of another session at the same terminal */
  struct terminal_turn turn; /* among those */
  struct screen screen;      /* what the session did to the user's terminal */
  struct terminal_modes modes;
  struct terminal_buffer to_session, to_user;
};

struct terminal terminal_new(enum terminal_mode mode);

/* Takes the master side and gives it the size and modes of the user's terminal. */
void terminal_connect(struct terminal *terminal, int master);

/* Minds the questions of other sessions at the same terminal from now on. Until terminal_leave. */
void terminal_join(struct terminal *terminal, const char *state_home);
void terminal_leave(struct terminal *terminal);

/* True while another job has the terminal, or a question of another session: then we neither read
 * from it nor change it. Nothing tells us when it comes back, so the caller has to look now and
 * then. */
bool terminal_is_lent(const struct terminal *terminal);

/* Also if it is ours again, or if another session has put the user's modes back. */
void terminal_set_raw(struct terminal *terminal);
void terminal_restore(struct terminal *terminal);
void terminal_resize(struct terminal *terminal); /* not while paused */

/* While paused nothing is copied in either direction; the session waits when its terminal is full.
 */
void terminal_pause(struct terminal *terminal, bool paused);

/* Copies what the session has written so far: whatever comes next on the user's terminal comes
 * after it. False if there is more than the screen takes now. */
bool terminal_catch_up(struct terminal *terminal);

/* Passes Ctrl-C on: whoever it interrupts has been when this returns. False if the session's
 * terminal is not the one that takes the keys, or has not taken the last ones yet. */
bool terminal_interrupt(struct terminal *terminal);

/* Fills in what to wait for and, after poll and terminal_set_raw, copies what is ready. */
enum { TERMINAL_WATCH_COUNT = 4 };
void terminal_watch(const struct terminal *terminal, struct pollfd watched[TERMINAL_WATCH_COUNT]);
void terminal_relay(struct terminal *terminal, const struct pollfd watched[TERMINAL_WATCH_COUNT]);

/* May something be said on stderr this moment? Not while a program or a question has the screen, of
 * ours or of another session, nor if it stands still. If so, terminal_end_saying has to follow. */
bool terminal_begin_saying(const struct terminal *terminal);
void terminal_end_saying(const struct terminal *terminal);

/* How long what comes last may wait, for the answer to a question of another session and for a
 * screen that stands still: until a signal comes that wants our end, and not long if somebody has
 * ended the session. What may not wait any more is lost. */
struct terminal_patience {
  int signals;       /* signalfd */
  uint64_t until_ns; /* 0: no end */
  bool over;
};
struct terminal_patience terminal_patience_new(int signals, bool killed);

/* Passes on what the session still wrote, after its end. */
void terminal_drain(struct terminal *terminal, struct terminal_patience *patience);

/* The same for what is to be said after it, whatever the screen does then. */
bool terminal_begin_saying_last(const struct terminal *terminal,
                                struct terminal_patience *patience);
