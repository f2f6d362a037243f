/* Counts links; see links.h. Nobody tells us where a call begins: a walk does not rest for a
 * second, and ends with a use of what it found. To count too many does no harm. */
#include "gate/links.h"

#include "gate/once.h"

#define REST_NS (1000ull * 1000 * 1000)

static size_t find(const struct links *links, pid_t thread) {
  for (size_t i = 0; i < LINKS_KEPT; i++) {
    if (links->items[i].thread == thread && links->items[i].count > 0)
      return i;
  }
  return LINKS_KEPT;
}

void links_add(struct links *links, pid_t thread) {
  uint64_t now = once_now_ns();
  size_t i = find(links, thread);
  if (i == LINKS_KEPT) {
    i = links->next++ % LINKS_KEPT;
    links->items[i].count = 0;
    links->items[i].thread = thread;
  } else if (now - links->items[i].at_ns > REST_NS) {
    links->items[i].count = 0;
  }
  links->items[i].count++;
  links->items[i].at_ns = now;
}

unsigned links_count(const struct links *links, pid_t thread) {
  size_t i = find(links, thread);
  return i == LINKS_KEPT ? 0 : links->items[i].count;
}

unsigned links_take(struct links *links, pid_t thread) {
  size_t i = find(links, thread);
  unsigned count = links_count(links, thread);
  if (i < LINKS_KEPT)
    links->items[i].count = 0;
  return count;
}
