/* A caller with a life of its own: handlers, blocked signals, children, descriptors, threads. Uses
 * the library in every way and checks that all of it is as it was. state COMMAND [reap | ignore] */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sandbox.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      printf("line %d: %s\n", __LINE__, #condition);                                               \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { THREADS = 6, ROUNDS = 3, SIGNALS = 32 };

static const char *command;

struct state {
  struct sigaction actions[SIGNALS];
  sigset_t mask;
  char folder[PATH_MAX];
  mode_t umask;
  unsigned descriptors;
  char **environment;
  pid_t group, session;
};

static unsigned count_descriptors(void) {
  unsigned count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (readdir(folder))
    count++;
  closedir(folder);
  return count;
}

static void look(struct state *state) {
  memset(state, 0, sizeof *state);
  for (int signal = 1; signal < SIGNALS; signal++)
    sigaction(signal, NULL, &state->actions[signal]);
  pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
  CHECK(getcwd(state->folder, sizeof state->folder));
  state->umask = umask(0);
  umask(state->umask);
  state->descriptors = count_descriptors();
  state->environment = environ;
  state->group = getpgrp();
  state->session = getsid(0);
}

static void compare(const struct state *before) {
  struct state after;
  look(&after);
  for (int signal = 1; signal < SIGNALS; signal++) {
    CHECK(before->actions[signal].sa_handler == after.actions[signal].sa_handler);
    CHECK(before->actions[signal].sa_flags == after.actions[signal].sa_flags);
  }
  CHECK(memcmp(&before->mask, &after.mask, sizeof after.mask) == 0);
  CHECK(strcmp(before->folder, after.folder) == 0);
  CHECK(before->umask == after.umask && before->descriptors == after.descriptors);
  CHECK(before->environment == after.environment);
  CHECK(before->group == after.group && before->session == after.session);
}

static void must(const void *handle, sb_error *error) {
  if (handle)
    return;
  printf("%s: %s\n", sb_error_code(error), sb_error_message(error));
  exit(1);
}

static sb_options *options_new(void) {
  sb_options *options = sb_options_new();
  sb_options_set_command(options, command);
  sb_options_set_policy(options, "version: 1\nmode: static\n");
  return options;
}

static void check_run(sb_options *options, sb_error *error, int number) {
  char script[128];
  size_t length;
  snprintf(script, sizeof script, "printf 'n%d\\0x'; echo e%d >&2; exit %d", number, number,
           number % 100);
  sb_result *result = sb_run_script(options, script, error);
  must(result, error);
  CHECK(sb_result_exit_code(result) == number % 100);
  CHECK(strtol(sb_result_stdout(result, &length) + 1, NULL, 10) == number);
  CHECK(strcmp(sb_result_backend(result), "native") == 0);
  CHECK(sb_result_wall_time(result) > 0);
  sb_result_free(result);
}

/* In static mode nobody is asked, but what happens is told. */
static void check_events(sb_session *session, sb_error *error) {
  static const char *const words[] = {"true", "told", NULL};
  sb_events *events = sb_events_open(session, 1, error);
  must(events, error);
  CHECK(sb_events_fd(events) >= 0);
  sb_result *result = sb_session_exec(session, words, NULL, error);
  must(result, error);
  sb_result_free(result);
  char *message = sb_events_next(events, error);
  must(message, error);
  CHECK(strstr(message, "\"event.audit\"") && strstr(message, "\"told\""));
  free(message);
  sb_events_free(events);
}

static void check_session(sb_options *options, sb_error *error) {
  static const char *const words[] = {"sh", "-c", "cat; exit 5", NULL};
  static const char *const missing[] = {"/nonexistent", NULL};
  sb_session *session = sb_session_start(options, error);
  must(session, error);
  sb_options_set_input(options, "given", 5);
  sb_result *result = sb_session_exec(session, words, options, error);
  must(result, error);
  CHECK(sb_result_exit_code(result) == 5 && strcmp(sb_result_stdout(result, NULL), "given") == 0);
  sb_result_free(result);
  sb_options_set_input(options, NULL, 0);
  CHECK(!sb_session_exec(session, missing, NULL, error));
  CHECK(strcmp(sb_error_code(error), "not-found") == 0);
  check_events(session, error);
  CHECK(sb_session_wait(session, 10, error) == 0);
  CHECK(sb_session_kill(session, 1, error) == 0);
  CHECK(sb_session_wait(session, 5000, error) == 1);
  sb_session_free(session);
}

static void check_policy(sb_error *error) {
  sb_policy *policy = sb_policy_load(NULL, error);
  must(policy, error);
  CHECK(sb_policy_decide(policy, "/etc/shadow", SB_READ) == SB_HIDE);
  CHECK(sb_policy_decide(policy, "/usr/x", SB_WRITE) == SB_DENY);
  CHECK(sb_policy_add_text(policy, "version: 1\nnope: 1\n", error) < 0);
  CHECK(strstr(sb_error_message(error), "nope"));
  char *explained = sb_policy_explain(policy, "/etc/shadow", SB_READ);
  CHECK(strstr(explained, "\"hide\""));
  free(explained);
  sb_policy_free(policy);
}

static void *work(void *number) {
  sb_error *error = sb_error_new();
  sb_options *options = options_new();
  for (int round = 0; round < ROUNDS; round++)
    check_run(options, error, (int)(long)number * 10 + round);
  check_session(options, error);
  check_policy(error);
  sb_options_free(options);
  sb_error_free(error);
  return NULL;
}

static void check_failures(void) {
  sb_error *error = sb_error_new();
  sb_options *options = sb_options_new();
  sb_options_set_command(options, "/nonexistent/sandbox");
  CHECK(!sb_run_script(options, "true", error));
  CHECK(strcmp(sb_error_code(error), "not-found") == 0 && sb_error_hint(error));
  CHECK(!sb_run_script(options, "true", NULL));
  sb_options_set_command(options, command);
  CHECK(sb_options_add(options, "json", NULL, error) < 0);
  CHECK(sb_options_add(options, "--memory", "1G", error) < 0);
  CHECK(!sb_run(options, (const char *const[]){NULL}, error));
  sb_options_set_policy(options, "version: 2\n");
  CHECK(!sb_run_script(options, "true", error));
  CHECK(strcmp(sb_error_code(error), "policy") == 0);
  sb_options_set_policy(options, NULL);
  sb_options_set_folder(options, "/nonexistent");
  CHECK(!sb_run_script(options, "true", error));
  CHECK(!sb_session_open("nosuch", error));
  sb_options_free(options);
  sb_error_free(error);
}

static void check_cancel(void) {
  int ends[2];
  CHECK(pipe2(ends, O_CLOEXEC) == 0);
  sb_error *error = sb_error_new();
  sb_options *options = options_new();
  sb_options_set_cancel_fd(options, ends[0]);
  close(ends[1]);
  sb_result *result = sb_run_script(options, "sleep 60", error);
  must(result, error);
  CHECK(sb_result_exit_code(result) == 137 || sb_result_exit_code(result) == 143);
  sb_result_free(result);
  sb_options_free(options);
  sb_error_free(error);
  close(ends[0]);
}

static volatile sig_atomic_t children_noticed;

static void on_child(int signal) {
  (void)signal;
  children_noticed++;
}

/* Takes every child it can get, as some programs do. */
static void *reap_all(void *nothing) {
  for (;;) {
    waitpid(-1, NULL, WNOHANG);
    usleep(500);
  }
  return nothing;
}

static pid_t start_own_child(void) {
  pid_t child = fork();
  if (child == 0)
    _exit(7);
  return child;
}

int main(int count, char **words) {
  const char *mode = count > 2 ? words[2] : "";
  pthread_t threads[THREADS], reaper;
  struct state before;
  sigset_t blocked;
  command = words[1];
  signal(SIGPIPE, SIG_DFL);
  signal(SIGUSR1, SIG_IGN);
  signal(SIGCHLD, strcmp(mode, "ignore") == 0 ? SIG_IGN : on_child);
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR2);
  sigaddset(&blocked, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &blocked, NULL);
  umask(027);
  pid_t child = *mode ? 0 : start_own_child();
  look(&before);
  if (strcmp(mode, "reap") == 0)
    pthread_create(&reaper, NULL, reap_all, NULL);
  for (long i = 0; i < THREADS; i++)
    pthread_create(&threads[i], NULL, work, (void *)(i + 1));
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
  check_failures();
  check_cancel();
  compare(&before);
  int status = 0;
  if (child) /* ours: nobody but us has waited for it */
    CHECK(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
  if (!*mode)
    CHECK(waitpid(-1, &status, WNOHANG) < 0 && errno == ECHILD);
  printf("as it was\n");
  return 0;
}
