/* The host's own addresses, which the guard covers like loopback: a driver's packets come from the
 * host itself, where every service listens to them. */
#pragma once

#include "net/address.h"

struct own_network {
  struct address address;
  unsigned bits;
};

/* A socket that can be read when an address has come or gone, or a negative errno. */
int own_networks_watch(void);

/* Reads all that it has to say; false: none of it is about such an address. */
bool own_networks_changed(int watch);

/* All of them; a new array, NULL if there are none. 0, or a negative errno if they cannot be had.
 */
int own_networks(struct own_network **ret_networks, size_t *ret_count);
