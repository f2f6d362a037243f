/* Is every system call classified on purpose? Compares the table with the kernel that runs here and
 * with the headers we were built with; fails when either knows a call that the table does not. */
#include "unit.h"

#include <errno.h>
#include <grp.h>
#include <seccomp.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/syscalls.h"

#define BEYOND 64 /* numbers after the last known one that are tried as well */
#define NOBODY 65534

static bool is_classified(const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    if (strcmp(syscall_rows[i].name, name) == 0)
      return true;
  }
  return false;
}

static bool number_is_classified(int number) {
  for (size_t i = 0; i < ARRAY_SIZE(syscall_rows); i++) {
    bool here =
        syscall_rows[i].number >= SYSCALL_FIRST_COMMON || seccomp_arch_native() == SCMP_ARCH_X86_64;
    if (here && syscall_rows[i].number == number)
      return true;
  }
  _cleanup_free_ char *name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, number);
  return name && is_classified(name);
}

static int highest_number(void) {
  int highest = 0;
  for (int number = 0; number < 1024; number++) {
    if (number_is_classified(number))
      highest = number;
  }
  return highest;
}

/* Whatever the unknown call does, it must not be able to do harm: no rights, no time, no files. */
static void disarm(void) {
  for (int number = 1; number < NSIG; number++)
    signal(number, SIG_DFL); /* cmocka's would go on with the tests in this process */
  alarm(2);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (geteuid() == 0 && (setgroups(0, NULL) || setgid(NOBODY) || setuid(NOBODY)))
    _exit(2);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
  setrlimit(RLIMIT_NPROC, &(struct rlimit){0, 0});
}

/* Calls it with arguments that no call can use. A child that does not come back with ENOSYS, in
 * whatever way, means that the call exists. */
static bool kernel_has(int number) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    disarm();
    long result = syscall(number, -1L, -1L, -1L, -1L, -1L, -1L);
    _exit(result == -1 && errno == ENOSYS ? 0 : 1);
  }
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
    fail_msg("cannot give up privileges");
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void test_the_kernel_has_no_other_calls(void **state) {
  (void)state;
  for (int number = 0; number <= highest_number() + BEYOND; number++) {
    if (!number_is_classified(number) && kernel_has(number))
      fail_msg("this kernel has a system call %d that syscalls.def does not name", number);
  }
}

/* Without this, a probe that always said "no" would pass. */
static void test_the_probe_finds_calls(void **state) {
  (void)state;
  assert_true(kernel_has(SYS_close));
  assert_true(kernel_has(SYS_fsync));
  assert_false(kernel_has(100000));
}

static void test_the_headers_have_no_other_calls(void **state) {
  (void)state;
  static const char *const names[] = {
#define HEADER_CALL(name) #name,
#include "header-calls.h"
  };
  assert_true(ARRAY_SIZE(names) > 300);
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (!is_classified(names[i]))
      fail_msg("the kernel headers have %s, syscalls.def does not name it", names[i]);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_the_kernel_has_no_other_calls),
    cmocka_unit_test(test_the_probe_finds_calls),
    cmocka_unit_test(test_the_headers_have_no_other_calls),
};
UNIT_MAIN(tests)
