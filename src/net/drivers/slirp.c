/* slirp4netns: a TCP/IP stack in a process of the user's, behind a tap device. */
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "net/drivers/minder.h"
#include "net/drivers/six.h"

#define READY 3 /* it prints on the first three */

/* It announces the network of this address, but nobody should have to wait for that. */
static const struct six_address own_address = {"fd00::100", "fe80::2"};

static int start(struct driver_run *run) {
  /* Its way to the host's loopback stays closed; it sees next to no files and has few system calls.
   * Its own sandbox wants to become uid 0, which a plain user's session does not have. The
   * namespace is its stdin: no name of it exists that it could use. */
  bool root = geteuid() == 0, six = six_is_there(run->request->driver);
  char *argv[] = {run->tools[0],
                  "--configure",
                  "--disable-host-loopback",
                  root ? "--enable-sandbox" : "--configure",
                  six ? "--enable-ipv6" : "--configure",
                  "--enable-seccomp",
                  "--mtu=65520",
                  "--ready-fd=3",
                  "--netns-type=path",
                  "/proc/self/fd/0",
                  (char *)run->request->driver->interface,
                  NULL};
  struct driver_service service = {
      .argv = argv, .ready = READY, .shut_in = !root}; /* needs_shut_in */
  if (driver_serve(run, &service) < 0)
    return -1;
  return six ? six_configure(run, &own_address) : 0;
}

const struct net_driver slirp_driver = {
    .name = "slirp4netns",
    .interface = "tap0",
    .resolver = "10.0.2.3",
    .needs_shut_in = true,
    .tools = {{"slirp4netns", "slirp4netns"}},
    .probe = net_driver_needs_tun,
    .start = start,
};
