/* Other programs: where they are, which version, and asking them something. Programs are taken from
 * absolute folders of $PATH only: never because of the folder we happen to be in. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "backend/backend.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "core/text.h"

char *tool_find(const char *name) {
  const char *path = getenv("PATH");
  _cleanup_free_ char *folders = xasprintf("%s:/usr/sbin:/sbin", path ? path : "/usr/bin:/bin");
  char *rest = folders;
  for (char *folder = strsep(&rest, ":"); folder; folder = strsep(&rest, ":")) {
    if (*folder != '/')
      continue;
    _cleanup_free_ char *file = xasprintf("%s/%s", folder, name);
    struct stat status;
    if (stat(file, &status) == 0 && S_ISREG(status.st_mode) && access(file, X_OK) == 0)
      return steal_pointer(file);
  }
  return NULL;
}

static char *resolve_program(const char *path) {
  char *resolved = NULL;
  return access(path, X_OK) == 0 && file_resolve(path, &resolved) == 0 ? resolved : NULL;
}

/* Beside the command, as for a copy; in the build; or where it was installed. */
char *tool_find_own(const char *name) {
  _cleanup_free_ char *command = NULL;
  if (file_resolve("/proc/self/exe", &command) == 0) {
    _cleanup_free_ char *folder = path_parent(command);
    static const char *const places[] = {".", "../backend"};
    for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
      _cleanup_free_ char *path = xasprintf("%s/%s/%s", folder, places[i], name);
      char *found = resolve_program(path);
      if (found)
        return found;
    }
  }
  _cleanup_free_ char *installed = path_join(SANDBOX_LIBEXEC, name);
  return resolve_program(installed);
}

bool tool_parse_version(const char *text, struct tool_version *ret_version) {
  for (const char *at = text; *at; at++) {
    struct tool_version version = {0};
    if (!isdigit((unsigned char)*at) ||
        (at > text && (isalnum((unsigned char)at[-1]) || at[-1] == '.')))
      continue;
    if (sscanf(at, "%d.%d.%d", &version.major, &version.minor, &version.patch) >= 2) {
      *ret_version = version;
      return true;
    }
  }
  return false;
}

bool tool_at_least(struct tool_version version, int major, int minor, int patch) {
  if (version.major != major)
    return version.major > major;
  return version.minor != minor ? version.minor > minor : version.patch >= patch;
}

/* A signal that ends us must not leave a half-made sandbox behind: it waits for the answer. */
static void hold_signals(sigset_t *ret_before) {
  sigset_t held;
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGTERM);
  sigaddset(&held, SIGHUP);
  sigaddset(&held, SIGQUIT);
  pthread_sigmask(SIG_BLOCK, &held, ret_before);
}

static _Noreturn void become_tool(char *const argv[], int output, const sigset_t *mask) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0 ||
      dup2(output, STDERR_FILENO) < 0)
    _exit(126);
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigprocmask(SIG_SETMASK, mask, NULL);
  setenv("LC_ALL", "C", 1);
  execv(argv[0], argv);
  _exit(127);
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Reads until the end, the size or the time is over; false if time was. */
static bool read_output(int reader, int seconds, struct text *output) {
  int64_t end = now_ms() + seconds * 1000;
  for (;;) {
    char buffer[4096];
    struct pollfd ready = {.fd = reader, .events = POLLIN};
    int64_t left = end - now_ms();
    if (left <= 0 || poll(&ready, 1, (int)left) <= 0)
      return false;
    ssize_t got = read(reader, buffer, sizeof buffer);
    if (got <= 0)
      return true;
    if (output->length < sizeof buffer)
      text_append_bytes(output, buffer, (size_t)got);
  }
}

static int ask(char *const argv[], int seconds, const sigset_t *mask, struct text *output) {
  int ends[2], status = -1;
  if (pipe2(ends, O_CLOEXEC) < 0)
    return -1;
  _cleanup_close_ int reader = ends[0];
  pid_t pid = fork();
  if (pid == 0)
    become_tool(argv, ends[1], mask);
  close(ends[1]);
  if (pid < 0)
    return -1;
  if (!read_output(reader, seconds, output))
    kill(-pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
    ;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int tool_ask(char *const argv[], int seconds, char **ret_output) {
  _cleanup_text_ struct text output = {0};
  sigset_t before;
  hold_signals(&before);
  int result = ask(argv, seconds, &before, &output);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  *ret_output = xstrdup(text_string(&output));
  return result;
}

bool tool_version(const char *path, struct tool_version *ret_version) {
  char *argv[] = {(char *)path, "--version", NULL};
  _cleanup_free_ char *output = NULL;
  return tool_ask(argv, 5, &output) == 0 && tool_parse_version(output, ret_version);
}
