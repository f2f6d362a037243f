/* The differences of two sequences by Myers' algorithm, in linear space. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct sequence {
  const unsigned *items; /* equal numbers are equal lines */
  bool *changed;         /* one per item; set where the item is not in the other sequence */
  size_t count;
};

/* Marks what differs. Always right, and minimal unless the sequences differ so much that finding
 * the minimum would take long: time is bounded by about 500 steps per item. */
void myers_compare(const struct sequence *old, const struct sequence *new);
