/* Counts links; see links.h. Nobody tells us where a call begins: a walk does not rest for a
 * second, and ends with a use of what it found. To count too many does no harm. */
#include "gate/links.h"

#include <stdbool.h>

#include "core/clock.h"
#include "gate/once.h"

#define REST_NS (1000ull * 1000 * 1000)

static bool is_over(const struct links *links, size_t i) {
  return monotonic_ns() - links->items[i].at_ns > REST_NS;
}

static size_t find(const struct links *links, pid_t thread) {
  for (size_t i = 0; i < LINKS_KEPT; i++) {
    if (links->items[i].thread == thread && links->items[i].count > 0)
      return i;
  }
  return LINKS_KEPT;
}

void links_add(struct links *links, pid_t thread) {
  size_t i = find(links, thread);
  if (i == LINKS_KEPT) {
    i = links->next++ % LINKS_KEPT;
    links->items[i].count = 0;
    links->items[i].thread = thread;
  } else if (is_over(links, i)) {
    links->items[i].count = 0;
  }
  links->items[i].count++;
  links->items[i].at_ns = monotonic_ns();
}

unsigned links_take(struct links *links, pid_t thread) {
  size_t i = find(links, thread);
  if (i == LINKS_KEPT)
    return 0;
  unsigned count = is_over(links, i) ? 0 : links->items[i].count;
  links->items[i].count = 0;
  return count;
}
