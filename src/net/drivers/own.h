/* The host's own addresses, which the guard covers like loopback: a driver's packets come from the
 * host itself, where every service listens to them. */
#pragma once

#include "net/address.h"

/* A socket that can be read when an address has come or gone, or a negative errno. */
int own_addresses_watch(void);

/* Reads all that it has to say. */
void own_addresses_drain(int watch);

/* All of them; a new array, NULL if there are none. 0, or a negative errno if they cannot be had.
 */
int own_addresses(struct address **ret_addresses, size_t *ret_count);
