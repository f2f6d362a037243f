/* Knocks of unknown addresses; see knocks.h. */
#include "net/drivers/knocks.h"

#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "net/drivers/egress.h"
#include "net/drivers/openings.h"

/* After each packet TCP waits up to twice as long as before, but never shorter than a second. */
#define PATIENCE_MS 3000

static struct knock *find(struct knocks *knocks, const struct address *address, uint16_t port) {
  for (size_t i = 0; i < knocks->count; i++) {
    if (knocks->items[i].port == port && address_equal(&knocks->items[i].address, address))
      return &knocks->items[i];
  }
  return NULL;
}

static void take_out(struct knocks *knocks, struct knock *knock) {
  *knock = knocks->items[--knocks->count];
}

bool knocks_add(struct knocks *knocks, const struct sighting *sighting, uint64_t now_ms) {
  struct knock *knock = find(knocks, &sighting->address, sighting->port);
  if (knock)
    knock->last_ms = now_ms;
  if (knock || knocks->count == KNOCKS_LIMIT)
    return false;
  knocks->items[knocks->count++] = (struct knock){
      .address = sighting->address, .port = sighting->port, .first_ms = now_ms, .last_ms = now_ms};
  return true;
}

void knocks_forget(struct knocks *knocks, const struct address *address, uint16_t port) {
  struct knock *knock = find(knocks, address, port);
  if (knock)
    take_out(knocks, knock);
}

bool knocks_take_gone(struct knocks *knocks, uint64_t now_ms, struct knock *ret_gone) {
  for (size_t i = 0; i < knocks->count; i++) {
    struct knock *knock = &knocks->items[i];
    if (now_ms - knock->last_ms < PATIENCE_MS + 2 * (knock->last_ms - knock->first_ms))
      continue;
    *ret_gone = *knock;
    take_out(knocks, knock);
    return true;
  }
  return false;
}

/* ---- orders ---- */

void knocks_listen(int filter, bool listens) {
  struct filter_element element = {.set = EGRESS_ASKS, .key = {IPPROTO_TCP}, .key_length = 1};
  if (listens)
    (void)filter_add(filter, &element); /* or the kernel cannot tell, and there is no such set */
  else
    (void)filter_remove(filter, &element);
}

static void answer(int filter, const struct minder_order *order) {
  size_t length = order->address.family == 6 ? 16 : 4;
  struct filter_element element = {.key_length = length + 4, .milliseconds = EGRESS_ANSWER_MS};
  snprintf(element.set, sizeof element.set, "%s%u", order->yes ? EGRESS_WANTED : EGRESS_UNWANTED,
           order->address.family);
  memcpy(element.key, order->address.bytes, length);
  element.key[length] = (uint8_t)(order->port >> 8);
  element.key[length + 1] = (uint8_t)order->port;
  (void)filter_add(filter, &element); /* without room for it the packet is dropped again */
}

void knocks_obey(struct knocks *knocks, int filter, const struct minder_order *order) {
  knocks_forget(knocks, &order->address, order->port);
  answer(filter, order);
}
