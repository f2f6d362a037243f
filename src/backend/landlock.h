/* Private to src/backend: Landlock as the only wall. What the plan hides or keeps private is hidden
 * by not granting it: rights go down from a folder to all below, so a folder above something hidden
 * is never granted as a whole; its other entries are, one by one. */
#pragma once

#include <linux/filter.h>
#include <stdint.h>

#include "backend/backend.h"

/* What one ABI can restrict. Pure; ABIs above the newest that we know are treated like that. */
struct landlock_rights {
  uint64_t handled_fs, handled_network, scoped;
  uint32_t restrict_flags;
};
struct landlock_rights landlock_rights_of(int abi);

/* What the back end can enforce with it, and what else there is to say; NULL: nothing. Pure. */
uint64_t landlock_features_of(int abi);
const char *landlock_remark_of(int abi);

/* Rights that a rule grants, cut to what the ABI knows. */
enum landlock_grant { GRANT_READ, GRANT_LIST, GRANT_WRITE, GRANT_DEVICE };
uint64_t landlock_grant_rights(enum landlock_grant grant);

/* The rules for a plan, packed so that they can be applied between fork and exec. */
struct landlock_blob {
  char *data;
  size_t size;
};
struct landlock_blob landlock_pack(const struct plan *plan, int abi, bool network,
                                   const char *temporary);

/* A ruleset for them, still empty: a descriptor. Whoever has it may fill it. All these return a
 * negative errno if they fail. */
int landlock_new_ruleset(const struct landlock_blob *blob);
int landlock_fill(const struct landlock_blob *blob, int ruleset);

/* Confines the calling process for good, but for the rules; then by the rules. */
int landlock_shut(const struct landlock_blob *blob, const char **ret_doing);
int landlock_restrict_by(const struct landlock_blob *blob, int ruleset, const char **ret_doing);

/* All of these, one after the other. */
int landlock_confine(const struct landlock_blob *blob, const char **ret_doing);

/* What comes before our own filter, in the same program: without namespaces, sockets and truncation
 * have to be judged by system call. Whatever it does not refuse runs off its end. Returns how many
 * instructions it wrote. Pure. */
enum { LANDLOCK_FILTER_MAX = 96 };
size_t landlock_filter(bool network, bool guard_truncation,
                       struct sock_filter ret_filter[LANDLOCK_FILTER_MAX]);
