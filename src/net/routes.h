/* Where the kernel would lead a packet. Only what it says itself is right on every machine: an
 * address need not be on an interface to be this machine's (`ip route add local ...`). */
#pragma once

#include "net/address.h"

/* A line to ask by; it goes on working after its process has lost the right to make one. Or a
 * negative errno. */
int routes_open(void);

/* True if a route of this type (RTN_LOCAL, ...) leads to this machine. */
bool routes_lead_here(uint8_t type);

/* Does the address lead to this machine? 1: yes, 0: elsewhere or nowhere, or a negative errno if it
 * cannot be told. */
int routes_ask(int line, const struct address *address);
