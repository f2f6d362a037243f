/* Landlock, with the newest ABI the running kernel has. It is the second wall behind the mount
 * view: it restricts writes, devices, abstract sockets and signals; reads are the mounts' job. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The ABI of the running kernel, 0 if there is none. */
int landlock_abi(void);

struct landlock_rule {
  const char *path; /* in the workload's view, opened in the child */
  uint64_t access;
};

struct landlock_plan {
  int abi;
  uint64_t handled_fs, scoped;
  bool lenient; /* some of what the kernel could restrict was left out */
  struct landlock_rule *rules;
  size_t rule_count, rule_capacity;
};

/* What a path may be used for; landlock_allow turns it into rights that the ABI knows. */
enum landlock_use {
  LANDLOCK_USE_WRITE,  /* create, write, truncate, rename, remove */
  LANDLOCK_USE_DEVICE, /* write and ioctl on device files: /dev, ttys */
};

/* Starts a plan for the given ABI. handled_fs is what it restricts: nothing (an empty plan that
 * restricts nobody) for 0, and for 1, which would refuse every rename between folders.
 * A restricted thread can never mount again: not for a workload that runs nested containers. */
struct landlock_plan landlock_plan_new(int abi);

/* Leaves files alone, where the kernel keeps a domain without them: every open costs a walk to the
 * root of the tree otherwise. */
void landlock_skip_files(struct landlock_plan *plan);

/* The same for truncation alone, which the kernel looks after in every open, also for reading.
 * What is not below a read-only mount must not be left to it. */
void landlock_skip_truncation(struct landlock_plan *plan);

/* Whether files, signals or anything else is held: then nothing outside can be traced either. */
bool landlock_has_domain(const struct landlock_plan *plan);
void landlock_allow(struct landlock_plan *plan, const char *path, enum landlock_use use);
void landlock_plan_clear(struct landlock_plan *plan);

/* The rules, by the view as it is now. Allocates nothing: safe between clone and exec. A rule path
 * that does not exist is skipped. Returns 0 or a negative errno, and then *ret_failed is the path
 * that failed or NULL. */
int landlock_prepare(const struct landlock_plan *plan, int *ret_ruleset, const char **ret_failed);

/* Restricts the calling thread (no_new_privs must be set), and closes the ruleset. Returns 0 or a
 * negative errno. */
int landlock_restrict(const struct landlock_plan *plan, int ruleset);
