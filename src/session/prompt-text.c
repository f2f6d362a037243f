/* What a question looks like; see prompt-text.h. Everything that the workload chose goes through
 * the escaper and is broken at the terminal's width by us: nothing here may move the cursor but our
 * own line ends, and no line may begin with what the workload chose. */
#include "session/prompt-text.h"

#include <stdint.h>
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
#define ONWARD  ENTER "    | " /* the rest of a name that is longer than its line */
#define TOO_SMALL                                                                                  \
  "The terminal is too small for this question: nothing can be allowed here. Make it larger, or "  \
  "use sandbox watch elsewhere."
enum { ONWARD_COLUMN = 6, USUAL_WIDTH = 80, LEAST_WIDTH = 20 };

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
  if (keys[index].line == LINE_DENY)
    return keys[index].scope == SCOPE_ONCE || (question->widest > SCOPE_ONCE && !question->names);
  return keys[index].scope >= question->narrowest && keys[index].scope <= question->widest;
}

/* ---- names ---- */

/* In quotes if it has spaces; a long one without its middle, with length and hash. */
static char *show_name(const char *bytes, size_t limit) {
  _cleanup_free_ char *escaped = escape_spaces(bytes);
  const char *quote = strchr(escaped, ' ') ? "\"" : "";
  size_t length = strlen(escaped), half = limit / 2;
  if (length <= limit)
    return escape_name(bytes);
  char hash[SHA256_HEX_SIZE];
  sha256_hex(bytes, strlen(bytes), hash);
  return xasprintf("%s%.*s ... [%zu bytes, sha256 %.16s] ... %s%s", quote, (int)half, escaped,
                   strlen(bytes), hash, escaped + length - half, quote);
}

/* Not the last column: some terminals go on to the next line right after it. */
static size_t usable_width(unsigned width) {
  return (width == 0 ? USUAL_WIDTH : width < LEAST_WIDTH ? LEAST_WIDTH : width) - 1;
}

void prompt_append_name(struct text *text, const char *words, const char *bytes, size_t limit,
                        unsigned width) {
  _cleanup_free_ char *name = show_name(bytes, limit);
  size_t column = strlen(words);
  text_append(text, words);
  for (const char *at = name; *at; at++, column++) {
    if (column >= usable_width(width)) {
      text_append(text, ONWARD);
      column = ONWARD_COLUMN;
    }
    text_append_char(text, *at);
  }
}

/* ---- the question ---- */

static void append_header(struct text *text, const struct question *question,
                          const struct prompt_view *view) {
  text_appendf(text, "%s sandbox %s [%s] asks %s" ENTER, view->plain ? "" : REVERSE,
               view->session_id, view->mark, view->plain ? "" : PLAIN);
  prompt_append_name(text, "", question->exe, SHOWN_NAME, view->width);
  text_appendf(text, " wants to %s" ENTER, want_verb(question->request.want));
}

static void append_object(struct text *text, const struct question *question,
                          const struct prompt_view *view) {
  _cleanup_free_ char *host = NULL;
  const char *object = question->request.path;
  if (question->request.subject == SUBJECT_NETWORK)
    object = host = request_show(&question->request);
  text_append(text, view->plain ? "" : BOLD);
  prompt_append_name(text, "    ", object, SHOWN_PATH, view->width);
  text_append(text, view->plain ? ENTER : PLAIN ENTER);
}

