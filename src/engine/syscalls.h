/* The table of system calls as data, for the generator and the tests. The product never sees it: it
 * has only the programs that were made from it. */
#pragma once

enum syscall_class {
  SYSCALL_ALLOW,
  SYSCALL_DEBUG,
  SYSCALL_CONTAINERS,
  SYSCALL_ARGUMENTS,
  SYSCALL_DENY,
  SYSCALL_ABSENT,
};

struct syscall_row {
  const char *name;
  int number; /* SYSCALL_BY_NAME: ask libseccomp */
  enum syscall_class class;
  const char *reason;
};

#define SYSCALL_BY_NAME      (-1)
#define SYSCALL_FIRST_COMMON 424 /* from here on all architectures share the numbers */

static const struct syscall_row syscall_rows[] = {
#define BY_NAME                              SYSCALL_BY_NAME
#define SYSCALL(class, name, number, reason) {#name, number, SYSCALL_##class, reason},
#include "engine/syscalls.def"
#undef SYSCALL
#undef BY_NAME
};
