/* The relay's end inside a session, tried in a user and network namespace of our own. */
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"
#include "net/inside.h"

static int bring_loopback_up(void) {
  _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
  return fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0 ? -errno : 0;
}

static int try_relay(void) {
  int sockets[INSIDE_SOCKETS];
  int result = bring_loopback_up();
  if (result == 0)
    result = inside_prepare(true, sockets);
  for (int i = 0; result == 0 && i < INSIDE_SOCKETS; i++) {
    if (sockets[i] >= 0)
      close(sockets[i]);
  }
  return -result;
}

void probe_nftables(const struct check *check, struct finding *finding) {
  (void)check;
  if (probe_enter_userns(finding, CLONE_NEWNET))
    finding_of_call(finding, try_relay());
}
