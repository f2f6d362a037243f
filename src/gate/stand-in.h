/* A process that makes one call in a waiting caller's place, on the caller's own descriptor: to
 * connect a socket, to send to one, to watch a file. What was allowed once need not appear in the
 * session for that, where everybody would see it. It has no more rights than the caller, blocks
 * where the caller would block, and keeps nobody else waiting. */
#pragma once

#include <stdbool.h>

#include "engine/traps.h"
#include "gate/target.h"

struct stand_in {
  pid_t pid;
  int result; /* readable when it is done; -1: there is none */
};
#define STAND_IN_NONE ((struct stand_in){.pid = -1, .result = -1})

/* What the call is; the arguments that it means are the kernel's own. */
enum stand_in_kind {
  STAND_IN_CANNOT,
  STAND_IN_CONNECT, /* connect(descriptor, …) */
  STAND_IN_SEND,    /* sendto(descriptor, data, size, flags, …) */
  STAND_IN_MESSAGE, /* sendmsg(descriptor, message, flags), of a 64-bit program */
  STAND_IN_WATCH,   /* inotify_add_watch(descriptor, …, mask) */
};

struct stand_in_call {
  enum stand_in_kind kind;
  struct target target;
  uint64_t arguments[6];
  /* Of one that begins anew: what it is, and what was mounted meanwhile (may be NULL). */
  const struct trap *trap;
  const char *mounted;
  uint64_t started[2]; /* the mounts that its paths start from (stand_in_note_start) */
  int unmoved_error;   /* if it does not start elsewhere then, it fails with this; 0: it begins */
};

/* Descriptors and rights that go along with a message cannot be sent by another. */
bool stand_in_can(const struct stand_in_call *call);

enum stand_in_return {
  STAND_IN_TELLS,      /* who started it answers the call */
  STAND_IN_HANDS_BACK, /* it can only be answered with an error; a success is handed in (see
                          hand-back.h): the call must then fail with HAND_BACK_ERROR */
};

/* Takes the caller's descriptor and starts. The caller asks afterwards whether the call still
 * waits, and ends it if not. `process` is the caller's, by a pidfd; for kernels that have none of a
 * thread. 0 or a negative errno. */
int stand_in_start(struct stand_in *stand_in, const struct stand_in_call *call, int process,
                   int object, enum stand_in_return how);

/* Asks no file system: who serves one may do it. */
void stand_in_note_start(struct stand_in_call *call);

/* Does the call start from a folder below what was mounted, by its working folder or a descriptor?
 * The mount is not met from there. */
bool stand_in_starts_below(const struct stand_in_call *call);

/* Is it so, and another mount by now? Looks at file systems: not for who serves one. */
bool stand_in_misses_mount(const struct stand_in_call *call);

/* Makes the call itself begin anew, which has to fail with HAND_BACK_ERROR when the result has come
 * (0 or a negative errno). It waits, without any lock of the kernel's, until stand_in_go_on. One
 * that starts below what was mounted is led to the same folder in that first. */
int stand_in_repeat(struct stand_in *stand_in, const struct stand_in_call *call);
void stand_in_go_on(const struct stand_in *stand_in);

/* What the call returned: the value or a negative errno. One that hands back goes on then: it is
 * over when there is something to be read again. */
long stand_in_result(const struct stand_in *stand_in);
void stand_in_end(struct stand_in *stand_in);
