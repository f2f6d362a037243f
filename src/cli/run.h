/* One `sandbox run` on its way from words to a result; `sandbox wrap` goes a part of it. */
#pragma once

#include "backend/backend.h"
#include "changes/changes.h"
#include "cli/cli.h"
#include "cli/run-backend.h"
#include "cli/run-result.h"
#include "engine/engine.h"
#include "session/session.h"

struct run {
  const struct invocation *invocation;
  struct host_context host;
  struct policy *policy;
  struct plan plan;
  struct strv command;
  struct start_report *report;
  struct engine ahead; /* the session's first process, while nobody knows yet what for */
  char id[SESSION_ID_LENGTH + 1];
  bool elsewhere; /* another engine than the native one runs it */
  bool planned;   /* the plan could be made: what fails after that is the machine's doing */
  char *overlay_folder;
  int overlay_lock;
  struct strv watched;
  struct limit_set limits;
  struct run_output output;
  struct log log;
  uint64_t max_output;
  int lifeline; /* 0: none */
  int ready_fd; /* detached: gets a byte when the session is ready; else -1 */
};

/* In run-prepare.c. */
void run_clear(struct run *run);

/* Loads machine, policy and limits. The plan is not made yet. */
int run_prepare(struct run *run, struct sb_error *error);
int run_begin_plan(struct run *run, struct sb_error *error);
int run_make_plan(struct run *run, struct sb_error *error);
enum terminal_mode run_terminal_mode(const struct invocation *invocation);

/* In run.c: what a session and another engine have in common. */
void run_show_warnings(const struct run *run);
bool run_wants_report(const struct run *run);
void run_tell(void *context, const struct session_notice *notice); /* a session_listener */
void run_conclude_changes(struct run *run, const struct session_result *result, bool ran,
                          struct timespec started);

/* In run-hints.c: after a command that failed. */
void run_show_hints(const struct run *run, const struct session_result *result);

/* In run-backend.c: other engines than the native one. */
struct run_elsewhere run_describe_elsewhere(struct run *run, const struct backend *named,
                                            const char *scratch);
int run_plan_elsewhere(struct run *run, uint64_t *ret_asked, struct sb_error *error);
int run_named(struct run *run, struct session_result *ret_result, struct sb_error *error);
int run_fallback(struct run *run, struct session_result *ret_result, struct sb_error *error);
