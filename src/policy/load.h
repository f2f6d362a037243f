/* One policy file's text on top of a policy. Private to src/policy and the fuzzer. */
#pragma once

#include "policy/policy.h"

enum { POLICY_FILE_MAX = 1 << 20 };

struct policy_source {
  const char *file; /* for messages and origins */
  enum policy_store store;
  bool untrusted; /* may only narrow */
  const char *data;
  size_t length;
};

/* Parses and merges. Reads nothing but the names that rules mention. */
int policy_apply(struct policy *policy, const struct policy_context *context,
                 const struct policy_source *source, struct sb_error *error);

/* 1 if there is such a file, 0 if there is none, -1 with an error if something else is in its
 * place, which nobody can know the rules of: also a link that leads nowhere. */
int policy_probe(const char *file, struct sb_error *error);

/* One schema key and where it was last set. */
struct policy_key {
  struct origin origin;
};
