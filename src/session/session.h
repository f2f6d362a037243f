/* One session from start to end, as the monitor runs it. Never prints: results and warnings are
 * returned, and only the workload's own output passes through. */
#pragma once

#include <stdbool.h>

#include "changes/changes.h"
#include "core/error.h"
#include "core/strv.h"
#include "engine/report.h"
#include "plan/plan.h"

#define SESSION_ID_LENGTH 8

struct session_result {
  int exit_code;   /* as DESIGN's table: the workload's, 128+n, 125-127 */
  bool started;    /* the workload's exec succeeded */
  int wait_status; /* valid if started */
  bool weaker_proc, weaker_sysfs;
  struct timespec phases[PHASE_COUNT];
  struct changes *changes; /* what changed, if the request asked for it; the caller's to free */
};

/* Called once, when the session is up, right before the workload runs, for warnings. */
typedef void session_notice(void *context, const char *text);

struct session_request {
  const struct host_context *host;
  const struct plan *plan;
  const char *session_id;
  struct start_report *report;
  session_notice *notice;
  void *notice_context;
  const struct strv *watched; /* folders whose changes to report; NULL for no report */
};

/* A fresh id: short, lower case, unambiguous letters. */
void session_new_id(char ret_id[SESSION_ID_LENGTH + 1]);

/* Runs the plan and waits for its end. On failure before the workload ran, returns -1 with the
 * error and the exit code set in the result; nothing of the session is left either way. */
int session_run(const struct session_request *request, struct session_result *ret_result,
                struct sb_error *error);
