/* `sandbox watch`: the questions of all sessions, live, and the keys that answer them. One
 * supervisor of each session, like any other program (docs/PROTOCOL.md). */
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include "cli/session.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/text.h"
#include "session/prompt-text.h"
#include "session/prompt.h"
#include "session/questions.h"
#include "session/screen.h"
#include "session/terminal-turn.h"

enum watch_option { WATCH_JSON, WATCH_OBSERVE };

static const struct option_spec watch_options[] = {
    {WATCH_JSON, "json", 0, ARGUMENT_NONE, NULL,
     "print every message of the sessions as one JSON object a line", COMPLETE_NONE},
    {WATCH_OBSERVE, "observe", 0, ARGUMENT_NONE, NULL,
     "only look: no session waits for an answer because of us", COMPLETE_NONE},
    {0},
};

#define RESCAN_MS 1000
#define TURN_MS   50 /* how often to look whether a session has finished its line */
#define QUIET_NS  (400ull * 1000 * 1000) /* what is typed sooner was not meant for the question */
enum { SESSION_LIMIT_WATCHED = 512, SHOWN_PATH = 400, SHOWN_NAME = 120 };

struct watched_session {
  char *id, *folder;
  struct client_connection connection; /* fd -1: it asks nobody, or has left */
  bool greeted;
};

struct pending {
  size_t session; /* index */
  struct question *question;
  uint64_t deadline_ns;
};

struct watch {
  const struct invocation *invocation;
  const char *only; /* prefix of one session, or NULL */
  struct watched_session *sessions;
  size_t session_count;
  struct pending *pending;
  size_t pending_count;
  char shown[QUESTION_ID_SIZE]; /* id of the question on the screen */
  bool fits;                    /* on the screen, */
  unsigned width, height;       /* which was this large then */
  uint64_t quiet_until_ns;
  bool keys; /* stdin and stdout are a terminal */
  bool json, over;
  struct terminal_turn turn; /* at this terminal: sessions of ours may write to it, too */
  bool joined;
  int attendance; /* says that new sessions need not do without us; -1: it is not said */
  int news;       /* inotify: there may be a new one; -1: nobody tells us */
  int signals;    /* signalfd: the terminal is put back, whoever ends us */
  struct termios saved;
};

/* ---- the screen ---- */

static void say(struct watch *watch, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(struct watch *watch, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  _cleanup_free_ char *sentence = xvasprintf(format, arguments);
  va_end(arguments);
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "%s%s", sentence, watch->keys ? "\r\n" : "\n");
  watch->over |= cli_print(text_string(&text)) != 0;
}

static void await_quiet(struct watch *watch) {
  watch->quiet_until_ns = monotonic_ns() + QUIET_NS;
}

static bool is_shown(const struct watch *watch, const struct question *question) {
  return strcmp(watch->shown, question->id) == 0;
}

/* What was shown may be broken or out of sight since. */
static bool has_changed_size(const struct watch *watch) {
  return watch->width != prompt_width(STDOUT_FILENO) ||
         watch->height != prompt_height(STDOUT_FILENO);
}

/* A session in the background of this terminal prints to it: not while there is a question, or it
 * could paint over what it asks itself. */
static bool take_turn(struct watch *watch) {
  if (watch->pending_count > 0)
    return terminal_turn_take(&watch->turn);
  terminal_turn_leave(&watch->turn);
  return false;
}

/* The oldest question as a prompt, if we have keys; the others wait behind it. */
static void show_oldest(struct watch *watch) {
  if (!watch->keys || !take_turn(watch) ||
      (is_shown(watch, watch->pending[0].question) && !has_changed_size(watch)))
    return;
  const struct pending *oldest = &watch->pending[0];
  uint64_t now = monotonic_ns();
  watch->width = prompt_width(STDOUT_FILENO);
  watch->height = prompt_height(STDOUT_FILENO);
  struct prompt_view view = {
      .session_id = watch->sessions[oldest->session].id,
      .mark = "watch",
      .more = watch->pending_count - 1,
      .seconds =
          oldest->deadline_ns > now ? (unsigned)((oldest->deadline_ns - now) / 1000000000) : 0,
      .width = watch->width,
      .height = watch->height,
  };
  _cleanup_text_ struct text text = {0};
  tcflush(STDIN_FILENO, TCIFLUSH); /* typed before anybody could see the question */
  /* Sessions in the background may have asked for keys as sequences; what they printed is not known
   * here. */
  screen_append_reset(&(struct screen){.keys_known = true}, &text);
  watch->fits = prompt_append_question(&text, oldest->question, &view);
  watch->over |= cli_print(text_string(&text)) != 0;
  memcpy(watch->shown, oldest->question->id, sizeof watch->shown);
  await_quiet(watch);
}

