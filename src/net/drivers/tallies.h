/* Sets of the session's packet filter that count: what was refused, and what was let through, by
 * address, protocol and port. The kernel keeps them; nobody has to read along, and a flood loses
 * nothing but lines. Pure: only their names and rules are made here. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/text.h"

enum tally {
  TALLY_REFUSED,  /* packets */
  TALLY_PEERS,    /* of connections; counts nothing: to look something up in a set counts, too */
  TALLY_OPENED,   /* connections */
  TALLY_SENT,     /* packets and their bytes */
  TALLY_RECEIVED, /* packets and their bytes, of peers alone */
};

/* Their size is their limit: what comes when one is full is decided as it would be otherwise and
 * counted with the rest, but not listed. */
#define TALLY_LISTED   128 /* of one family, with ports */
#define TALLY_PORTLESS 32
#define TALLY_ALL      (2 * (TALLY_LISTED + TALLY_PORTLESS))

struct tally_set {
  enum tally tally;
  uint8_t family;
  bool portless; /* elements are address and protocol, and no port */
};

#define TALLY_NAME_SIZE 16
void tally_set_name(const struct tally_set *set, char ret_name[TALLY_NAME_SIZE]);

/* Counters of all there was, listed or not. */
#define TALLY_REFUSED_ALL "refused" /* packets */
#define TALLY_OPENED_ALL  "opened"  /* connections */

/* The chains. To go to "permit" or "refuse" is a verdict; packets of connections that have come
 * back are to jump to "arrive". The bit of a connection's mark that says it was counted. */
#define TALLY_MARK "0x2"
void tallies_append(struct text *text, bool tells); /* tells: of who is new, see sightings.h */
