/* What `sandbox run` says about a session: the summary for people, the result and the status lines
 * for programs. */
#pragma once

#include "cli/cli.h"
#include "session/session.h"

struct run_output {
  const char *session_id;
  const char *backend;
  const struct policy *policy;
  const struct plan *plan;
  const struct limit_set *limits;
  bool summary;  /* header and footer on stderr */
  int status_fd; /* JSON lines, or -1 */
};

/* Sets how much of each stream a result keeps: what `asked` says (NULL: the usual), if that fits
 * into memory whatever the bytes are. */
int run_output_limit(const char *asked, uint64_t *ret_limit, struct sb_error *error);

/* One line before the start: session, limits, network. */
void run_show_header(const struct run_output *output);

/* A session_listener; the context is a struct run_output. */
void run_show_notice(void *context, const struct session_notice *notice);

/* After the end: time, processor, memory, exit code, and the limit if one was hit. */
void run_show_footer(const struct run_output *output, const struct session_result *result);

/* The result of DESIGN section 12 as one line. New string. */
char *run_result_line(const struct run_output *output, const struct session_result *result);
