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
  bool plain;       /* a terminal that understands no sequences */
};

void prompt_append_question(struct text *text, const struct question *question,
                            const struct prompt_view *view);

/* The whole path, however long. */
void prompt_append_full(struct text *text, const struct question *question);

/* The reply that a key stands for; false if it stands for none. `ret_reply->tree` points into the
 * question. */
bool prompt_key_reply(const struct question *question, char key, struct reply *ret_reply);

/* Escaped, and if it is longer than `limit` its middle left out, with length and hash said. New
 * string. */
char *prompt_elide(const char *bytes, size_t limit);
