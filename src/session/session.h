/* One session from start to end, as the monitor runs it. Never prints: results and warnings are
 * returned, and only the workload's own output passes through. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "changes/changes.h"
#include "core/error.h"
#include "core/strv.h"
#include "engine/report.h"
#include "limits/limits.h"
#include "plan/plan.h"
#include "session/capture.h"
#include "session/log.h"

#define SESSION_ID_LENGTH 8

struct session_result {
  int exit_code;   /* the workload's, 128+n, 124-127, 137 */
  bool started;    /* the workload's exec succeeded */
  int wait_status; /* valid if started */
  bool weaker_proc, weaker_sysfs;
  bool limit_hit;
  enum limit_kind limit; /* valid if limit_hit */
  enum limit_enforcer enforcers[LIMIT_COUNT];
  struct usage usage;
  double wall_seconds;
  json_t *network;         /* connections and refusals, or NULL */
  bool tried_network;      /* there was none, and the command wanted one */
  struct changes *changes; /* what changed, if the request asked for it */
  json_t *denials;         /* what was denied: an array, NULL if nothing could be */
  struct capture capture;  /* what was captured, if asked for */
  struct timespec phases[PHASE_COUNT];
};
void session_result_clear(struct session_result *result);

/* What happens while it runs, for --status-fd and for warnings. */
enum session_event {
  SESSION_WARNING,
  SESSION_STARTED,
  SESSION_LIMIT,
  SESSION_DISCONNECTED, /* the network driver has ended */
  SESSION_EXITED
};
struct session_notice {
  enum session_event event;
  const char *text;                    /* WARNING, LIMIT; DISCONNECTED: the driver */
  pid_t init, command;                 /* STARTED: init from outside, the command as seen inside */
  const struct session_result *result; /* LIMIT, EXITED */
};
typedef void session_listener(void *context, const struct session_notice *notice);

struct engine;

struct session_request {
  const struct host_context *host;
  const struct plan *plan; /* begun; completed by compile */
  int (*compile)(void *context, struct sb_error *error);
  void *compile_context;
  enum terminal_mode terminal;
  const char *session_id;
  const char *mode;
  const char *backend;        /* in the audit log; NULL: native */
  const struct strv *command; /* in the audit log and `ps`, if it is not the plan's */
  struct policy *policy;      /* decides about what the plan leaves open; NULL: nothing is asked */
  const struct policy *rules; /* what the plan was made from; NULL: later names are not hidden */
  bool learns;                /* reads are recorded, not asked about */
  bool supervised;            /* questions wait for a supervisor even while there is none */
  const struct limit_set *limits;
  bool best_effort_limits;    /* require: preferred */
  bool idle;                  /* no workload: wait for `exec` until ended */
  const struct strv *watched; /* folders whose changes to report, filled by compile */
  bool capture;
  size_t capture_limit;
  struct log *log;
  struct start_report *report;
  struct engine *ahead; /* a first process that was started ahead, taken over or ended; or NULL */
  char *title;          /* memory of our command line, cleared in the session's init; may be NULL */
  size_t title_size;
  int lifeline; /* the session ends when its other end is closed; 0: none */
  int ready_fd; /* closed once the session can be talked to (`--detach`), or -1 */
  session_listener *listener;
  void *listener_context;
};

/* A fresh id: short, lower case, unambiguous letters. */
void session_new_id(char ret_id[SESSION_ID_LENGTH + 1]);

/* Runs the plan and waits for its end. The plan is compiled while the session's first process makes
 * its namespaces, which takes about as long. On failure before the workload ran, returns -1 with
 * the error and the exit code set in the result; nothing of the session is left either way. */
int session_run(const struct session_request *request, struct session_result *ret_result,
                struct sb_error *error);
