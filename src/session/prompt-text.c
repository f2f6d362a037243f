/* What a question looks like; see prompt-text.h. Everything that the workload chose goes through
 * the escaper: nothing here may move the cursor but our own line ends. */
#include "session/prompt-text.h"

#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/sha256.h"

enum { SHOWN_PATH = 400, SHOWN_NAME = 120 };
#define REVERSE "\033[7m"
#define BOLD    "\033[1m"
#define PLAIN   "\033[0m"
#define ENTER   "\r\n"

/* One row per answer; what cannot be given for a question is not offered. */
static const struct {
  char key;
  bool allow;
  enum grant_scope scope;
  bool tree, rest;
  const char *text; /* %s: what is meant */
} keys[] = {
    {'o', true, SCOPE_ONCE, false, false, "allow once"},
    {'s', true, SCOPE_SESSION, false, false, "allow for this session%s"},
    {'t', true, SCOPE_SESSION, true, false, "allow everything in %s for this session"},
    {'p', true, SCOPE_PROJECT, false, false, "allow always in this project%s"},
    {'u', true, SCOPE_USER, false, false, "allow always, for you%s"},
    {'P', true, SCOPE_PROJECT, true, false, "allow everything in %s always in this project"},
    {'U', true, SCOPE_USER, true, false, "allow everything in %s always, for you"},
    {'d', false, SCOPE_ONCE, false, false, "deny"},
    {'D', false, SCOPE_USER, false, false, "deny always"},
    {'N', false, SCOPE_ONCE, false, true, "deny everything else in this session"},
};

static bool is_offered(const struct question *question, size_t index) {
  if (keys[index].tree)
    return question->proposal && !question->secret;
  return !keys[index].allow || keys[index].scope <= question->widest;
}

char *prompt_elide(const char *bytes, size_t limit) {
  char *escaped = escape_string(bytes);
  size_t length = strlen(escaped);
  if (length <= limit)
    return escaped;
  char hash[SHA256_HEX_SIZE];
  sha256_hex(bytes, strlen(bytes), hash);
  size_t half = limit / 2;
  char *elided = xasprintf("%.*s ... [%zu bytes, sha256 %.16s] ... %s", (int)half, escaped,
                           strlen(bytes), hash, escaped + length - half);
  free(escaped);
  return elided;
}

static void append_header(struct text *text, const struct question *question,
                          const struct prompt_view *view) {
  _cleanup_free_ char *exe = prompt_elide(question->exe, SHOWN_NAME);
  text_appendf(text, "%s sandbox %s [%s] asks %s" ENTER, view->plain ? "" : REVERSE,
               view->session_id, view->mark, view->plain ? "" : PLAIN);
  text_appendf(text, "%s wants to %s" ENTER, exe, want_verb(question->request.want));
}

static void append_object(struct text *text, const struct question *question,
                          const struct prompt_view *view) {
  _cleanup_free_ char *host = NULL;
  const char *object = question->request.path;
  if (question->request.subject == SUBJECT_NETWORK)
    object = host = request_show(&question->request);
  _cleanup_free_ char *shown = prompt_elide(object, SHOWN_PATH);
  text_appendf(text, "    %s%s%s" ENTER, view->plain ? "" : BOLD, shown, view->plain ? "" : PLAIN);
}

static void append_details(struct text *text, const struct question *question,
                           const struct prompt_view *view) {
  _cleanup_free_ char *cwd = prompt_elide(question->cwd, SHOWN_NAME);
  text_appendf(text, "  process %d in %s", (int)question->request.pid, cwd);
  if (question->waiter_count > 1)
    text_appendf(text, "; %zu calls wait for it", question->waiter_count);
  if (view->more > 0)
    text_appendf(text, "; %zu more question%s after this one", view->more,
                 view->more == 1 ? "" : "s");
  text_append(text, ENTER);
  if (question->secret)
    text_appendf(text, "  %sWARNING: this is a secret: %s%s" ENTER, view->plain ? "" : REVERSE,
                 question->secret, view->plain ? "" : PLAIN);
}

static void append_keys(struct text *text, const struct question *question) {
  _cleanup_free_ char *tree =
      question->proposal ? prompt_elide(question->proposal, SHOWN_NAME) : NULL;
  const char *below = question->request.folder ? ", with everything below it" : "";
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
    if (!is_offered(question, i))
      continue;
    const char *at = strstr(keys[i].text, "%s");
    text_appendf(text, "  %c  ", keys[i].key);
    text_append_bytes(text, keys[i].text, at ? (size_t)(at - keys[i].text) : strlen(keys[i].text));
    if (at)
      text_appendf(text, "%s%s", keys[i].tree ? tree : below, at + 2);
    text_append(text, ENTER);
  }
}

void prompt_append_question(struct text *text, const struct question *question,
                            const struct prompt_view *view) {
  text_append(text, "\r\n");
  if (!view->plain)
    text_append(text, "\033[J");
  append_header(text, question, view);
  append_object(text, question, view);
  append_details(text, question, view);
  append_keys(text, question);
  if (question->request.path && strlen(question->request.path) > SHOWN_PATH / 4)
    text_append(text, "  f  show the whole path" ENTER);
  text_appendf(text, "One key, within %u s (then it is denied once): ", view->seconds);
}

void prompt_append_full(struct text *text, const struct question *question) {
  const char *bytes = question->request.path ? question->request.path : question->request.host;
  text_append(text, "\r\n");
  escape_append(text, bytes, strlen(bytes));
  text_append(text, "\r\n");
}

bool prompt_key_reply(const struct question *question, char key, struct reply *ret_reply) {
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
    if (keys[i].key != key || !is_offered(question, i))
      continue;
    *ret_reply = (struct reply){.allow = keys[i].allow,
                                .scope = keys[i].scope,
                                .tree = keys[i].tree ? question->proposal : NULL,
                                .rest = keys[i].rest};
    return true;
  }
  return false;
}