/* Without keys it is one line for each, however long: perhaps a program reads them. */
static unsigned line_width(const struct watch *watch) {
  return watch->keys ? prompt_width(STDOUT_FILENO) : UINT_MAX;
}

static void append_object(struct watch *watch, struct text *text, const char *words,
                          const struct access_request *request) {
  _cleanup_free_ char *host = request->path ? NULL : request_show(request);
  prompt_append_name(text, words, host ? host : request->path, SHOWN_PATH, line_width(watch));
}

static void list_question(struct watch *watch, const struct pending *pending) {
  const struct question *question = pending->question;
  _cleanup_text_ struct text line = {0};
  _cleanup_free_ char *id =
      xasprintf("%s %.8s  ", watch->sessions[pending->session].id, question->id);
  prompt_append_name(&line, id, question->exe, SHOWN_NAME, line_width(watch));
  text_appendf(&line, " (pid %d) wants to %s", (int)question->request.pid,
               want_verb(question->request.want));
  append_object(watch, &line, " ", &question->request);
  if (question->names)
    text_append(&line, " (more than once: its names, nothing else)");
  say(watch, "%s", text_string(&line));
}

/* ---- questions ---- */

static void remove_pending(struct watch *watch, size_t index) {
  question_free(watch->pending[index].question);
  watch->pending_count--;
  memmove(watch->pending + index, watch->pending + index + 1,
          (watch->pending_count - index) * sizeof *watch->pending);
}

static void add_pending(struct watch *watch, size_t session, const json_t *message) {
  struct question *question = question_from_json(message);
  if (!question)
    return;
  double left = json_number_value(json_object_get(message, "seconds_left"));
  ARRAY_GROW(watch->pending, watch->pending_count);
  watch->pending[watch->pending_count++] = (struct pending){
      .session = session,
      .question = question,
      .deadline_ns = monotonic_ns() + (uint64_t)(left * 1e9),
  };
  if (!watch->keys)
    list_question(watch, &watch->pending[watch->pending_count - 1]);
}

static void settle_pending(struct watch *watch, const json_t *message) {
  const char *id = json_string_value(json_object_get(message, "id"));
  const char *reason = json_string_value(json_object_get(message, "reason"));
  for (size_t i = 0; id && i < watch->pending_count; i++) {
    if (strcmp(watch->pending[i].question->id, id) != 0)
      continue;
    if (watch->keys && !is_shown(watch, watch->pending[i].question)) {
      remove_pending(watch, i); /* nobody has seen it; and the one that is shown stays in sight */
      return;
    }
    _cleanup_text_ struct text line = {0};
    _cleanup_free_ char *how = escape_string(reason ? reason : "settled");
    _cleanup_free_ char *words =
        xasprintf("%s %.8s  %s: ", watch->sessions[watch->pending[i].session].id, id, how);
    append_object(watch, &line, words, &watch->pending[i].question->request);
    say(watch, "%s", text_string(&line));
    remove_pending(watch, i);
    return;
  }
}

/* ---- sessions ---- */

static void print_message(struct watch *watch, size_t session, json_t *message) {
  json_set_string(message, "sid", watch->sessions[session].id);
  _cleanup_free_ char *line = json_line(message);
  watch->over |= cli_print(line) != 0;
}

/* A session that asks nobody has nothing for people to answer; programs get what it tells. */
static bool is_of_use(const struct watch *watch, const json_t *reply) {
  return watch->json || !json_is_false(json_object_get(reply, "asks"));
}

