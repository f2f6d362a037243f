/* IPv6 for drivers: whether this machine has it, and an address inside for a driver that leaves
 * that to the kernel and to time. */
#pragma once

#include "net/drivers/minder.h"

/* 0, or the first allowed rule about IPv6 and why the driver cannot have it here. */
int six_check(const struct net_driver *driver, const struct host_rules *rules,
              struct sb_error *error);

/* True if a session of this driver has IPv6 here. */
bool six_is_there(const struct net_driver *driver);

struct six_address {
  const char *address; /* of a network of 64 bits */
  const char *gateway;
};

/* In the minder's process: gives the driver's interface inside an address and the default route, at
 * once usable. 0, or -1 with the problem set. */
int six_configure(struct driver_run *run, const struct six_address *six);
