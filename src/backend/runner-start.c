/* From a request to a running guard: the command is looked for, the back end wraps it, limits,
 * files, placeholders, terminal and pipes are made. What was made before a failure is undone by
 * runner-end.c, as after a run. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/runner-limits.h"
#include "backend/runner-private.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/exit-code.h"
#include "core/pty.h"

/* The tools say "1" or print something of their own: what a shell would say is known before. */
static int check_command(struct runner *runner, struct sb_error *error) {
  const struct plan *plan = runner->request->plan;
  if (!(runner->backend->features & FEATURE(READ_ALL)))
    return 0;
  int remembered = ENOENT;
  STRV_FOREACH (place, &plan->executables) {
    struct stat status;
    if (stat(*place, &status) == 0 && S_ISREG(status.st_mode) && access(*place, X_OK) == 0)
      return 0;
    if (errno != ENOENT && errno != ENOTDIR)
      remembered = errno;
    if (stat(*place, &status) == 0)
      remembered = EACCES;
  }
  _cleanup_free_ char *shown = escape_string(plan->arguments.items[0]);
  runner->result->exit_code = exit_code_of_exec(remembered);
  sb_fail(error, SB_CODE_NOT_FOUND, remembered, "cannot execute '%s'", shown);
  return sb_hint(error, "name a program that exists, or its full path");
}

/* What argv holds itself, and what has been given up, is none of ours; nor is what a group around
 * the client of a container engine would not hold. */
static int create_limits(struct runner *runner, struct sb_error *error) {
  static const unsigned by_group =
      1u << LIMIT_MEMORY | 1u << LIMIT_CPU | 1u << LIMIT_PROCESSES | 1u << LIMIT_IO;
  struct limit_set set = *runner->request->limits;
  unsigned others = runner->wrapped.limits_held | (runner->backend->limits_by_group ? 0 : by_group);
  for (int i = 0; i < LIMIT_COUNT; i++) {
    if (others & 1u << i)
      set.value[i] = 0;
  }
  if (runner_create_group(&set, runner->request->session_id, runner->request->weaken,
                          &runner->limits, error) < 0)
    return -1;
  memcpy(runner->result->enforcers, runner->limits.enforcers, sizeof runner->result->enforcers);
  for (int i = 0; i < LIMIT_COUNT; i++) {
    if (runner->wrapped.limits_held & 1u << i)
      runner->result->enforcers[i] = ENFORCER_BACKEND;
  }
  limit_groups_recover(&runner->limits);
  return 0;
}

/* ---- descriptors ---- */

/* Which descriptors the tool gets; what is opened for it is closed once the guard has it. */
struct ends {
  int slave, status, channel;
};

static void ends_close(struct ends *ends) {
  cleanup_close_fd(&ends->slave);
  cleanup_close_fd(&ends->status);
  cleanup_close_fd(&ends->channel);
}

static int open_streams(struct runner *runner, struct guard_input *input, struct ends *ends,
                        struct sb_error *error) {
  if (runner->request->capture) {
    int result = capture_open(&runner->capture, runner->request->capture_limit);
    if (result < 0)
      return sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes for the output");
    input->descriptors[1] = runner->capture.streams[0].writer;
    input->descriptors[2] = runner->capture.streams[1].writer;
  }
  if (!runner->terminal.any)
    return 0;
  int master, result = pty_open(&master, &ends->slave);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making a terminal");
  input->terminal = ends->slave;
  for (int fd = 0; fd < 3; fd++) {
    if (runner->terminal.used[fd])
      input->descriptors[fd] = ends->slave;
  }
  terminal_join(&runner->terminal, runner->request->host->state_home);
  terminal_connect(&runner->terminal, master);
  return 0;
}

static int open_channels(struct runner *runner, struct guard_input *input, struct ends *ends,
                         struct sb_error *error) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
    return sb_fail_errno(error, "making a socket pair");
  runner->channel = pair[0];
  input->runner_channel = runner->channel;
  input->runner = getpid();
  input->channel = ends->channel = pair[1];
  if (runner->wrapped.status_fd < 0)
    return 0;
  if (pipe2(pair, O_CLOEXEC) < 0)
    return sb_fail_errno(error, "making a pipe");
  runner->status = pair[0];
  fcntl(runner->status, F_SETFL, O_NONBLOCK);
  input->status = ends->status = pair[1];
  return 0;
}

/* ---- the guard ---- */

/* What its entrance leaves to us is done while it starts. */
static void start_guard(struct runner *runner, struct guard_input *input) {
  const struct backend_entrance *entrance = runner->backend->entrance;
  if (!entrance) {
    runner->guard = guard_start(input);
    return;
  }
  input->begun = entrance->begin(&runner->wrapped);
  _cleanup_close_ int begun = input->begun;
  runner->guard = guard_start(input);
  if (runner->guard > 0)
    runner_ask(runner, GUARD_PREPARED,
               begun < 0 ? begun : entrance->prepare(&runner->wrapped, begun));
}

/* What the tool needs before it can be started at all. */
static int prepare(struct runner *runner, struct sb_error *error) {
  const struct backend_request *request = runner->request;
  placeholders_recover(request->host);
  if (check_command(runner, error) < 0 ||
      runner->backend->wrap(request, &runner->wrapped, error) < 0 ||
      create_limits(runner, error) < 0 || runner_make_files(runner, error) < 0)
    return -1;
  if (!runner->wrapped.own_placeholders)
    return 0;
  return placeholders_create(&runner->placeholders, request->plan, request->host,
                             request->session_id, error);
}

/* What it leaves behind, should it be killed, comes to us. */
static void become_subreaper(struct runner *runner) {
  prctl(PR_GET_CHILD_SUBREAPER, &runner->was_subreaper, 0, 0, 0);
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
}

static int launch(struct runner *runner, struct sb_error *error) {
  __attribute__((cleanup(ends_close))) struct ends ends = {-1, -1, -1};
  struct guard_input input = {
      .backend = runner->backend,
      .wrapped = &runner->wrapped,
      .limits = &runner->limits,
      .scratch = runner->scratch,
      .descriptors = {-1, -1, -1},
      .terminal = -1,
      .status = -1,
      .mask = runner->original_mask,
  };
  if (open_streams(runner, &input, &ends, error) < 0 ||
      open_channels(runner, &input, &ends, error) < 0)
    return -1;
  become_subreaper(runner);
  start_guard(runner, &input);
  capture_close_writers(&runner->capture);
  return runner->guard < 0
             ? sb_fail(error, SB_CODE_SYSTEM, (int)-runner->guard, "starting the guard")
             : 0;
}

int runner_start(struct runner *runner, struct sb_error *error) {
  const struct backend_request *request = runner->request;
  if (prepare(runner, error) < 0 || launch(runner, error) < 0)
    return -1;
  registry_sweep(request->host); /* what the killed have left, while the tool starts */
  runner->deadline =
      deadline_new(monotonic_ns(), request->limits->value[LIMIT_TIME], TIME_GRACE_NS);
  return 0;
}
