/* What a question looks like, and which keys answer it. Pure. Lines end with "\r\n": the terminal
 * is in raw mode. */
#pragma once

#include "core/text.h"
#include "session/decisions.h"
#include "session/questions.h"

struct prompt_view {
  const char *session_id;
  const char *mark; /* a word that the workload cannot know */
  size_t more;      /* questions that wait behind this one */
  unsigned seconds; /* left to answer */
  unsigned width;   /* of the terminal, in columns; 0: not known */
  unsigned height;  /* in lines; 0: not known */
  bool plain;       /* a terminal that understands no sequences */
};

/* False if the terminal is too small to show all of it: then no key may allow anything, and it says
 * so. */
bool prompt_append_question(struct text *text, const struct question *question,
                            const struct prompt_view *view);

/* The whole path, however long. */
void prompt_append_full(struct text *text, const struct question *question, unsigned width);

/* What became of it, by the reason that supervisors are told; `by` is who else has answered, or
 * NULL. */
void prompt_append_end(struct text *text, const char *how, const char *by);

/* The reply that a key stands for; false if it stands for none. `ret_reply->tree` points into the
 * question. */
bool prompt_key_reply(const struct question *question, char key, struct reply *ret_reply);

/* Appends words of ours and a name that the workload may have chosen, from the beginning of a line:
 * escaped, with spaces at its ends and side by side; in quotes if any space is left; broken before
 * the terminal's width (UINT_MAX: not at all), so that no part of it looks like a line of its own.
 * If it is longer than `limit` its middle is left out, with length and hash said. */
void prompt_append_name(struct text *text, const char *words, const char *bytes, size_t limit,
                        unsigned width);
