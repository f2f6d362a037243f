/* `sandbox run` and `sandbox wrap` with a back end other than the native engine: choosing it,
 * saying aloud what is lost, running it. */
#pragma once

#include "backend/backend.h"
#include "cli/cli.h"

struct run_elsewhere {
  struct backend_request request;
  const struct backend *named; /* NULL: whichever is as strong as the native engine */
  const char *instead;         /* why it is not the native engine, for the warning; or NULL */
  uint64_t asked;              /* what the policy needs, mode included */
  bool quiet;
  bool only_words; /* for `wrap` */
};

/* Chooses and warns. The request's `weaken` is what the caller accepts. */
int run_choose_backend(struct run_elsewhere *elsewhere, const struct backend **ret_backend,
                       struct sb_error *error);

/* True if this name means an engine other than the native one. */
bool run_is_elsewhere(const char *backend);