static void take_message(struct watch *watch, size_t session, json_t *message) {
  const char *event = json_string_value(json_object_get(message, "event"));
  if (!event && !is_of_use(watch, message))
    client_close(&watch->sessions[session].connection);
  if (!event)
    return;
  if (strcmp(event, "event.hello") == 0)
    watch->sessions[session].greeted = true;
  else if (watch->json)
    print_message(watch, session, message);
  else if (strcmp(event, "event.withdrawn") == 0)
    settle_pending(watch, message);
  else
    add_pending(watch, session, message);
}

/* What it asked goes with it. */
static void drop_session(struct watch *watch, size_t session) {
  client_close(&watch->sessions[session].connection);
  for (size_t i = watch->pending_count; i-- > 0;) {
    if (watch->pending[i].session == session)
      remove_pending(watch, i);
  }
  if (!watch->json && watch->sessions[session].greeted)
    say(watch, "%s has ended", watch->sessions[session].id);
  watch->over |= watch->only != NULL;
}

static void read_session(struct watch *watch, size_t session) {
  struct client_connection *connection = &watch->sessions[session].connection;
  do {
    _cleanup_error_ struct sb_error error = {0};
    json_t *message = NULL;
    if (client_read(connection, &message, &error) < 0) {
      drop_session(watch, session);
      return;
    }
    take_message(watch, session, message);
    json_decref(message);
  } while (client_has_message(connection));
}

static bool is_watched(const struct watch *watch, const char *id) {
  for (size_t i = 0; i < watch->session_count; i++) {
    if (strcmp(watch->sessions[i].id, id) == 0)
      return true;
  }
  return false;
}

static int check_asks(const struct watch *watch, const json_t *reply, struct sb_error *error) {
  if (is_of_use(watch, reply))
    return 0;
  sb_fail(error, SB_CODE_CONFLICT, 0, "the session asks nobody: it runs in static mode");
  return sb_hint(error, "start it in dynamic mode, or use --json to see what it tells");
}

static bool is_observer(const struct watch *watch) {
  return invocation_has(watch->invocation, WATCH_OBSERVE);
}

static int request_watch(struct watch *watch, struct client_connection *connection,
                         struct sb_error *error) {
  json_t *request = json_pack("{s:s, s:b}", "cmd", "cmd.watch", "observe", is_observer(watch));
  return client_send(connection, request, NULL, 0, error);
}

static void add_session(struct watch *watch, const struct registry_entry *entry,
                        const struct client_connection *connection, bool greeted) {
  ARRAY_GROW(watch->sessions, watch->session_count);
  watch->sessions[watch->session_count++] =
      (struct watched_session){.id = xstrdup(entry->id),
                               .folder = xstrdup(entry->folder),
                               .connection = *connection,
                               .greeted = greeted};
}

/* The one that was named has to answer, and to ask. */
static int connect_named(struct watch *watch, const struct registry_entry *entry,
                         struct sb_error *error) {
  struct client_connection connection = {.fd = -1};
  json_t *reply = NULL;
  int result = client_open(entry->folder, &connection, error);
  if (result == 0)
    result = request_watch(watch, &connection, error);
  if (result == 0)
    result = client_read(&connection, &reply, error);
  if (result == 0)
    result = check_asks(watch, reply, error);
  json_decref(reply);
  if (result < 0) {
    client_close(&connection);
    return -1;
  }
  add_session(watch, entry, &connection, true);
  if (client_has_message(&connection))
    read_session(watch, watch->session_count - 1);
  return 0;
}

/* Any other may be stopped, and its greeting is not waited for: there are questions meanwhile. */
static void connect_another(struct watch *watch, const struct registry_entry *entry) {
  _cleanup_error_ struct sb_error ignored = {0}; /* gone meanwhile; if not, it is tried again */
  struct client_connection connection = {.fd = -1};
  if (client_begin(entry->folder, CLIENT_PATIENCE, &connection, &ignored) < 0)
    return;
  if (request_watch(watch, &connection, &ignored) < 0)
    client_close(&connection);
  else
    add_session(watch, entry, &connection, false);
}

