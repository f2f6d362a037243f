/* Answers a trapped call in the kernel's place: one that only looks at an object need not be let to
 * it. */
#pragma once

#include <sys/statfs.h>

#include "gate/call.h"

struct told {
  long value;       /* what the call returns */
  uint64_t address; /* where the data goes in the caller's memory */
  size_t size;      /* 0: nothing goes there */
  union {
    struct stat status;
    struct statx extended;
    struct statfs space;
    char bytes[1 << 16]; /* the longest attribute */
  } data;
};

/* Returns 0, or the negative errno that the call ends with; -ENOTSUP: this one cannot be answered.
 * The object is pinned (O_PATH). */
int tell_call(const struct call *call, int object, struct told *ret_told);

/* Does it ask how much room there is? */
bool tell_is_of_space(const struct call *call);
