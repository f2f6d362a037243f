/* Calling the `sandbox` command. A process of its own, started by posix_spawn, because a monitor
 * blocks signals, forks and waits, none of which a library may do to its caller; and because fork
 * without exec is not safe in a program with threads. docs/LIBRARY.md weighs it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "core/cleanup.h"
#include "core/escape.h"

/* The numbers of our descriptors in the new process; ours here are above all of them, so that none
 * is overwritten before it was copied. */
enum { AT_STATUS = 3, AT_LIFELINE, AT_POLICY, AT_FIRST_FREE };
enum { OURS_ABOVE = 32, OUTPUT_MAX = 1 << 30 };

enum { PIPE_OUTPUT, PIPE_ERRORS, PIPE_STATUS, PIPE_LIFELINE, PIPE_COUNT };

struct helper {
  const struct helper_call *call;
  struct helper_answer *answer;
  int ours[PIPE_COUNT], theirs[PIPE_COUNT]; /* -1 where not used */
  int input, policy;
  struct text status; /* a line that is not complete yet */
  struct strv words;
  pid_t child;
};

void helper_answer_clear(struct helper_answer *answer) {
  text_clear(&answer->output);
  text_clear(&answer->errors);
}

/* ---- descriptors ---- */

static void close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

static int move_up(int fd) {
  if (fd < 0 || fd >= OURS_ABOVE)
    return fd;
  int moved = fcntl(fd, F_DUPFD_CLOEXEC, OURS_ABOVE);
  int errnum = errno;
  close(fd);
  errno = errnum;
  return moved < 0 ? -errnum : moved;
}

static int make_pipe(struct helper *helper, int which, bool we_read) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -errno;
  helper->ours[which] = move_up(ends[we_read ? 0 : 1]);
  helper->theirs[which] = move_up(ends[we_read ? 1 : 0]);
  return helper->ours[which] < 0 || helper->theirs[which] < 0 ? -EMFILE : 0;
}

static int make_file(const void *data, size_t length, int *ret_fd) {
  *ret_fd = move_up(api_memory_file(data, length));
  return *ret_fd < 0 ? *ret_fd : 0;
}

static int make_descriptors(struct helper *helper) {
  const struct sb_options *options = helper->call->options;
  int result = make_pipe(helper, PIPE_OUTPUT, true);
  if (result == 0)
    result = make_pipe(helper, PIPE_ERRORS, true);
  if (result == 0 && helper->call->wants_status)
    result = make_pipe(helper, PIPE_STATUS, true);
  if (result == 0 && helper->call->wants_lifeline)
    result = make_pipe(helper, PIPE_LIFELINE, false);
  if (result == 0 && options && options->policy)
    result = make_file(options->policy, strlen(options->policy), &helper->policy);
  if (result == 0 && options && options->input)
    result = make_file(options->input, options->input_length, &helper->input);
  return result;
}

/* ---- the words ---- */

static void make_words(struct helper *helper) {
  const struct sb_options *options = helper->call->options;
  struct strv *words = &helper->words;
  strv_add(words, "sandbox");
  strv_add(words, helper->call->verb);
  if (options && options->policy)
    strv_addf(words, "--policy=/proc/self/fd/%d", AT_POLICY);
  for (size_t i = 0; options && i < options->words.count; i++)
    strv_add(words, options->words.items[i]);
  if (helper->call->wants_status)
    strv_addf(words, "--status-fd=%d", AT_STATUS);
  if (helper->call->wants_lifeline)
    strv_addf(words, "--lifeline=%d", AT_LIFELINE);
  STRV_FOREACH (word, helper->call->words)
    strv_add(words, *word);
}

/* ---- starting ---- */

static void add_actions(const struct helper *helper, posix_spawn_file_actions_t *actions) {
  const struct sb_options *options = helper->call->options;
  const struct {
    int fd, as;
  } kept[] = {{helper->theirs[PIPE_OUTPUT], STDOUT_FILENO},
              {helper->theirs[PIPE_ERRORS], STDERR_FILENO},
              {helper->theirs[PIPE_STATUS], AT_STATUS},
              {helper->theirs[PIPE_LIFELINE], AT_LIFELINE},
              {helper->policy, AT_POLICY}};
  if (options && options->folder)
    posix_spawn_file_actions_addchdir_np(actions, options->folder);
  if (helper->input >= 0)
    posix_spawn_file_actions_adddup2(actions, helper->input, STDIN_FILENO);
  else
    posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
    if (kept[i].fd >= 0)
      posix_spawn_file_actions_adddup2(actions, kept[i].fd, kept[i].as);
    else if (kept[i].as > STDERR_FILENO)
      posix_spawn_file_actions_addclose(actions, kept[i].as);
  }
  posix_spawn_file_actions_addclosefrom_np(actions, AT_FIRST_FREE);
}

/* The caller's terminal, signal mask and ignored signals are its own. */
static void set_attributes(posix_spawnattr_t *attributes) {
  sigset_t none, all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &all);
  posix_spawnattr_setflags(attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
}

/* The one that was installed with this library; else the first of the caller's PATH. */
static const char *command_of(const struct sb_options *options) {
  if (options && options->command)
    return options->command;
  return access(SANDBOX_BINARY, X_OK) == 0 ? SANDBOX_BINARY : "sandbox";
}

