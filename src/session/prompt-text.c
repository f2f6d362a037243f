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

/* One row per answer, line by line; what cannot be given for a question is not offered. */
enum line { LINE_OBJECT, LINE_TREE, LINE_DENY, LINE_COUNT };
static const struct {
  enum line line;
  char key;
  enum grant_scope scope;
  bool rest;
  const char *text;
} keys[] = {
    {LINE_OBJECT, 'o', SCOPE_ONCE, false, "once"},
    {LINE_OBJECT, 's', SCOPE_SESSION, false, "this session"},
    {LINE_OBJECT, 'p', SCOPE_PROJECT, false, "always in this project"},
    {LINE_OBJECT, 'u', SCOPE_USER, false, "always, for you"},
    {LINE_TREE, 't', SCOPE_SESSION, false, "this session"},
    {LINE_TREE, 'P', SCOPE_PROJECT, false, "always in this project"},
    {LINE_TREE, 'U', SCOPE_USER, false, "always, for you"},
    {LINE_DENY, 'd', SCOPE_ONCE, false, "once"},
    {LINE_DENY, 'D', SCOPE_USER, false, "always"},
    {LINE_DENY, 'N', SCOPE_ONCE, true, "everything else in this session, too"},
};

static bool is_offered(const struct question *question, size_t index) {
  if (keys[index].line == LINE_TREE && (!question->proposal || question->secret))
    return false;
  return keys[index].line == LINE_DENY ||
         (keys[index].scope >= question->narrowest && keys[index].scope <= question->widest);
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

static bool is_every_port(const struct access_request *request) {
  return request->subject == SUBJECT_NETWORK && request->port == 0;
}

static char *line_title(const struct question *question, enum line line) {
  if (line == LINE_DENY)
    return xstrdup("deny:");
  if (line == LINE_OBJECT)
    return xstrdup(question->request.folder && question->widest > SCOPE_ONCE
                       ? "allow (more than once: with everything below it):"
                   : is_every_port(&question->request) ? "allow every port of it:"
                                                       : "allow:");
  _cleanup_free_ char *tree = prompt_elide(question->proposal, SHOWN_NAME);
  return xasprintf("allow everything in %s:", tree);
}

static void append_keys(struct text *text, const struct question *question) {
  for (int line = 0; line < LINE_COUNT; line++) {
    size_t offered = 0;
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
      if ((int)keys[i].line != line || !is_offered(question, i))
        continue;
      _cleanup_free_ char *title = offered++ ? NULL : line_title(question, (enum line)line);
      text_appendf(text, "%s%s  %c %s", title ? "  " : ",", title ? title : "", keys[i].key,
                   keys[i].text);
    }
    text_append(text, offered ? ENTER : "");
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
    text_append(text, "  f shows the whole path" ENTER);
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
    *ret_reply = (struct reply){.allow = keys[i].line != LINE_DENY,
                                .scope = keys[i].scope,
                                .tree = keys[i].line == LINE_TREE ? question->proposal : NULL,
                                .rest = keys[i].rest};
    return true;
  }
  return false;
}
