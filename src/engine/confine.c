/* Confinement of the session's processes; see confine.h. One place, one order: outermost first,
 * seccomp last because it forbids the rest. */
#include "engine/confine.h"

#include <errno.h>
#include <linux/keyctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

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

/* A core file would copy approved secrets into a writable folder, or reach a host handler. Not 0:
 * where core_pattern is a pipe, the kernel starts the host's handler whatever the size, except for
 * the limit 1, which it takes as "never". */
static int forbid_core_files(void) {
  struct rlimit never = {1, 1};
  return setrlimit(RLIMIT_CORE, &never) < 0 ? -errno : 0;
}

int confine_self(const struct plan *plan, struct start_report *report, int *ret_listener) {
  int result = replace_keyring();
  if (result < 0)
    return report_failure(report, STEP_KEYRING, result);
  result = forbid_core_files();
  if (result < 0)
    return report_failure(report, STEP_RLIMIT, result);
  result = caps_drop_all();
  if (result == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    result = -errno;
  if (result < 0)
    return report_failure(report, STEP_CAPABILITIES, result);
  const char *failed_path = NULL;
  result = landlock_apply(&plan->landlock, &failed_path);
  if (result < 0) {
    report->detail = failed_path;
    return report_failure(report, STEP_LANDLOCK, result);
  }
  result = plan->no_listening ? seccomp_forbid_listening() : 0;
  if (result < 0)
    return report_failure(report, STEP_SECCOMP, result);
  *ret_listener = -1;
  if (plan->seccomp.notify) {
    result = seccomp_install_listener(seccomp_program(plan->seccomp));
    if (result < 0)
      return report_failure(report, STEP_LISTENER, result);
    *ret_listener = result;
    return 0;
  }
  result = seccomp_install(seccomp_program(plan->seccomp));
  return result < 0 ? report_failure(report, STEP_SECCOMP, result) : 0;
}