static bool is_listed(const struct registry *registry, const char *id) {
  for (size_t i = 0; i < registry->count; i++) {
    if (strcmp(registry->entries[i].id, id) == 0)
      return true;
  }
  return false;
}

static void forget_session(struct watch *watch, size_t session) {
  free(watch->sessions[session].id);
  free(watch->sessions[session].folder);
  watch->session_count--;
  memmove(watch->sessions + session, watch->sessions + session + 1,
          (watch->session_count - session) * sizeof *watch->sessions);
  for (size_t i = 0; i < watch->pending_count; i++)
    watch->pending[i].session -= watch->pending[i].session > session;
}

/* As long as it is listed, one that has left or asks nobody would only be met once more. */
static void forget_ended(struct watch *watch, const struct registry *registry) {
  for (size_t i = watch->session_count; i-- > 0;) {
    const struct watched_session *session = &watch->sessions[i];
    if (session->connection.fd < 0 && !(session->greeted && is_listed(registry, session->id)))
      forget_session(watch, i);
  }
}

/* Where nobody can tell us of new sessions, they are looked for now and then. */
static int watch_folder(const char *folder) {
  int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (fd >= 0)
    inotify_add_watch(fd, folder, IN_MOVED_TO | IN_ONLYDIR);
  return fd;
}

static void read_news(const struct watch *watch) {
  char events[4096];
  while (watch->news >= 0 && read(watch->news, events, sizeof events) > 0)
    ;
}

static void join(struct watch *watch, const struct host_context *host) {
  watch->joined = true;
  if (watch->keys)
    watch->turn = terminal_turn_open(host->state_home);
  if (watch->only)
    return;
  if (!is_observer(watch))
    watch->attendance = registry_attend(host);
  watch->news = watch_folder(host->runtime_folder);
}

static int scan(struct watch *watch, struct sb_error *error) {
  _cleanup_choice_ struct session_choice choice = {0};
  read_news(watch);
  if (session_choose(&choice, watch->session_count ? NULL : watch->only, error) < 0)
    return -1;
  if (!watch->joined)
    join(watch, &choice.host);
  if (watch->only)
    return watch->session_count ? 0 : connect_named(watch, choice.entry, error);
  forget_ended(watch, &choice.registry);
  for (size_t i = 0; i < choice.registry.count; i++) {
    if (!is_watched(watch, choice.registry.entries[i].id) &&
        watch->session_count < SESSION_LIMIT_WATCHED)
      connect_another(watch, &choice.registry.entries[i]);
  }
  return 0;
}

/* ---- keys ---- */

static void answer(struct watch *watch, const struct reply *reply) {
  _cleanup_error_ struct sb_error error = {0};
  const struct pending *oldest = &watch->pending[0];
  json_t *answered = NULL;
  json_t *message =
      json_pack("{s:s, s:s, s:s, s:b}", "cmd", reply->allow ? "cmd.approve" : "cmd.deny", "id",
                oldest->question->id, "scope", scope_name(reply->scope), "rest", reply->rest);
  if (reply->tree)
    json_set_path(message, "tree", reply->tree);
  if (client_call(watch->sessions[oldest->session].folder, CLIENT_PATIENCE, message, &answered,
                  &error) < 0) {
    say(watch, "\r\n%s", error.message);
    watch->shown[0] = '\0'; /* once more, unless it is gone */
  }
  json_decref(answered);
}

static void take_key(struct watch *watch, char key) {
  struct reply reply;
  if (key == 'q' || key == '\003' || key == '\004')
    watch->over = true;
  else if (watch->pending_count == 0 || !is_shown(watch, watch->pending[0].question) ||
           has_changed_size(watch))
    return;
  else if (key == 'f') {
    _cleanup_text_ struct text text = {0};
    prompt_append_full(&text, watch->pending[0].question, prompt_width(STDOUT_FILENO));
    (void)cli_print(text_string(&text));
    watch->shown[0] = '\0';
  } else if (!prompt_key_reply(watch->pending[0].question, key, &reply))
    await_quiet(watch); /* perhaps the beginning of a sequence: its rest is no answer */
  else if (reply.allow && !watch->fits)
    watch->shown[0] = '\0'; /* perhaps it has become larger */
  else
    answer(watch, &reply);
}

