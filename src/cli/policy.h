/* What the sub-verbs of `sandbox policy` share. Each returns an exit code, or -1 with the error
 * set.
 */
#pragma once

#include "cli/cli.h"
#include "core/json.h"
#include "plan/project.h"
#include "policy/policy.h"

enum policy_option {
  OPTION_JSON,
  OPTION_WRITE,
  OPTION_LIST,
  OPTION_REVOKE,
  OPTION_SESSION,
  OPTION_DRY_RUN,
  OPTION_PROJECT,
  OPTION_FROM,
};

struct policy_request {
  const struct invocation *invocation;
  const struct policy_context *context;
  const struct host_context *host;
  const char *cwd;
  const char *operand, *second; /* after the sub-verb, or NULL */
  struct sb_error *error;
};

int policy_run_export(const struct policy_request *request);
int policy_run_import(const struct policy_request *request);
int policy_run_diff(const struct policy_request *request);
int policy_run_grants(const struct policy_request *request);

bool policy_wants_json(const struct policy_request *request);
int policy_print_json(json_t *value); /* takes the reference */

/* Merges a policy text into the user's policy.yaml, or the project's, after printing what changes.
 * `source` names the text in errors, `event` and `comment` say where it comes from. */
struct policy_merge {
  const char *source, *text;
  size_t length;
  bool project, dry_run, json;
  bool quiet;          /* what changes has been shown already */
  const char *comment; /* "imported from x", for a file that is made anew */
};
int policy_merge_text(const struct policy_context *context, const struct policy_merge *merge,
                      struct sb_error *error);
