/* Confinement of the session's processes; see confine.h. One place, one order: outermost first,
 * seccomp last because it forbids the rest. */
#include "engine/confine.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/caps.h"
#include "engine/landlock.h"
#include "engine/seccomp.h"

/* A session keyring of its own: the caller's may hold passwords and disk keys. Kernels without
 * keyrings have nothing to hide. */
static int replace_keyring(void) {
  if (syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL) < 0 && errno != ENOSYS)
    return -errno;
  return 0;
}

/* Not 0: where core_pattern is a pipe, the kernel starts the host's handler whatever the size,
 * except for the limit 1, which it takes as "never". Whose own hard limit is 0 (`ulimit -c 0`)
 * cannot raise it, and has a plan that says so where there is such a handler. */
int confine_forbid_core_files(void) {
  struct rlimit never = {1, 1}, none = {0, 0};
  int result = setrlimit(RLIMIT_CORE, &never) < 0 ? -errno : 0;
  if (result == -EPERM)
    result = setrlimit(RLIMIT_CORE, &none) < 0 ? -errno : 0;
  return result;
}

/* Nobody may look into any process, says the machine (Yama). */
static bool is_looking_forbidden(void) {
  char scope = '0';
  _cleanup_close_ int fd = open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
  return fd >= 0 && read(fd, &scope, 1) == 1 && scope == '3';
}

/* The connector takes sockets and memory from processes (Linux 5.6, or a container forbids it). */
static bool can_connect_for_others(void) {
  return syscall(SYS_pidfd_getfd, -1, -1, 0) < 0 && errno == EBADF &&
         process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) >= 0 && !is_looking_forbidden();
}

/* Where there is a listener already, by a sandbox around us, there can be no second one. */
static int listen_for_connects(const struct plan *plan) {
  struct seccomp_variant variant = plan->seccomp;
  if (!can_connect_for_others())
    return -EPERM;
  variant.waits = plan->unix_datagrams ? WAIT_CONNECT_DATAGRAMS : WAIT_CONNECT;
  return seccomp_install_listener(seccomp_program(variant));
}

static int install_filter(const struct plan *plan, struct start_report *report, int *ret_listener) {
  *ret_listener = -1;
  if (plan->seccomp.waits != WAIT_NOTHING) {
    report->weaker_sockets = plan->guards_sockets && !can_connect_for_others();
    *ret_listener = seccomp_install_listener(seccomp_program(plan->seccomp));
    return *ret_listener < 0 ? report_failure(report, STEP_LISTENER, *ret_listener) : 0;
  }
  if (plan->guards_sockets)
    *ret_listener = listen_for_connects(plan);
  if (*ret_listener >= 0)
    return 0;
  report->weaker_sockets = plan->guards_sockets;
  int result = seccomp_install(seccomp_program(plan->seccomp));
  return result < 0 ? report_failure(report, STEP_SECCOMP, result) : 0;
}

int confine_prepare(const struct plan *plan, struct start_report *report, int *ret_ruleset) {
  int result = replace_keyring();
  if (result < 0)
    return report_failure(report, STEP_KEYRING, result);
  result = confine_forbid_core_files();
  if (result < 0)
    return report_failure(report, STEP_RLIMIT, result);
  result = caps_drop_bounding_set(); /* 41 calls */
  if (result < 0)
    return report_failure(report, STEP_CAPABILITIES, result);
  const char *failed_path = NULL;
  result = landlock_prepare(&plan->landlock, ret_ruleset, &failed_path);
  if (result < 0) {
    report->detail = failed_path;
    return report_failure(report, STEP_LANDLOCK, result);
  }
  return 0;
}

int confine_self(const struct plan *plan, struct start_report *report, int ruleset,
                 int *ret_listener) {
  int result = caps_drop_rest();
  if (result == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    result = -errno;
  if (result < 0)
    return report_failure(report, STEP_CAPABILITIES, result);
  result = landlock_restrict(&plan->landlock, ruleset);
  if (result < 0)
    return report_failure(report, STEP_LANDLOCK, result);
  result = plan->no_listening ? seccomp_forbid_listening() : 0;
  if (result < 0)
    return report_failure(report, STEP_SECCOMP, result);
  return install_filter(plan, report, ret_listener);
}
