/* What `sandbox run` does about changes: which places to watch, what to keep and say at the end. */
#pragma once

#include "cli/cli.h"
#include "plan/plan.h"
#include "session/session.h"

/* The writable folders of a plan, without its overlays. */
void run_watched_places(const struct plan *plan, struct strv *ret_places);

struct run_ending {
  const struct host_context *host;
  const struct plan *plan;
  const char *session_id;
  const struct session_result *result;
  struct timespec started;
  bool wants_report; /* the summary is printed, too */
  bool quiet;
};

/* After the session: overlays with changes are kept and named on stderr, empty ones are removed,
 * and a report is saved if there is something to report. */
void run_finish_changes(const struct run_ending *ending);
