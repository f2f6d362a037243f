/* Hands out and installs the filters that were made at build time. Nothing is decided here: the
 * policy is src/engine/syscalls.def and tools/genfilter-rules.c. */
#include "engine/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/traps.h"

#include "engine/seccomp-filters.h"

/* Linux 5.19. Without it every signal that the caller handles ends the wait, and the call starts
 * over as a new question. */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

const struct sock_fprog *seccomp_program(struct seccomp_variant variant) {
  return &seccomp_filters[variant.waits][variant.debug][variant.containers];
}

int seccomp_install(const struct sock_fprog *program) {
  if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, program) < 0)
    return -errno;
  return 0;
}

int seccomp_install_listener(const struct sock_fprog *program) {
  static const unsigned long flags[] = {SECCOMP_FILTER_FLAG_NEW_LISTENER |
                                            SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                                        SECCOMP_FILTER_FLAG_NEW_LISTENER};
  for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
    int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags[i], program);
    if (listener >= 0 || errno != EINVAL)
      return listener < 0 ? -errno : listener;
  }
  return -EINVAL;
}

const struct trap *seccomp_trap(uint32_t architecture, int number) {
  for (size_t i = 0; i < ARRAY_SIZE(seccomp_filters_traps); i++) {
    const struct trap *trap = &seccomp_filters_traps[i];
    if (trap->number == number && trap->architecture == architecture)
      return trap;
  }
  return NULL;
}
