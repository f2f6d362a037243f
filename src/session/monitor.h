/* Private to src/session: the monitor's state, shared by its parts. */
#pragma once

#include <signal.h>

#include "audit/audit.h"
#include "core/clock.h"
#include "engine/engine.h"
#include "gate/gate.h"
#include "net/publish.h"
#include "session/connects.h"
#include "session/control.h"
#include "session/execs.h"
#include "session/network.h"
#include "session/offline.h"
#include "session/placeholders.h"
#include "session/registry.h"
#include "session/session.h"
#include "session/supervision.h"
#include "session/terminal.h"
#include "session/upkeep.h"

struct monitor {
  const struct session_request *request;
  struct session_result *result;
  struct engine engine;
  struct terminal terminal;
  struct capture capture;
  struct placeholders placeholders;
  struct snapshot *snapshot; /* NULL without a report */
  struct registration registration;
  struct audit *audit; /* open from before the workload to the end */
  struct control *control;
  struct network network;
  struct execs execs;
  struct supervision supervision;
  struct strv unsaid;           /* warnings that wait until the terminal is the user's again */
  struct gate *gate;            /* dynamic mode */
  struct sb_error gate_failure; /* why there is none */
  struct upkeep upkeep;
  struct connects connects;
  struct offline offline;
  struct publisher publisher;
  struct limit_group limits;
  struct deadline deadline;
  uint64_t next_look_ns; /* when the limits are looked at again; 0: not at all */
  uint64_t started_ns;
  sigset_t original_mask;
  int signals; /* signalfd */
  bool announced;
  int early; /* a signal that came before the workload: it gets it when it is there */
  uint64_t early_until_ns;
  bool stop_asked; /* SIGTSTP reached us and was passed on; */
  bool continued;  /* so did SIGCONT since, before anything had stopped */
  int abandoned;   /* the signal that ended the start */
  bool timed_out;  /* the wall time ran out */
  bool killed;     /* by `sandbox kill` or a limit that only we noticed */
  bool cut;        /* the lifeline */
  bool over;
};

/* The commands of the control socket; ends with a NULL name. */
extern const struct control_command monitor_commands[];

/* In monitor-start.c: brings the session to where its command may start. */
int monitor_start(struct monitor *monitor, struct sb_error *error);

/* Says what on this machine refuses user namespaces, if that is the error. Returns -1. */
int monitor_explain_refusal(struct sb_error *error);

/* Ends the session: the workload is told, and killed after the grace. */
void monitor_terminate(struct monitor *monitor, uint64_t grace_ns);

/* Says something to the user: at once, or as soon as neither a program nor a question has the
 * terminal; monitor_speak has to be called now and then while something is unsaid. */
void monitor_warn(struct monitor *monitor, const char *text);
void monitor_speak(struct monitor *monitor);
void monitor_speak_last(struct monitor *monitor, struct terminal_patience *patience);

/* What the session runs, as its user wrote it. */
const struct strv *session_command(const struct session_request *request);

/* Tells whoever started the session. */
void monitor_notify(struct monitor *monitor, const struct session_notice *notice);

/* The answer to cmd.stats. */
json_t *monitor_stats_json(struct monitor *monitor);

/* A turn of somebody whose messages the workload causes: a few of them, and not for long. The
 * limits, signals, the terminal and the clients have theirs, too. */
struct turn {
  unsigned messages;
  uint64_t until_ns;
};
struct turn turn_new(void);
bool turn_goes_on(struct turn *turn);
