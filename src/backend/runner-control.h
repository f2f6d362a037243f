/* Private to src/backend: a command that another engine runs, in the registry of sessions, so that
 * `sandbox ps`, `stats` and `kill` know it like any other. */
#pragma once

#include <poll.h>

#include "backend/backend.h"
#include "session/control.h"
#include "session/registry.h"

/* What the answers are made of; all of it must stay until the control is closed. */
struct runner_subject {
  const struct backend *backend;
  const struct backend_request *request;
  const struct wrapped *wrapped;
  struct limit_group *limits;
  pid_t guard;
  uint64_t started_ns;
  void (*end)(void *context, bool now); /* somebody wants it to end */
  void (*signal)(void *context, int signal);
  void *context;
};

struct runner_control {
  struct registration registration;
  struct control *control; /* NULL: not registered (yet) */
  struct runner_subject subject;
};
#define RUNNER_CONTROL_NONE ((struct runner_control){.registration = REGISTRATION_NONE})

/* Enters it into the registry. */
int runner_control_open(struct runner_control *control, const struct runner_subject *subject,
                        struct sb_error *error);

/* For the runner's poll; nothing to watch before it is open. */
size_t runner_control_watch(struct runner_control *control,
                            struct pollfd watched[CONTROL_WATCH_LIMIT]);
void runner_control_dispatch(struct runner_control *control, const struct pollfd *watched,
                             size_t count);

/* Out of the registry; then, when nothing of the session is left, its clients are told. */
void runner_control_leave(struct runner_control *control);
void runner_control_close(struct runner_control *control);
