/* Whose socket is it? For questions: a person wants to know which program asks. */
#pragma once

#include <sys/types.h>

#include "net/address.h"

/* The process of the session whose socket (UDP or TCP) has this local address and port, as seen
 * from outside; 0 if it is not found. What the workload shows is a hint for people, never a reason
 * to decide. */
pid_t socket_owner(pid_t init, bool datagrams, const struct address *address, uint16_t port);
