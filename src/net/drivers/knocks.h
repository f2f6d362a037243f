/* Somebody wants to connect to an address that no rule knows. The packet filter drops the first
 * packet and tells of it; TCP sends it again, and again, while a person is asked. Then the address
 * and port are in one of two sets, and the next packet passes or is refused. This is the minder's
 * part: which knocks wait, and what the monitor orders. */
#pragma once

#include "net/drivers/sightings.h"

#define KNOCKS_LIMIT 64 /* at the same time; who comes then knocks again */

/* monitor → minder: the answer to a knock */
struct minder_order {
  bool yes; /* it may pass */
  struct address address;
  uint16_t port;
};

struct knocks {
  size_t count;
  struct knock {
    struct address address;
    uint16_t port;
    uint64_t first_ms, last_ms;
  } items[KNOCKS_LIMIT];
};

/* True: it is a new one, which the monitor has to be told of. */
bool knocks_add(struct knocks *knocks, const struct sighting *sighting, uint64_t now_ms);

/* It no longer waits. */
void knocks_forget(struct knocks *knocks, const struct address *address, uint16_t port);

/* Takes one out that nobody has repeated for so long that nobody waits any more. */
bool knocks_take_gone(struct knocks *knocks, uint64_t now_ms, struct knock *ret_gone);

/* In whichever process: whether unknown addresses are told of, or refused at once, because nobody
 * is there to be asked. */
void knocks_listen(int filter, bool listens);

/* Does it, in the packet filter. */
void knocks_obey(struct knocks *knocks, int filter, const struct minder_order *order);
