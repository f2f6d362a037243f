/* A row of traps.def, with the number that the call has on one architecture. */
#pragma once

#include <stdint.h>

enum trap_kind {
  TRAP_OPEN,
  TRAP_HOW,
  TRAP_CREATE,
  TRAP_STAT,
  TRAP_TEST,
  TRAP_READ,
  TRAP_ENTER,
  TRAP_EXECUTE,
  TRAP_CONNECT,
  TRAP_BIND,
  TRAP_CHANGE,
  TRAP_MAKE,
  TRAP_FOLDER,
  TRAP_REMOVE,
};

enum trap_links { TRAP_FOLLOW, TRAP_NOFOLLOW, TRAP_AT, TRAP_WATCH, TRAP_LINK };

#define TRAP_NONE (-1)
#define TRAP_CWD  (-2)

struct trap {
  uint32_t architecture; /* AUDIT_ARCH_* */
  int number;
  enum trap_kind kind;
  struct {
    int base, path;
  } at[2]; /* arguments; path TRAP_NONE: the call has one path only */
  int flags;
  enum trap_links links;
  const char *name;
};

/* What the call with this number is, or NULL if it is not one that waits. */
const struct trap *seccomp_trap(uint32_t architecture, int number);
