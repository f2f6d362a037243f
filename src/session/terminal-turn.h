/* Whose turn it is at a terminal that several sessions of a user share. A question takes the turn;
 * until it is answered the other sessions neither write to the terminal nor read from it: nothing
 * can be painted over the question, and no key goes elsewhere. Never blocks. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

struct terminal_turn {
  int fd;      /* a file that all these sessions lock; -1: nobody else can be told */
  off_t place; /* the terminal's byte of it */
};
#define TERMINAL_TURN_ALONE ((struct terminal_turn){.fd = -1})

/* At the terminal behind one of our first three descriptors. */
struct terminal_turn terminal_turn_open(const char *state_home);
void terminal_turn_close(struct terminal_turn *turn);

/* For a question: false if another session is asking, or is just writing. */
bool terminal_turn_take(const struct terminal_turn *turn);

/* To write or read a little: false if another session is asking. */
bool terminal_turn_share(const struct terminal_turn *turn);

void terminal_turn_leave(const struct terminal_turn *turn);
