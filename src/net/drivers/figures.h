/* What has passed a driver's interface and what the egress rules have let through and refused,
 * asked through sockets that lie in the session's network namespace. */
#pragma once

#include <stdint.h>

#include "net/drivers/egress.h"
#include "net/drivers/tallies.h"

/* Where to, and how often. */
struct driver_line {
  struct address address;
  uint8_t protocol;       /* of IP */
  uint16_t port;          /* 0: the protocol has none */
  int64_t count;          /* connections; what was refused: packets */
  int64_t sent, received; /* bytes of packets, with their headers; -1: unknown */
};

struct driver_figures {
  int64_t sent, received; /* bytes of the interface; -1: unknown */
  int64_t refused;        /* packets; -1: unknown */
  int64_t connections;    /* that were let through; -1: unknown */
  size_t denied_count, allowed_count;
  struct driver_line denied[TALLY_ALL], allowed[TALLY_ALL];
};

/* `routes` is a NETLINK_ROUTE socket, `rules` a NETLINK_NETFILTER one; either may be -1. */
void driver_figures_read(int routes, int rules, struct driver_figures *ret_figures);
