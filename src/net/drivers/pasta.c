/* pasta: translates between a tap device and sockets of the user's. IPv4 and IPv6, with the
 * addresses and routes of the host's own interface. */
#include <stdbool.h>
#include <stddef.h>
#include <unistd.h>

#include "net/drivers/minder.h"

#define READY                                                                                      \
  1 /* the "pid file" that it writes when all is set up; newer ones close all above 2              \
     */

static int start(struct driver_run *run) {
  /* No port leads in (-t, -u) or to the host's loopback (-T, -U), neither does the gateway's
   * address. As root it would become nobody, who may not enter the session: it is root in the
   * session's user namespace only. */
  bool root = geteuid() == 0;
  char *argv[] = {run->tools[0],
                  "--foreground",
                  "--quiet",
                  "--config-net",
                  "--no-map-gw",
                  "-t",
                  "none",
                  "-u",
                  "none",
                  "-T",
                  "none",
                  "-U",
                  "none",
                  "--no-dhcp",
                  "--no-dhcpv6",
                  "--no-ra",
                  "--no-netns-quit",
                  "--ns-ifname",
                  (char *)run->request->driver->interface,
                  "--netns",
                  "/proc/self/fd/0",
                  "--pid",
                  "/proc/self/fd/1",
                  root ? "--runas" : NULL,
                  "0:0",
                  NULL};
  struct driver_service service = {.argv = argv, .ready = READY};
  return driver_serve(run, &service);
}

const struct net_driver pasta_driver = {
    .name = "pasta",
    .interface = "eth0",
    .tools = {{"pasta", "passt"}},
    .probe = net_driver_needs_tun,
    .start = start,
};
