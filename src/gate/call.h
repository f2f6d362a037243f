/* A trapped system call: what it is about and, once it is known where its path leads, what it wants
 * there. No side effects but reading the caller's memory. */
#pragma once

#include <linux/seccomp.h>

#include "engine/traps.h"
#include "gate/access.h"
#include "gate/walk.h"

struct call {
  const struct trap *trap;
  struct target target;
  uint64_t id, arguments[6];
  uint64_t flags, resolve; /* of an open; else 0 */
  bool follow;
};

/* Returns 0, or a negative errno: -EPERM if its memory cannot be read. */
int call_begin(struct call *call, const struct trap *trap,
               const struct seccomp_notif *notification);

/* One of its paths; an empty one: it has none, or works on a descriptor alone. */
int call_path(const struct call *call, size_t index, char ret_path[PATH_MAX]);
size_t call_path_count(const struct call *call);

/* Is the last link of that path followed? */
bool call_follows(const struct call *call, size_t index);

/* If its first path is empty it means a descriptor, and that is not all there is to look at: it has
 * another path, or executes it. */
bool call_is_of_descriptor(const struct call *call);

/* The descriptor that a relative path starts from. */
int call_base(const struct call *call, size_t index);

/* Would a descriptor do instead of the object itself: to read from, or only to hold (O_PATH)? */
bool call_only_reads(const struct call *call);
bool call_holds(const struct call *call);

/* Is it connect(2) itself, of all that speak to sockets? */
bool call_connects(const struct call *call);

/* Might it change something? Does it ask whether it may? */
bool call_may_write(const struct call *call);
bool call_tests_writing(const struct call *call);

enum call_verdict {
  CALL_FREE,         /* nothing that would have to be asked for: the kernel may go on */
  CALL_ASK,          /* for `want` */
  CALL_WRITE,        /* to the object */
  CALL_WRITE_FOLDER, /* to the folder it is in */
  CALL_ERROR,        /* fails with `errnum` whatever is decided */
};

struct judged {
  enum call_verdict verdict;
  enum want want;
  int errnum;
};

struct judged call_judge(const struct call *call, size_t index, const struct found *found);
