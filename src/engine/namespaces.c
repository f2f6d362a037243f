/* Entering the session's other namespaces; see namespaces.h. */
#include "engine/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"

#define QUICK (CLONE_NEWUTS | CLONE_NEWCGROUP)

static int fail(struct namespaces *namespaces, enum step step) {
  namespaces->errnum = errno;
  namespaces->failed = step;
  return -1;
}

static int bring_loopback_up(void) {
  _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  return fd < 0 ? -1 : ioctl(fd, SIOCSIFFLAGS, &request);
}

static int make(struct namespaces *namespaces) {
  if (unshare(CLONE_NEWNET) < 0)
    return fail(namespaces, STEP_NAMESPACES);
  return bring_loopback_up() < 0 ? fail(namespaces, STEP_LOOPBACK) : 0;
}

/* Shares init's memory, and with it init's errno. It sets that only when it fails, and then the
 * session is over. */
static int maker_main(void *argument) {
  struct namespaces *namespaces = argument;
  if (make(namespaces) < 0)
    return 1;
  namespaces->network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  return namespaces->network < 0 ? -fail(namespaces, STEP_NAMESPACES) : 0;
}

int namespaces_enter(struct namespaces *namespaces, bool later, struct start_report *report) {
  namespaces->maker = 0;
  namespaces->network = -1;
  namespaces->failed = STEP_NONE;
  if (unshare(QUICK) < 0)
    return report_failure(report, STEP_NAMESPACES, -errno);
  if (later)
    namespaces->maker = clone(maker_main, namespaces->stack + sizeof namespaces->stack,
                              CLONE_VM | CLONE_FILES, namespaces);
  if (namespaces->maker > 0)
    return 0;
  /* Needed at once, or a limit leaves no room for one more process. */
  namespaces->maker = 0;
  if (make(namespaces) < 0)
    return report_failure(report, namespaces->failed, -namespaces->errnum);
  return unshare(CLONE_NEWIPC) < 0 ? report_failure(report, STEP_NAMESPACES, -errno) : 0;
}

static int wait_for_maker(struct namespaces *namespaces) {
  int status;
  while (waitpid(namespaces->maker, &status, __WCLONE) < 0) {
    if (errno != EINTR)
      return fail(namespaces, STEP_NAMESPACES);
  }
  if (namespaces->failed == STEP_NONE && status != 0) { /* killed */
    errno = ECHILD;
    return fail(namespaces, STEP_NAMESPACES);
  }
  return namespaces->failed == STEP_NONE ? 0 : -1;
}

static int join(struct namespaces *namespaces) {
  /* Slow as well (60 us), and ours to make: where processors are few, the maker is still at work.
   */
  if (unshare(CLONE_NEWIPC) < 0)
    return fail(namespaces, STEP_NAMESPACES);
  if (wait_for_maker(namespaces) < 0)
    return -1;
  _cleanup_close_ int network = namespaces->network;
  return setns(network, CLONE_NEWNET) < 0 ? fail(namespaces, STEP_NAMESPACES) : 0;
}

int namespaces_join(struct namespaces *namespaces, struct start_report *report) {
  if (namespaces->maker == 0)
    return 0;
  int result = join(namespaces);
  namespaces->maker = 0;
  return result < 0 ? report_failure(report, namespaces->failed, -namespaces->errnum) : 0;
}
