/* Private to src/api: what the parts of the library share. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "core/error.h"
#include "core/strv.h"
#include "core/text.h"
#include "plan/project.h"
#include "sandbox.h"

struct sb_options {
  struct strv words; /* --name=value */
  char *policy, *folder, *command;
  void *input;
  size_t input_length;
  struct strv environment;
  bool has_environment;
  int cancel_fd;
  sb_event_function *on_event;
  void *event_context;
};

struct sb_result {
  int exit_code;
  struct text output, errors; /* the command's */
  double wall_time, cpu_time;
  long long memory_peak;
  char *limit_hit, *backend, *session_id, *warnings, *json;
};

/* A failure object for callers who passed none. */
#define API_ERROR(given)                                                                           \
  _cleanup_error_ struct sb_error ignored_ = {0};                                                  \
  struct sb_error *error_ = (given) ? (given) : &ignored_;                                         \
  sb_error_clear(error_)

/* One call of the `sandbox` command. */
struct helper_call {
  const struct sb_options *options; /* may be NULL */
  const char *verb;
  struct strv *words;  /* after the options of the caller */
  bool wants_status;   /* --status-fd, to the caller's function */
  bool wants_lifeline; /* --lifeline; the end in our hands is in ret_lifeline, or ends the call */
  int *ret_lifeline;   /* NULL: for the time of the call only */
};

struct helper_answer {
  struct text output, errors;
  bool cancelled;
};
void helper_answer_clear(struct helper_answer *answer);
#define _cleanup_answer_ __attribute__((cleanup(helper_answer_clear)))

/* Runs it and collects what it says. Its own failures are the error. */
int helper_run(const struct helper_call *call, struct helper_answer *ret, struct sb_error *error);

/* The JSON object it printed; an {"error": ...} of its own becomes the error. */
json_t *helper_json(const struct helper_answer *answer, struct sb_error *error);

/* A file without a name that holds these bytes, read from its start. Negative errno on failure. */
int api_memory_file(const void *data, size_t length);

struct sb_result *api_result_new(void);
int api_check_words(const char *const argv[], struct sb_error *error);
