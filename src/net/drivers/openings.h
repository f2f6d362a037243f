/* Addresses that permitted names have led to, on their way into the session's packet filter. The
 * resolver parses what a hostile workload sends, so it has no right over the filter: it asks the
 * minder, over a SEQPACKET socket pair with fixed messages, and answers the workload when the
 * address is open. All that can be asked for is that one of the sets of EGRESS_NAMED has an address
 * for a time; the guard and the deny rules come before those sets. */
#pragma once

#include <stdbool.h>

#include "net/resolve.h"

struct opening {
  uint32_t id;
  uint32_t classes; /* a bit each, see classes.h */
  uint32_t seconds;
  uint32_t count;
  struct address addresses[RESOLVE_LIMIT];
};

struct opened {
  uint32_t id;
  uint32_t done; /* all of it */
};

/* How long an answer may be kept, and how long its addresses are open: never shorter, and long
 * enough for programs that keep an answer a little longer than they may. */
#define OPENING_TTL_MOST 300
#define OPENING_SHORTEST 120
#define OPENING_GRACE    30

/* In the minder's process: a netfilter socket in the session's network namespace, or a negative
 * errno. */
int openings_socket(int net_ns);

/* An element of a set in the session's packet filter. */
struct filter_element {
  char set[32];
  uint8_t key[20];
  size_t key_length;
  uint64_t milliseconds; /* how long it stays; 0: for good */
};

/* Adds it; if it is there, its time begins anew. */
bool filter_add(int filter, const struct filter_element *element);
bool filter_remove(int filter, const struct filter_element *element);
bool filter_flush(int filter, const char *set);

/* Takes back what names have opened of this address, in so many classes. */
void openings_close(int filter, const struct address *address, size_t class_count);

/* Reads one request and answers it; false: nobody asks any more. */
bool openings_serve(int asker, int filter);
