/* What has passed a driver's interface and what the egress rules have refused, asked through
 * sockets that lie in the session's network namespace. */
#pragma once

#include <stdint.h>

#include "net/drivers/egress.h"

/* What was refused: where to, and how often. */
struct driver_refusal {
  struct address address;
  uint8_t protocol; /* of IP */
  uint16_t port;    /* 0: the protocol has none */
  uint64_t packets;
};

struct driver_figures {
  int64_t sent, received; /* bytes; -1: unknown */
  int64_t refused;        /* packets; -1: unknown */
  size_t refusal_count;
  struct driver_refusal refusals[EGRESS_LISTED_ALL];
};

/* `routes` is a NETLINK_ROUTE socket, `rules` a NETLINK_NETFILTER one; either may be -1. */
void driver_figures_read(int routes, int rules, struct driver_figures *ret_figures);
