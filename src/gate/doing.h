/* What a thread that waits for us is doing: the system call that it is in, read from outside. */
#pragma once

#include "engine/traps.h"
#include "gate/target.h"

struct doing {
  struct target target;
  long number;
  uint64_t arguments[6];
  bool compat; /* a 32-bit program's, with numbers of its own */
};

/* 0 or a negative errno: -EACCES, -EPERM if we may not look at it. */
int doing_read(const struct target *target, struct doing *ret_doing);

/* What is known of such a call, or NULL if it takes no path. */
const struct trap *doing_trap(const struct doing *doing);

/* The same of a call that changes what a descriptor stands for, as if that were where its path
 * starts. */
const struct trap *doing_trap_of_descriptor(const struct doing *doing);

/* Does it change that, without a path that could be walked again? */
bool doing_changes_descriptor(const struct doing *doing);

/* Does the path lead to this object (by its canonical path), or only past it? `folder`: the
 * descriptor that it starts from if it is relative, or AT_FDCWD. */
bool doing_leads_to(const struct doing *doing, int folder, const char *path, const char *object);