static void read_keys(struct watch *watch) {
  char bytes[64];
  ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);
  if (got <= 0)
    watch->over = true;
  else if (got == 1 && (monotonic_ns() >= watch->quiet_until_ns || bytes[0] == '\003'))
    take_key(watch, bytes[0]);
  else
    await_quiet(watch);
}

/* ---- the verb ---- */

static void set_raw(struct watch *watch) {
  watch->keys = !watch->json && isatty(STDIN_FILENO) && isatty(STDOUT_FILENO) &&
                tcgetattr(STDIN_FILENO, &watch->saved) == 0;
  if (!watch->keys)
    return;
  struct termios modes = watch->saved;
  cfmakeraw(&modes);
  tcsetattr(STDIN_FILENO, TCSADRAIN, &modes);
  say(watch, "watching; q ends it");
}

static int take_signals(void) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGHUP);
  int fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  sigprocmask(SIG_BLOCK, &ends, NULL);
  return fd;
}

static void look_once(struct watch *watch) {
  size_t count = watch->session_count;
  struct pollfd *watched = xcalloc(count + 4, sizeof *watched);
  for (size_t i = 0; i < count; i++)
    watched[i] = (struct pollfd){.fd = watch->sessions[i].connection.fd, .events = POLLIN};
  watched[count] = (struct pollfd){.fd = watch->keys ? STDIN_FILENO : -1, .events = POLLIN};
  watched[count + 1] = (struct pollfd){.fd = watch->signals, .events = POLLIN};
  /* Whoever read what we say is gone, as with '| head': sessions must not wait for us any more. */
  watched[count + 2] = (struct pollfd){.fd = STDOUT_FILENO};
  watched[count + 3] = (struct pollfd){.fd = watch->news, .events = POLLIN};
  bool waits =
      watch->keys && watch->pending_count > 0 && !is_shown(watch, watch->pending[0].question);
  if (poll(watched, count + 4, waits ? TURN_MS : RESCAN_MS) > 0) {
    for (size_t i = 0; i < count; i++) {
      if (watched[i].revents)
        read_session(watch, i);
    }
    if (watched[count].revents)
      read_keys(watch);
    watch->over |= watched[count + 1].revents != 0 || watched[count + 2].revents != 0;
  }
  free(watched);
}

static void watch_clear(struct watch *watch) {
  if (watch->keys)
    tcsetattr(STDIN_FILENO, TCSADRAIN, &watch->saved);
  terminal_turn_close(&watch->turn);
  const int fds[] = {watch->attendance, watch->news};
  for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
    if (fds[i] >= 0)
      close(fds[i]);
  }
  while (watch->pending_count > 0)
    remove_pending(watch, 0);
  for (size_t i = 0; i < watch->session_count; i++) {
    client_close(&watch->sessions[i].connection);
    free(watch->sessions[i].id);
    free(watch->sessions[i].folder);
  }
  free(watch->pending);
  free(watch->sessions);
}

static int watch_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  struct watch watch = {
      .invocation = invocation,
      .only = invocation->operand_count ? invocation->operands[0] : NULL,
      .json = invocation_has(invocation, WATCH_JSON),
      .signals = take_signals(),
      .turn = TERMINAL_TURN_ALONE,
      .attendance = -1,
      .news = -1,
  };
  set_raw(&watch);
  int result = scan(&watch, &error);
  while (result == 0 && !watch.over) {
    show_oldest(&watch);
    look_once(&watch);
    result = scan(&watch, &error);
  }
  watch_clear(&watch);
  return result < 0 ? cli_report_for(invocation, &error) : 0;
}

const struct verb watch_verb = {
    .name = "watch",
    .synopsis = "[OPTION]... [SID]",
    .summary = "show and answer what sessions ask",
    .description =
        "Shows what your sessions, or the session SID, ask for, live, and answers with one key. "
        "While it runs, sessions without a terminal wait for an answer instead of being denied at "
        "once; when it ends and nobody else watches, what waits is denied.",
    .options = watch_options,
    .operand_completion = COMPLETE_SESSION,
    .run = watch_main,
};
