/* The native engine as the monitor sees it: clone the session's first process, map its ids, let it
 * go, and turn what it reports into errors. Order of calls: engine_clone, engine_map_identity,
 * engine_go, engine_ready; then messages on `channel` until it closes. */
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
  const struct plan *plan;  /* what it carries out, as far as that is known */
  struct plan_area *area;   /* shared with it */
  struct init_input *input; /* there: what it is told */
};

#define ENGINE_NONE                                                                                \
  ((struct engine){.init = -1, .pidfd = -1, .channel = -1, .user_ns = -1, .mount_ns = -1})

/* What the first process is born with. It makes the namespaces that every session has, and waits
 * for the rest: so it can be there before anybody has read a policy. */
struct engine_birth {
  const struct limit_group *limits; /* NULL: none, or none that is a group of processes */
  int descriptors[3]; /* what takes the place of stdin, stdout and stderr, or -1: they stay */
  char *title;        /* where the process title lies, or NULL: our command line, which may */
  size_t title_size;  /* hold what the workload should not read in /proc/1/cmdline */
};

struct engine_input {
  const struct plan *base; /* begun: applied while the rest is compiled */
  bool terminal[3];        /* which of stdin, stdout, stderr become the session's terminal */
  const struct limit_rlimits *rlimits;
  sigset_t original_mask; /* to be given back to the workload */
  bool idle;              /* start no workload: wait for commands */
  bool tell_at_once;      /* somebody waits for MESSAGE_STARTED; else it may take a moment */
};

/* The shared page; made before anything else so that phases can be noted. NULL if no memory. */
struct start_report *engine_report_new(void);

int engine_clone(const struct engine_birth *birth, struct start_report *report,
                 struct engine *ret_engine, struct sb_error *error);
int engine_map_identity(struct engine *engine, const struct engine_input *input,
                        struct sb_error *error);

/* The plan is complete: it mounts the places. */
int engine_go(struct engine *engine, const struct plan *plan, struct sb_error *error);

/* All that is outside is ready: it may start the command. */
int engine_ready(struct engine *engine, struct sb_error *error);
int engine_send(struct engine *engine, enum message_kind kind, int value);

/* Describes why the session did not start. Returns -1 and the exit code that fits in *ret_exit. */
int engine_explain(const struct engine *engine, int *ret_exit, struct sb_error *error);

/* Begins to end the session, whatever it is doing. */
void engine_kill(const struct engine *engine);

/* Ends the session at once, whatever it is doing, and waits until nothing of it is left. What all
 * its processes used is in *ret_usage. False if one is left that waits for a file system whose
 * server does not answer: it dies when that does, and does nothing more. */
bool engine_destroy(struct engine *engine, struct rusage *ret_usage);
