/* A policy as a file that loads again, and what differs between two of them. Pure. */
#pragma once

#include "policy/policy.h"

/* What one store says, or STORE_COUNT for what all of them say together, without the built-in
 * tables and defaults. Where stores contradict each other, only what counts is kept: in one file
 * the stricter rule would win. New string. */
char *policy_to_yaml(const struct policy *policy, enum policy_store store, const char *comment);

/* The same as "KEY: VALUE" lines, one per value or list entry, in the order of the schema. */
void policy_to_lines(const struct policy *policy, enum policy_store store, struct strv *ret_lines);

/* What is only in one of two lists of lines. */
struct policy_difference {
  struct strv removed, added;
};
void policy_differ(const struct strv *before, const struct strv *after,
                   struct policy_difference *ret_difference);
void policy_difference_clear(struct policy_difference *difference);
#define _cleanup_difference_ __attribute__((cleanup(policy_difference_clear)))

/* "- network.mode: none", "+ network.mode: filtered", escaped; "" if they are the same. */
char *policy_difference_to_text(const struct policy_difference *difference);
