/* Synthetic addresses: the resolver answers a name with an address of ours, and the relay finds the
 * name again when somebody connects to it. Bounded: when all are taken, the oldest is given to the
 * new name; policy is asked about the name at the time of the connection, so that is never more
 * than a connection to the wrong allowed name. Pure. */
#pragma once

#include "net/address.h"

#define NAMES_LIMIT 16384

struct names;

struct names *names_new(void);
void names_free(struct names *names);

/* The number of a name, the same each time while it is remembered. */
unsigned names_add(struct names *names, const char *name);

/* 198.18.0.0/15 and a unique local prefix of our own. */
struct address names_v4(unsigned number);
struct address names_v6(unsigned number);

/* True if the address is in one of our ranges, whether or not a name has it. */
bool names_is_synthetic(const struct address *address);

/* The name, or NULL. */
const char *names_find(const struct names *names, const struct address *address);
