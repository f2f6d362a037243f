/* `sandbox exec` and `sandbox attach`: one more command in a running session. The session's init
 * starts it; we pass our descriptors, or relay our terminal to the one it got. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/exec-input.h"
#include "cli/session.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/pty.h"
#include "session/terminal.h"

#define LENT_TERMINAL_MS 200 /* how often to look whether the terminal came back */

/* ---- one command under way ---- */

struct exec_options {
  char *const *arguments;
  size_t argument_count;
  const char *folder;
  const char *state_home;   /* NULL: there is none */
  char *const *environment; /* NAME=value */
  size_t environment_count;
  bool terminal; /* one of its own for all three streams */
  bool bare;     /* it may have ours; otherwise it is relayed where a stream is one */
  bool feed;     /* stdin is a file that the session must not get */
};

struct relay {
  struct client_connection connection;
  struct terminal terminal;
  int signals;
  int id;             /* 0 until it has started */
  int early;          /* a signal that came before that */
  int exit_code;      /* -1 while it runs */
  struct strv unsaid; /* warnings that wait until the terminal is the user's again */
  const char *command;
};

static json_t *exec_request(const struct exec_options *options) {
  json_t *request = json_pack("{s:s, s:b}", "cmd", "cmd.exec", "tty", options->terminal);
  json_set_words(request, "argv", options->arguments, options->argument_count);
  json_set_words(request, "env", options->environment, options->environment_count);
  if (options->folder)
    json_set_path(request, "cwd", options->folder);
  return request;
}

static int take_signals(void) {
  static const int signals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGWINCH, SIGUSR1, SIGUSR2};
  sigset_t set;
  sigemptyset(&set);
  for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
    sigaddset(&set, signals[i]);
  int fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  sigaddset(&set, SIGPIPE);
  sigaddset(&set, SIGTTOU); /* restoring the terminal must not stop us */
  sigprocmask(SIG_BLOCK, &set, NULL);
  return fd;
}

static void send_signal(struct relay *relay, int signal, struct sb_error *error) {
  client_send(
      &relay->connection,
      json_pack("{s:s, s:i, s:i}", "cmd", "cmd.exec.signal", "id", relay->id, "signal", signal),
      NULL, 0, error);
}

static void forward_signals(struct relay *relay, struct sb_error *error) {
  struct signalfd_siginfo info;
  while (read(relay->signals, &info, sizeof info) == sizeof info) {
    if (info.ssi_signo == SIGWINCH)
      terminal_resize(&relay->terminal);
    else if (relay->id > 0)
      send_signal(relay, (int)info.ssi_signo, error);
    else if (relay->early)
      relay->exit_code = 128 + (int)info.ssi_signo; /* no answer yet, and the second one: enough */
    else
      relay->early = (int)info.ssi_signo;
  }
}

static int fail_start(const struct relay *relay, int errnum, struct sb_error *error) {
  _cleanup_free_ char *command = escape_string(relay->command);
  sb_fail(error, errnum == ENOENT ? SB_CODE_NOT_FOUND : SB_CODE_SYSTEM, errnum,
          "cannot execute '%s'", command);
  return sb_hint(error, "is it in the session's PATH, and is the folder visible inside?");
}

