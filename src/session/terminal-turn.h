/* Whose turn it is at a terminal that several sessions of a user share. A question takes the turn;
 * until it is answered the other sessions neither write to the terminal nor read from it: nothing
 * can be painted over the question, and no key goes elsewhere. Never blocks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct terminal_turn {
  int fd;      /* a file that all these sessions lock; -1: nobody else can be told */
  off_t place; /* the terminal's byte of it */
  int news;    /* readable when somebody has written a note; -1: nobody tells us */
};
#define TERMINAL_TURN_ALONE ((struct terminal_turn){.fd = -1, .news = -1})

/* At the terminal behind one of our first three descriptors. */
struct terminal_turn terminal_turn_open(const char *state_home);
void terminal_turn_close(struct terminal_turn *turn);

/* For a question: false if another session is asking, or is just writing. */
bool terminal_turn_take(const struct terminal_turn *turn);

/* To write or read a little: false if another session is asking. */
bool terminal_turn_share(const struct terminal_turn *turn);

void terminal_turn_leave(const struct terminal_turn *turn);

/* A note about the terminal that all these sessions read and write, by turns of its own: those last
 * for a moment only, so whoever locks it waits. There is none at first, and none after a note of no
 * size; where nobody else can be told, there never is. */
enum { TERMINAL_NOTE_SIZE = 64 };
void terminal_turn_lock_note(const struct terminal_turn *turn);
void terminal_turn_unlock_note(const struct terminal_turn *turn);
bool terminal_turn_read_note(const struct terminal_turn *turn, void *ret_note, size_t size);
void terminal_turn_write_note(const struct terminal_turn *turn, const void *note, size_t size);
void terminal_turn_read_news(const struct terminal_turn *turn);
