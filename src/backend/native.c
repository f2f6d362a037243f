/* The native engine as one back end among others. It runs through src/session, which needs no
 * command line of another program. */
#include "backend/backend.h"
#include "backend/runner-limits.h"
#include "doctor/userns.h"

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  struct userns_facts facts = userns_gather();
  enum userns_reason reason = userns_judge(&facts);
  const struct userns_explanation *explanation = userns_explain(reason);
  if (!status->quick)
    status->features &= ~RUNNER_GROUP_LIMITS | runner_native_limits();
  if (reason == USERNS_WORKS)
    backend_available(status, "needs no other program");
  else
    backend_missing(status, explanation->fix, "%s", explanation->why);
}

const struct backend native_backend = {
    .name = "native",
    .summary = "namespaces, mounts, Landlock and seccomp, by this program alone",
    .features = FEATURE(READ_ALL) | FEATURE(ASK) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) |
                FEATURE(PROTECT) | FEATURE(PROTECT_LINKS) | FEATURE(RESERVE) |
                FEATURE(READONLY_IN_WRITABLE) | FEATURE(OVERLAY) | FEATURE(NETWORK_NONE) |
                FEATURE(NETWORK_FILTERED) | FEATURE(NETWORK_FULL) | FEATURE(NETWORK_DRIVER) |
                FEATURE(PUBLISH) | FEATURE(UNIX_SOCKETS) | FEATURE(NO_LISTENING) |
                FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) |
                FEATURE(LIMIT_DISK) | FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) |
                FEATURE(LIMIT_TIME) | FEATURE(NO_DEBUG) | FEATURE(TIME_OFFSET) |
                FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |
                FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA),
    .probe = probe,
};