static int exit_code_of(int status) {
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

static void say_all(struct relay *relay) {
  STRV_FOREACH (text, &relay->unsaid)
    cli_warn("%s", *text);
  strv_clear(&relay->unsaid);
}

static void speak(struct relay *relay) {
  if (relay->unsaid.count == 0 || !terminal_begin_saying(&relay->terminal))
    return;
  say_all(relay);
  terminal_end_saying(&relay->terminal);
}

static void say_the_rest(struct relay *relay, struct terminal_patience *patience) {
  if (relay->unsaid.count > 0 && terminal_begin_saying_last(&relay->terminal, patience))
    say_all(relay);
  terminal_end_saying(&relay->terminal);
  strv_clear(&relay->unsaid);
}

static void take_warning(struct relay *relay, const json_t *message) {
  const char *text = json_string_value(json_object_get(message, "text"));
  if (text)
    strv_add(&relay->unsaid, text);
}

static int handle_event(struct relay *relay, const json_t *message, struct sb_error *error) {
  const char *event = json_string_value(json_object_get(message, "event"));
  if (!event)
    return 0;
  if (strcmp(event, "event.terminal") == 0)
    terminal_connect(&relay->terminal, relay->connection.fds[0]);
  else if (strcmp(event, "event.started") == 0) {
    relay->id = (int)json_integer_value(json_object_get(message, "id"));
    if (relay->early)
      send_signal(relay, relay->early, error);
  } else if (strcmp(event, "event.warning") == 0)
    take_warning(relay, message);
  else if (strcmp(event, "event.exited") == 0)
    relay->exit_code = exit_code_of((int)json_integer_value(json_object_get(message, "status")));
  else if (strcmp(event, "event.failed") == 0) {
    int errnum = (int)json_integer_value(json_object_get(message, "errno"));
    relay->exit_code = exit_code_of_exec(errnum);
    return fail_start(relay, errnum, error);
  }
  return 0;
}

static int read_event(struct relay *relay, struct sb_error *error) {
  json_t *message = NULL;
  if (client_read(&relay->connection, &message, error) < 0)
    return -1;
  int result = handle_event(relay, message, error);
  json_decref(message);
  return result;
}

static int relay_once(struct relay *relay, struct sb_error *error) {
  struct pollfd watched[2 + TERMINAL_WATCH_COUNT] = {{.fd = relay->connection.fd, .events = POLLIN},
                                                     {.fd = relay->signals, .events = POLLIN}};
  terminal_watch(&relay->terminal, watched + 2);
  bool unsaid = relay->unsaid.count > 0 && !relay->terminal.modes.raw;
  int wait = terminal_is_lent(&relay->terminal) || unsaid ? LENT_TERMINAL_MS : -1;
  int ready = poll(watched, ARRAY_SIZE(watched), wait);
  if (relay->terminal.master >= 0)
    terminal_set_raw(&relay->terminal); /* if it has come back meanwhile */
  if (ready < 0)
    return 0;
  terminal_relay(&relay->terminal, watched + 2);
  if (watched[1].revents)
    forward_signals(relay, error);
  int result = watched[0].revents ? read_event(relay, error) : 0;
  while (result == 0 && relay->exit_code < 0 && client_has_message(&relay->connection))
    result = read_event(relay, error);
  speak(relay);
  return result;
}

/* A command that holds our terminal reads what is typed there, and writes over questions, as long
 * as anything of it runs in the session: perhaps long after us. */
static int open_streams(struct relay *relay, const struct exec_options *options, int own[3],
                        int *ret_slave, struct sb_error *error) {
  int master;
  if (options->terminal || !relay->terminal.any)
    return 0;
  int result = pty_open(&master, ret_slave);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making a terminal");
  for (int fd = 0; fd < 3; fd++) {
    if (relay->terminal.used[fd])
      own[fd] = *ret_slave;
  }
  terminal_connect(&relay->terminal, master);
  return 0;
}

static enum terminal_mode terminal_mode_of(const struct exec_options *options) {
  return options->terminal ? TERMINAL_ALWAYS : options->bare ? TERMINAL_NEVER : TERMINAL_AUTO;
}

/* Runs the command (with a terminal or our descriptors) and relays until it ends. Returns the exit
 * code. */
static int exec_in(const char *folder, const struct exec_options *options, struct sb_error *error) {
  struct relay relay = {
      .connection = {.fd = -1},
      .terminal = terminal_new(terminal_mode_of(options)),
      .exit_code = -1,
      .command = options->arguments[0],
  };
  struct exec_input input = {.reader = STDIN_FILENO};
  _cleanup_close_ int slave = -1;
  if (client_open(folder, &relay.connection, error) < 0)
    return -1;
  client_set_patience(&relay.connection, CLIENT_WAIT_FOREVER);
  relay.signals = take_signals();
  terminal_join(&relay.terminal, options->state_home);
  int result = options->feed ? exec_input_open(&input, error) : 0;
  int own[] = {input.reader, STDOUT_FILENO, STDERR_FILENO};
  if (result == 0)
    result = open_streams(&relay, options, own, &slave, error);
  if (result == 0)
    result = client_send(&relay.connection, exec_request(options), own,
                         options->terminal ? 0 : ARRAY_SIZE(own), error);
  cleanup_close_fd(&slave); /* now it is the command's */
  while (result == 0 && relay.exit_code < 0)
    result = relay_once(&relay, error);
  struct terminal_patience patience = terminal_patience_new(relay.signals, false);
  terminal_drain(&relay.terminal, &patience);
  terminal_restore(&relay.terminal);
  say_the_rest(&relay, &patience);
  terminal_leave(&relay.terminal);
  client_close(&relay.connection);
  close(relay.signals);
  exec_input_close(&input);
  return result < 0 && relay.exit_code < 0 ? -1 : relay.exit_code;
}

/* ---- sessions of other back ends ---- */

static bool is_elsewhere(const struct registry_entry *entry) {
  const char *backend = json_string_value(json_object_get(entry->state, "backend"));
  return backend && strcmp(backend, "native") != 0 && strcmp(backend, "vm") != 0;
}

static void collect_words(const json_t *reply, const struct exec_options *options,
                          struct strv *ret_words) {
  size_t index;
  json_t *word;
  json_array_foreach(json_object_get(reply, "argv"), index, word)
      strv_add(ret_words, json_string_value(word));
  if (options->terminal)
    strv_add(ret_words, "--tty");
  if (options->folder)
    strv_addf(ret_words, "--workdir=%s", options->folder);
  for (size_t i = 0; i < options->environment_count; i++)
    strv_addf(ret_words, "--env=%s", options->environment[i]);
  strv_add(ret_words, json_string_value(json_object_get(reply, "name")));
  for (size_t i = 0; i < options->argument_count; i++)
    strv_add(ret_words, options->arguments[i]);
}

/* The engine's own client takes our place: it has our descriptors and our terminal, and its exit
 * code is the command's. */
static int enter_elsewhere(const char *folder, const struct exec_options *options,
                           struct sb_error *error) {
  _cleanup_strv_ struct strv words = {0};
  json_t *request = exec_request(options), *reply = NULL;
  json_object_set_new(request, "cmd", json_string("cmd.enter"));
  if (client_call(folder, CLIENT_PATIENCE, request, &reply, error) < 0)
    return -1;
  collect_words(reply, options, &words);
  json_decref(reply);
  execvp(words.items[0], words.items);
  return sb_fail_errno(error, "starting '%s'", words.items[0]);
}

/* ---- the verbs ---- */

enum exec_option { EXEC_CHDIR, EXEC_ENV, EXEC_TTY };

static const struct option_spec exec_options[] = {
    {EXEC_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR",
     COMPLETE_FOLDER},
    {EXEC_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME=VALUE", "set an environment variable",
     COMPLETE_NONE},
    {EXEC_TTY, "tty", 0, ARGUMENT_REQUIRED, "WHEN", "give the command a terminal of its own",
     COMPLETE_WORDS, "auto always never"},
    {0},
};

static const struct option_spec attach_options[] = {
    {EXEC_CHDIR, "chdir", 'C', ARGUMENT_REQUIRED, "DIR", "start in the folder DIR",
     COMPLETE_FOLDER},
    {EXEC_ENV, "env", 0, ARGUMENT_REQUIRED, "NAME=VALUE", "set an environment variable",
     COMPLETE_NONE},
    {0},
};

static bool wants_terminal(const struct invocation *invocation) {
  const char *value = invocation_value(invocation, EXEC_TTY);
  if (value && strcmp(value, "auto") != 0)
    return strcmp(value, "always") == 0;
  return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

static bool wants_none(const struct invocation *invocation) {
  const char *value = invocation_value(invocation, EXEC_TTY);
  return value && strcmp(value, "never") == 0;
}

static int collect_environment(const struct invocation *invocation, struct strv *ret_list,
                               struct sb_error *error) {
  for (size_t i = 0; i < invocation->option_count; i++) {
    const struct given_option *given = &invocation->options[i];
    if (given->spec->id != EXEC_ENV)
      continue;
    if (!strchr(given->value, '=')) {
      sb_fail(error, SB_CODE_USAGE, 0, "--env '%s' has no value", given->value);
      return sb_hint(error, "write --env NAME=VALUE");
    }
    strv_add(ret_list, given->value);
  }
  return 0;
}

/* See plan_request.outside_files. */
static bool may_not_get_files(const struct registry_entry *entry) {
  return json_is_false(json_object_get(entry->state, "outside_files"));
}

static int run_in_session(const struct invocation *invocation, struct exec_options *options) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_choice_ struct session_choice choice = {0};
  _cleanup_strv_ struct strv environment = {0};
  if (fd_reserve_standard() < 0) {
    sb_fail_errno(&error, "opening '/dev/null'");
    return cli_report_for(invocation, &error);
  }
  if (session_choose(&choice, invocation->operands[0], &error) < 0 ||
      collect_environment(invocation, &environment, &error) < 0)
    return cli_report_for(invocation, &error);
  options->environment = environment.items;
  options->environment_count = environment.count;
  const char *given = invocation_value(invocation, EXEC_CHDIR);
  _cleanup_free_ char *folder = given ? path_join(choice.host.cwd, given) : NULL;
  options->folder = folder;
  options->state_home = choice.host.state_home;
  options->feed =
      !options->terminal && fd_is_readable_file(STDIN_FILENO) && may_not_get_files(choice.entry);
  int code = is_elsewhere(choice.entry) ? enter_elsewhere(choice.entry->folder, options, &error)
                                        : exec_in(choice.entry->folder, options, &error);
  if (error.message)
    cli_report_for(invocation, &error);
  return code < 0 ? EXIT_CODE_FAILURE : code;
}

static int exec_main(const struct invocation *invocation) {
  if (invocation->operand_count < 2) {
    _cleanup_error_ struct sb_error error = {0};
    sb_fail(&error, SB_CODE_USAGE, 0, "exec needs a session and a command");
    sb_hint(&error, "sandbox exec SID -- ls; 'sandbox ps' lists the sessions");
    return cli_report_for(invocation, &error);
  }
  char **words = invocation->operands + 1;
  words += strcmp(words[0], "--") == 0 && words[1];
  size_t count = invocation->operand_count - (size_t)(words - invocation->operands);
  char *script[] = {(char *)cli_shell(), words[0], words[1], NULL};
  bool is_script = count == 2 && words == invocation->operands + 1 && strcmp(words[0], "-c") == 0;
  struct exec_options options = {
      .arguments = is_script ? script : words,
      .argument_count = is_script ? ARRAY_SIZE(script) - 1 : count,
      .terminal = wants_terminal(invocation),
      .bare = wants_none(invocation),
  };
  return run_in_session(invocation, &options);
}

static int attach_main(const struct invocation *invocation) {
  if (invocation->operand_count != 1) {
    _cleanup_error_ struct sb_error error = {0};
    sb_fail(&error, SB_CODE_USAGE, 0, "attach needs one session");
    sb_hint(&error, "sandbox attach SID; 'sandbox ps' lists the sessions");
    return cli_report_for(invocation, &error);
  }
  const char *shell = getenv("SHELL");
  char *arguments[] = {(char *)(shell && shell[0] == '/' ? shell : "/bin/sh"), NULL};
  struct exec_options options = {.arguments = arguments, .argument_count = 1, .terminal = true};
  return run_in_session(invocation, &options);
}

const struct verb exec_verb = {
    .name = "exec",
    .synopsis = "[OPTION]... SID [--] COMMAND [ARGUMENT]... | SID -c STRING",
    .summary = "run one more command in a running session",
    .description =
        "Runs COMMAND, or STRING with the shell, in the session SID, confined exactly like its first command. It is started "
        "by the session's own init and gets your stdin, stdout and stderr; what of these is a "
        "terminal is relayed to one of its own, unless --tty never says otherwise. This takes about as "
        "long as starting the command itself: keep a session with 'sandbox run --detach' and run "
        "a thousand commands in it.",
    .options = exec_options,
    .stop_at_operand = true,
    .operand_completion = COMPLETE_SESSION,
    .run = exec_main,
};

const struct verb attach_verb = {
    .name = "attach",
    .synopsis = "[OPTION]... SID",
    .summary = "open a shell in a running session",
    .description = "Opens an interactive shell ($SHELL) in the session SID, with a terminal of its "
                   "own, confined exactly like the session's first command.",
    .options = attach_options,
    .operand_completion = COMPLETE_SESSION,
    .run = attach_main,
};
