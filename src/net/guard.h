/* The guard on addresses: where a name may never lead unless policy lists the address itself. It
 * is asked about every address a connection is about to use, after resolving, so a name that
 * changes its mind (DNS rebinding) gains nothing. The table is pure; what the host's own addresses
 * are, the kernel says. */
#pragma once

#include "net/match.h"

/* Why the address is out of bounds ("loopback", "private network", …), or NULL. Addresses that
 * carry an IPv4 address inside (mapped, NAT64, 6to4) are judged by it, too. */
const char *guard_reason(const struct address *address);

/* All that has such a reason, as networks, one after the other; false beyond the last. Those with
 * family 0 are none. */
bool guard_network(size_t index, struct address *ret_network, unsigned *ret_bits);

/* For a process that confines itself and still asks what is this machine's: before that. 0 or a
 * negative errno. */
int guard_prepare(void);

/* The last look before a packet leaves, also for what a name that policy allows has led to. */
bool guard_allows(const struct host_rules *rules, const char *host, const struct address *address,
                  uint16_t port, char ret_reason[REASON_SIZE]);
