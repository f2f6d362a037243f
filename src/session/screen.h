/* What a program has done to the modes of the user's terminal, read from what it prints: a prompt
 * switches them off for its own lines and puts them back. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/text.h"

#define SCREEN_MODE_COUNT 19
#define SCREEN_KEYS_DEPTH 8

/* How keys are told (kitty's protocol): a stack of flags, of which the last one counts. */
struct screen_keys {
  unsigned flags[SCREEN_KEYS_DEPTH];
  size_t top;
};

struct screen {
  enum { SCREEN_TEXT, SCREEN_LEAD, SCREEN_ESCAPE, SCREEN_SEQUENCE } state;
  char prefix;          /* of the sequence under way: one of "?<=>", or 0 */
  char intermediate;    /* of it: one of those between space and "/", or 0 */
  unsigned numbers[16]; /* of it */
  size_t number_count;
  bool used; /* a sequence was sent: then the terminal knows them, or it is garbled anyway */
  bool on[SCREEN_MODE_COUNT], known[SCREEN_MODE_COUNT];
  bool keypad;                /* application keypad */
  struct screen_keys keys[2]; /* of the main screen, of the alternate one */
  bool keys_known;
  unsigned other_keys; /* xterm's modifyOtherKeys */
  bool images;         /* some may lie over the text (kitty's protocol) */
  bool status_line;    /* what is written goes there, and to no other line */
  bool status_line_known;
};

/* Bytes that went to the terminal. */
void screen_feed(struct screen *screen, const char *bytes, size_t length);

/* True while a full-screen program has the alternate screen. */
bool screen_is_alternate(const struct screen *screen);

/* What makes any terminal readable again, whatever was printed before: ends half a sequence, plain
 * letters, no margins, no images, no mouse, no bracketed paste, one byte for a key, cursor shown.
 */
void screen_append_reset(const struct screen *screen, struct text *text);

/* What brings the program's modes back. */
void screen_append_restore(const struct screen *screen, struct text *text);
