/* Entering the session's other namespaces; see namespaces.h. */
#include "engine/namespaces.h"

#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
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

static int detach_root(void) {
  return umount2("/", MNT_DETACH); /* what lies on top of it */
}

static int tell(int event) {
  const uint64_t one = 1;
  return write(event, &one, sizeof one) == sizeof one ? 0 : -1;
}

/* Shares init's memory, and with it init's errno. It sets that only when it fails, and then the
 * session is over. */
static int maker_main(void *argument) {
  struct namespaces *namespaces = argument;
  uint64_t ignored;
  if (make(namespaces) < 0)
    return 1;
  namespaces->network = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  if (namespaces->network < 0 || tell(namespaces->made) < 0)
    return -fail(namespaces, STEP_NAMESPACES);
  /* pivot_root has given us the new root, as everybody whose root was the old one. */
  if (read(namespaces->asked_to_leave, &ignored, sizeof ignored) < 0 || detach_root() < 0)
    return -fail(namespaces, STEP_PIVOT);
  return 0;
}

static void let_go(struct namespaces *namespaces) {
  const int fds[] = {namespaces->made, namespaces->asked_to_leave, namespaces->maker_fd};
  for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
    if (fds[i] >= 0)
      close(fds[i]);
  }
  namespaces->maker = 0;
}

static void start_maker(struct namespaces *namespaces) {
  static _Alignas(16) char stack[16 * 1024]; /* within init's it would be touched as a whole */
  namespaces->made = eventfd(0, EFD_CLOEXEC);
  namespaces->asked_to_leave = eventfd(0, EFD_CLOEXEC);
  namespaces->maker_fd = -1;
  if (namespaces->made >= 0 && namespaces->asked_to_leave >= 0)
    namespaces->maker =
        clone(maker_main, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_PIDFD | SIGCHLD,
              namespaces, &namespaces->maker_fd);
  if (namespaces->maker <= 0)
    let_go(namespaces);
}

int namespaces_enter(struct namespaces *namespaces, struct start_report *report) {
  namespaces->maker = 0;
  namespaces->network = -1;
  namespaces->joined = false;
  namespaces->failed = STEP_NONE;
  if (unshare(QUICK) < 0)
    return report_failure(report, STEP_NAMESPACES, -errno);
  start_maker(namespaces);
  if (namespaces->maker > 0)
    return 0;
  /* A limit leaves no room for one more process. */
  if (make(namespaces) < 0)
    return report_failure(report, namespaces->failed, -namespaces->errnum);
  return 0;
}

int namespaces_leave_root(struct namespaces *namespaces, struct start_report *report) {
  int result = namespaces->maker ? tell(namespaces->asked_to_leave) : detach_root();
  return result < 0 ? report_failure(report, STEP_PIVOT, -errno) : 0;
}

static bool has_ended(const struct namespaces *namespaces) {
  struct pollfd watched = {.fd = namespaces->maker_fd, .events = POLLIN};
  return poll(&watched, 1, 0) > 0;
}

/* Why it has ended before it should. */
static int fail_with_maker(struct namespaces *namespaces) {
  errno = ECHILD; /* killed, if it says nothing itself */
  return namespaces->failed == STEP_NONE ? fail(namespaces, STEP_NAMESPACES) : -1;
}

static int wait_for_network(struct namespaces *namespaces) {
  struct pollfd watched[] = {{.fd = namespaces->made, .events = POLLIN},
                             {.fd = namespaces->maker_fd, .events = POLLIN}};
  while (poll(watched, ARRAY_SIZE(watched), -1) < 0) {
    if (errno != EINTR)
      return fail(namespaces, STEP_NAMESPACES);
  }
  return watched[0].revents ? 0 : fail_with_maker(namespaces);
}

static int join(struct namespaces *namespaces) {
  /* Slow as well (60 us), and ours to make: where processors are few, the maker is still at work.
   */
  if (unshare(CLONE_NEWIPC) < 0)
    return fail(namespaces, STEP_NAMESPACES);
  if (namespaces->maker == 0)
    return 0;
  if (wait_for_network(namespaces) < 0)
    return -1;
  _cleanup_close_ int network = namespaces->network;
  return setns(network, CLONE_NEWNET) < 0 ? fail(namespaces, STEP_NAMESPACES) : 0;
}

int namespaces_join(struct namespaces *namespaces, struct start_report *report) {
  if (!namespaces->joined && join(namespaces) < 0)
    return report_failure(report, namespaces->failed, -namespaces->errnum);
  namespaces->joined = true;
  return 0;
}

static uint64_t mount_id(const char *path) {
  struct statx status;
  return statx(AT_FDCWD, path, 0, STATX_MNT_ID, &status) < 0 ? 0 : status.stx_mnt_id;
}

/* The one mistake that would undo everything: something of the old tree above our root. */
static bool is_root_left(void) {
  uint64_t root = mount_id("/");
  return root != 0 && mount_id("/..") == root;
}

/* When that is so, nobody can get there any more, and the rest of the maker's call is the kernel's
 * wait for those who are still in there. */
static int wait_until_left(struct namespaces *namespaces) {
  while (!is_root_left()) {
    bool over = namespaces->maker == 0 || has_ended(namespaces);
    if (over && !is_root_left()) {
      errno = EXDEV;
      return namespaces->failed == STEP_NONE ? fail(namespaces, STEP_PIVOT) : -1;
    }
    sched_yield();
  }
  return 0;
}

int namespaces_finish(struct namespaces *namespaces, bool wholly, struct start_report *report) {
  int result = wait_until_left(namespaces);
  while (wholly && namespaces->maker > 0 && waitpid(namespaces->maker, NULL, 0) < 0 &&
         errno == EINTR)
    ;
  if (namespaces->maker > 0)
    let_go(namespaces);
  return result < 0 ? report_failure(report, namespaces->failed, -namespaces->errnum) : 0;
}
