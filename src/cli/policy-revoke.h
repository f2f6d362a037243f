/* `sandbox policy revoke`: takes approvals and denials back, stored ones and those of sessions. */
#pragma once

#include "core/error.h"
#include "plan/project.h"

struct revoke_request {
  const struct host_context *host;
  const char *name;    /* a path, or a host */
  const char *session; /* only there; NULL: the stores and every session */
};

struct revoke_result {
  size_t stored, sessions;
  size_t held;    /* sessions in which somebody can still read it */
  bool forbidden; /* it is kept for everybody, and not ours to take back */
};

int policy_revoke(const struct revoke_request *request, struct revoke_result *ret_result,
                  struct sb_error *error);
