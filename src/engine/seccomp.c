/* Hands out and installs the filters that were made at build time. Nothing is decided here: the
 * policy is src/engine/syscalls.def and tools/genfilter-rules.c. */
#include "engine/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/seccomp-filters.h"

const struct sock_fprog *seccomp_program(struct seccomp_variant variant) {
  return &seccomp_filters[variant.debug][variant.containers];
}

int seccomp_install(const struct sock_fprog *program) {
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0)
    return -errno;
  return 0;
}
