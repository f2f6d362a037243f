/* Approvals that outlive a session: `grants.yaml` beside a store's `policy.yaml`, written only by
 * us: atomically, under a lock, merged with what other sessions wrote meanwhile. */
#pragma once

#include "gate/access.h"
#include "policy/policy.h"

struct grant {
  enum access_subject subject;
  bool allow; /* false: "deny always" */
  bool writable;
  char *path;            /* file: a tree or an object, canonical */
  char *host;            /* network */
  uint16_t port;         /* 0: every port */
  char *by, *when, *why; /* who approved, RFC 3339 time, and "exe asked for path in session SID" */
};

/* Adds a grant to a scope's store (SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG); replaces one of the same
 * subject and path. */
int grants_add(const struct policy_context *context, enum grant_scope scope,
               const struct grant *grant, struct sb_error *error);

/* Removes the grants for exactly this path or host; *ret_removed says how many. */
int grants_remove(const struct policy_context *context, enum grant_scope scope, const char *subject,
                  size_t *ret_removed, struct sb_error *error);