static void append_details(struct text *text, const struct question *question,
                           const struct prompt_view *view) {
  _cleanup_free_ char *process = xasprintf("  process %d in ", (int)question->request.pid);
  prompt_append_name(text, process, question->cwd, SHOWN_NAME, view->width);
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

static void append_title(struct text *text, const struct question *question, enum line line,
                         const struct prompt_view *view) {
  if (line == LINE_DENY)
    text_append(text, "  deny:");
  else if (line == LINE_TREE) {
    prompt_append_name(text, "  allow all but secrets in ", question->proposal, SHOWN_NAME,
                       view->width);
    text_append(text, ":");
  } else
    text_append(text, question->names ? "  allow the names in it, nothing else:"
                      : question->request.folder && question->widest > SCOPE_ONCE
                          ? "  allow (more than once: with everything below it):"
                      : is_every_port(&question->request) ? "  allow every port of it:"
                                                          : "  allow:");
}

static void append_keys(struct text *text, const struct question *question,
                        const struct prompt_view *view) {
  for (int line = 0; line < LINE_COUNT; line++) {
    size_t offered = 0;
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
      if ((int)keys[i].line != line || !is_offered(question, i))
        continue;
      if (offered++ > 0)
        text_append(text, ",");
      else
        append_title(text, question, (enum line)line, view);
      text_appendf(text, "  %c %s", keys[i].key, keys[i].text);
    }
    text_append(text, offered ? ENTER : "");
  }
}

static size_t skip_sequence(const char *bytes) {
  size_t length = 2 + strspn(bytes + 2, "0123456789;?");
  return length + (bytes[length] != '\0');
}

/* Lines on the screen, where the terminal breaks those that are too long. */
static size_t count_lines(const char *bytes, unsigned width) {
  size_t lines = 1, column = 0;
  for (; *bytes; bytes++) {
    if (*bytes == '\033') {
      bytes += skip_sequence(bytes) - 1;
    } else if (*bytes == '\n') {
      lines++;
      column = 0;
    } else if (*bytes != '\r' && column++ >= width) {
      lines++;
      column = 1;
    }
  }
  return lines;
}

/* What is above the screen is not seen, and a line that the terminal breaks may go on with what the
 * workload likes. */
static bool fits(const char *question, const struct prompt_view *view) {
  if (view->width != 0 && view->width < LEAST_WIDTH)
    return false;
  return view->height == 0 ||
         count_lines(question, view->width ? view->width : USUAL_WIDTH) <= view->height;
}

static void append_body(struct text *text, const struct question *question,
                        const struct prompt_view *view) {
  append_header(text, question, view);
  append_object(text, question, view);
  append_details(text, question, view);
  append_keys(text, question, view);
  if (question->request.path && strlen(question->request.path) > SHOWN_PATH / 4)
    text_append(text, "  f shows the whole path" ENTER);
}

bool prompt_append_question(struct text *text, const struct question *question,
                            const struct prompt_view *view) {
  _cleanup_text_ struct text body = {0};
  append_body(&body, question, view);
  _cleanup_free_ char *last =
      xasprintf("One key, within %u s (then it is denied once): ", view->seconds);
  _cleanup_free_ char *whole = xasprintf("%s%s", text_string(&body), last);
  bool shown = fits(whole, view);
  text_appendf(text, ENTER "%s%s%s%s", view->plain ? "" : "\033[J", text_string(&body),
               shown ? "" : TOO_SMALL ENTER, last);
  return shown;
}

void prompt_append_full(struct text *text, const struct question *question, unsigned width) {
  const char *bytes = question->request.path ? question->request.path : question->request.host;
  text_append(text, ENTER);
  prompt_append_name(text, "    ", bytes, SIZE_MAX, width);
  text_append(text, ENTER);
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

void prompt_append_end(struct text *text, const char *how, const char *by) {
  static const struct {
    const char *how, *words;
  } ends[] = {
      {"timeout", "denied: nobody has answered in time"},
      {"audit", "denied: the answer could not be written to the audit log"},
      {"closed", "denied: whoever was asked has left"},
      {"rest", "denied, as everything else"},
      {"withdrawn", "withdrawn: nobody waits for the answer any more"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
    if (strcmp(how, ends[i].how) == 0) {
      text_appendf(text, "%s\r\n", ends[i].words);
      return;
    }
  }
  _cleanup_free_ char *who = by ? escape_string(by) : NULL;
  text_appendf(text, "%s%s%s\r\n", how, who ? " by " : "", who ? who : "");
}
