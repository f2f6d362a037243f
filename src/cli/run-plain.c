/* See run-plain.h. Nothing is held here: no limits, no time; the caller has said so to the user. */
#include "cli/run-plain.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/escape.h"

static int fail_exec(const struct invocation *invocation, const char *command, int errnum) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *shown = escape_string(command);
  sb_fail(&error, SB_CODE_NOT_FOUND, errnum, "cannot execute '%s'", shown);
  cli_report_for(invocation, &error);
  return exit_code_of_exec(errnum);
}

/* The child; tells why it could not execute through the pipe that exec closes. */
__attribute__((noreturn)) static void become(const struct capture *capture, int failure,
                                             char *const *command) {
  dup2(capture->streams[0].writer, STDOUT_FILENO);
  dup2(capture->streams[1].writer, STDERR_FILENO);
  execvp(command[0], command);
  int errnum = errno;
  (void)!write(failure, &errnum, sizeof errnum);
  _exit(EXIT_CODE_CANNOT_EXECUTE);
}

static double seconds_since(const struct timespec *start) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static void set_usage(struct session_result *result, const struct rusage *usage) {
  result->usage = (struct usage){0};
  uint64_t *unknown[] = {&result->usage.processes_peak, &result->usage.io_read_bytes,
                         &result->usage.io_write_bytes};
  for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
    *unknown[i] = USAGE_UNKNOWN;
  result->usage.memory_peak_bytes = (uint64_t)usage->ru_maxrss * 1024;
  result->usage.cpu_ns = (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000000000u +
                         (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1000u;
}

/* What it leaves in the background may hold the pipes: its own end is the end. */
static void read_until_exit(struct capture *capture, pid_t child, int *ret_status,
                            struct rusage *ret_usage) {
  struct pollfd watched[2];
  while (wait4(child, ret_status, WNOHANG, ret_usage) == 0) {
    capture_watch(capture, watched);
    if (poll(watched, 2, 20) > 0)
      capture_read(capture, watched);
  }
  capture_drain(capture);
}

static int report(const struct run_output *output, struct session_result *result, int status) {
  result->started = true;
  result->wait_status = status;
  result->exit_code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  _cleanup_free_ char *line = run_result_line(output, result);
  int printed = cli_print(line), code = result->exit_code;
  session_result_clear(result);
  return printed ? printed : code;
}

static int run_captured(const struct invocation *invocation, const struct run_output *output,
                        char *const *command, size_t capture_limit) {
  struct session_result result = {.capture = CAPTURE_NONE};
  struct timespec start;
  struct rusage usage = {0};
  int failure[2], status = 0, errnum = 0;
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (capture_open(&result.capture, capture_limit) < 0 || pipe2(failure, O_CLOEXEC) < 0)
    return fail_exec(invocation, command[0], errno);
  pid_t child = fork();
  if (child == 0)
    become(&result.capture, failure[1], command);
  close(failure[1]);
  capture_close_writers(&result.capture);
  bool failed = child < 0 || read(failure[0], &errnum, sizeof errnum) == sizeof errnum;
  close(failure[0]);
  if (failed) {
    if (child > 0)
      waitpid(child, NULL, 0);
    session_result_clear(&result);
    return fail_exec(invocation, command[0], child < 0 ? EAGAIN : errnum);
  }
  read_until_exit(&result.capture, child, &status, &usage);
  set_usage(&result, &usage);
  result.wall_seconds = seconds_since(&start);
  return report(output, &result, status);
}

int run_plain(const struct invocation *invocation, const struct run_output *output,
              char *const *command, size_t capture_limit) {
  if (capture_limit > 0)
    return run_captured(invocation, output, command, capture_limit);
  execvp(command[0], command);
  return fail_exec(invocation, command[0], errno);
}
