/* The native engine as the monitor sees it: clone the session's first process, map its ids, let it
 * go, and turn what it reports into errors. Order of calls: engine_clone, engine_map_identity,
 * engine_go with MESSAGE_GO and with MESSAGE_READY; then messages on `channel` until it closes. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "core/error.h"
#include "engine/channel.h"
#include "engine/report.h"
#include "limits/limits.h"
#include "plan/plan.h"

struct engine {
  pid_t init;            /* the session's pid 1, as seen from outside */
  int pidfd;             /* of that process */
  int channel;           /* our end of the line to it */
  int user_ns, mount_ns; /* of the session, for who works in it from outside */
  struct start_report *report;
  const struct plan *plan;
};

struct engine_input {
  const struct plan *base; /* begun: applied while the rest is compiled */
  const struct plan *plan; /* complete, when engine_go is called: shared memory */
  bool terminal[3];        /* which of stdin, stdout, stderr become the session's terminal */
  int descriptors[3];      /* what takes the place of the others, or -1: they stay */
  const struct limit_group *limits;
  sigset_t original_mask; /* to be given back to the workload */
  bool idle;              /* start no workload: wait for commands */
  bool tell_at_once;      /* somebody waits for MESSAGE_STARTED; else it may take a moment */
  char *title;            /* where the process title lies, or NULL: our command line, which may */
  size_t title_size;      /* hold what the workload should not read in /proc/1/cmdline */
};

/* The shared page; made before anything else so that phases can be noted. NULL if no memory. */
struct start_report *engine_report_new(void);

int engine_clone(const struct engine_input *input, struct start_report *report,
                 struct engine *ret_engine, struct sb_error *error);
int engine_map_identity(struct engine *engine, struct sb_error *error);
int engine_go(struct engine *engine, enum message_kind kind, struct sb_error *error);
int engine_send(struct engine *engine, enum message_kind kind, int value);

/* Describes why the session did not start. Returns -1 and the exit code that fits in *ret_exit. */
int engine_explain(const struct engine *engine, int *ret_exit, struct sb_error *error);

/* Begins to end the session, whatever it is doing. */
void engine_kill(const struct engine *engine);

/* Ends the session at once, whatever it is doing, and waits until nothing of it is left. What all
 * its processes used is in *ret_usage. */
void engine_destroy(struct engine *engine, struct rusage *ret_usage);
