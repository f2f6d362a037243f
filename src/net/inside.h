/* What the session's init does in its network namespace for the relay, while it still may: routes
 * that keep every packet on the loopback device, rules that lead connections and questions to our
 * sockets, and the sockets themselves. Raw system calls, no allocation.
 *
 * The rules use the kernel's transparent proxying, not address translation: there is no connection
 * tracking to pay for, the accepted socket's own name is where the workload wanted to go, and
 * answers come from there. If the relay is gone, its sockets are, and the kernel answers with a
 * reset or "port unreachable": the routes lead nowhere else. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* On the session's loopback. One port for everything that comes by TCP: what was led here keeps its
 * destination, what was addressed to it is a proxy request, and its first byte says of which kind.
 * Above the ports that are given out at random. */
#define RELAY_PORT       61080
#define RESOLVER_PORT    53
#define RESOLVER_ADDRESS "127.0.0.53"

enum inside_socket {
  INSIDE_TCP4,
  INSIDE_UDP4, /* questions */
  INSIDE_TCP6,
  INSIDE_UDP6,
  INSIDE_GROUP, /* so many are passed at a time */
  /* mode full: all other datagrams, and a socket that sends whole packets for the answers */
  INSIDE_DATAGRAMS4 = INSIDE_GROUP,
  INSIDE_RAW4,
  INSIDE_DATAGRAMS6,
  INSIDE_RAW6,
  /* the same for `ping`, where the machine allows it */
  INSIDE_PING4,
  INSIDE_PING6,
  INSIDE_SOCKETS
};

/* Lets the workload have ping sockets, if it has ids already. Not everywhere possible; then `ping`
 * says so. Where not every address of the world is the session's own (a driver), the kernel goes on
 * answering for those that are. */
void inside_allow_ping(unsigned group, bool answer);

/* Lets the workload listen on every port, as far as that is possible: which of them a published one
 * leads to is the policy's choice. */
void inside_allow_ports(void);

/* For a driver's network: only the sockets for questions, on loopback, and no rules or routes. */
int inside_prepare_questions(int ret_sockets[INSIDE_SOCKETS]);

/* Fills ret_sockets; those of IPv6 are -1 where the kernel has none. Returns 0 or a negative errno,
 * and then nothing is open. */
int inside_prepare(bool full, int ret_sockets[INSIDE_SOCKETS]);
