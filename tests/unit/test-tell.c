/* What is allowed once a call that only looks is told by the monitor: every such call that waits
 * can be. */
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "core/cleanup.h"
#include "gate/tell.h"

#if defined(__x86_64__)
static const uint32_t architectures[] = {AUDIT_ARCH_X86_64, AUDIT_ARCH_I386};
#elif defined(__aarch64__)
static const uint32_t architectures[] = {AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM};
#endif

/* Forms of stat(2) that are older than stat64, of 32-bit programs. */
static bool is_too_old(const struct trap *trap) {
  static const char *const names[] = {"lstat", "oldlstat", "oldstat", "stat"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (!(trap->architecture & __AUDIT_ARCH_64BIT) && strcmp(trap->name, names[i]) == 0)
      return true;
  }
  return false;
}

static bool looks(const struct trap *trap) {
  return trap && trap->links != TRAP_WATCH &&
         (trap->kind == TRAP_STAT || trap->kind == TRAP_TEST || trap->kind == TRAP_READ);
}

static void test_every_look_can_be_told(void **state) {
  (void)state;
  static struct told told;
  _cleanup_close_ int object = open("/", O_PATH | O_CLOEXEC);
  for (size_t i = 0; i < ARRAY_SIZE(architectures); i++) {
    int count = 0;
    for (int number = 0; number < 1024; number++) {
      const struct call call = {.trap = seccomp_trap(architectures[i], number),
                                .target = {.thread = getpid()}};
      if (!looks(call.trap))
        continue;
      bool answered = tell_call(&call, object, &told) != -ENOTSUP;
      if (answered == is_too_old(call.trap))
        fail_msg("%s (%d of %#x)", call.trap->name, number, architectures[i]);
      count += answered;
    }
    assert_true(count >= 13);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_look_can_be_told)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