static int spawn(struct helper *helper) {
  const struct sb_options *options = helper->call->options;
  bool own = options && options->has_environment;
  char *nothing[] = {NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  add_actions(helper, &actions);
  set_attributes(&attributes);
  int result = posix_spawnp(
      &helper->child, command_of(options), &actions, &attributes, helper->words.items,
      own ? (options->environment.count > 0 ? options->environment.items : nothing) : environ);
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  for (int i = 0; i < PIPE_COUNT; i++)
    close_fd(&helper->theirs[i]);
  return -result;
}

/* ---- listening ---- */

static void tell_events(struct helper *helper) {
  const struct sb_options *options = helper->call->options;
  char *newline;
  while (helper->status.length > 0 && (newline = strchr(helper->status.data, '\n'))) {
    *newline = '\0';
    options->on_event(options->event_context, helper->status.data);
    size_t used = (size_t)(newline + 1 - helper->status.data);
    memmove(helper->status.data, newline + 1, helper->status.length - used + 1);
    helper->status.length -= used;
  }
}

static void read_pipe(struct helper *helper, int which) {
  struct text *texts[] = {&helper->answer->output, &helper->answer->errors, &helper->status};
  char buffer[65536];
  ssize_t got = read(helper->ours[which], buffer, sizeof buffer);
  if (got < 0 && (errno == EINTR || errno == EAGAIN))
    return;
  if (got <= 0 || texts[which]->length > OUTPUT_MAX) {
    close_fd(&helper->ours[which]);
    return;
  }
  text_append_bytes(texts[which], buffer, (size_t)got);
  if (which == PIPE_STATUS)
    tell_events(helper);
}

/* Until its stdout and stderr are closed: it is the one who closes them last. */
static void listen(struct helper *helper) {
  int cancel = helper->call->options ? helper->call->options->cancel_fd : -1;
  while (helper->ours[PIPE_OUTPUT] >= 0 || helper->ours[PIPE_ERRORS] >= 0) {
    struct pollfd watched[] = {{.fd = helper->ours[PIPE_OUTPUT], .events = POLLIN},
                               {.fd = helper->ours[PIPE_ERRORS], .events = POLLIN},
                               {.fd = helper->ours[PIPE_STATUS], .events = POLLIN},
                               {.fd = cancel, .events = POLLIN}};
    if (poll(watched, ARRAY_SIZE(watched), -1) < 0)
      continue;
    if (watched[3].revents) {
      helper->answer->cancelled = true;
      close_fd(&helper->ours[PIPE_LIFELINE]);
      cancel = -1;
    }
    for (int which = PIPE_OUTPUT; which <= PIPE_STATUS; which++)
      if (watched[which].revents)
        read_pipe(helper, which);
  }
}

/* Only our own child. A caller that reaps every child has done it already, which is fine: what
 * counts is what the command said. */
static void reap(const struct helper *helper) {
  while (waitpid(helper->child, NULL, 0) < 0 && errno == EINTR)
    ;
}

static void finish(struct helper *helper) {
  for (int i = 0; i < PIPE_COUNT; i++) {
    close_fd(&helper->theirs[i]);
    close_fd(&helper->ours[i]);
  }
  close_fd(&helper->input);
  close_fd(&helper->policy);
  text_clear(&helper->status);
  strv_clear(&helper->words);
}

static int fail_spawn(const struct helper_call *call, int errnum, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(command_of(call->options));
  sb_fail(error, SB_CODE_NOT_FOUND, errnum, "starting '%s'", shown);
  return sb_hint(error, "is sandbox installed, and does the folder exist? sb_options_set_command "
                        "names another program");
}

int helper_run(const struct helper_call *call, struct helper_answer *ret, struct sb_error *error) {
  struct helper helper = {.call = call,
                          .answer = ret,
                          .ours = {-1, -1, -1, -1},
                          .theirs = {-1, -1, -1, -1},
                          .input = -1,
                          .policy = -1};
  int result = make_descriptors(&helper);
  if (result < 0) {
    finish(&helper);
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes");
  }
  make_words(&helper);
  result = spawn(&helper);
  if (result < 0) {
    finish(&helper);
    return fail_spawn(call, -result, error);
  }
  listen(&helper);
  reap(&helper);
  if (call->ret_lifeline)
    *call->ret_lifeline = steal_fd(&helper.ours[PIPE_LIFELINE]);
  finish(&helper);
  return 0;
}

/* ---- what it said ---- */

static enum sb_code code_named(const char *name) {
  for (int code = SB_CODE_NONE + 1; name && code < SB_CODE_COUNT; code++)
    if (strcmp(sb_code_name(code), name) == 0)
      return (enum sb_code)code;
  return SB_CODE_SYSTEM;
}

static void fail_as_told(const json_t *problem, struct sb_error *error) {
  const char *message = json_string_value(json_object_get(problem, "message"));
  const char *hint = json_string_value(json_object_get(problem, "hint"));
  sb_fail(error, code_named(json_string_value(json_object_get(problem, "code"))), 0, "%s",
          message ? message : "refused");
  if (hint)
    sb_hint(error, "%s", hint);
}

json_t *helper_json(const struct helper_answer *answer, struct sb_error *error) {
  json_t *object =
      json_loadb(text_string(&answer->output), answer->output.length, JSON_ALLOW_NUL, NULL);
  if (!json_is_object(object)) {
    _cleanup_free_ char *said = escape_string(text_string(&answer->errors));
    json_decref(object);
    sb_fail(error, SB_CODE_SYSTEM, 0, "sandbox gave no result%s%s", *said ? ": " : "", said);
    return NULL;
  }
  const json_t *problem = json_object_get(object, "error");
  if (problem) {
    fail_as_told(problem, error);
    json_decref(object);
    return NULL;
  }
  return object;
}
