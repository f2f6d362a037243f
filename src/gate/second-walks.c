/* Who walks for the second time; see second-walks.h. Who met a mount there, or died, never comes
 * back: his entry is used again when there is no other. To have one too many does no harm. */
#include "gate/second-walks.h"

static bool leads_to(const struct second_walks *walks, size_t i, const struct stat *object) {
  return walks->items[i].thread && walks->items[i].inode == object->st_ino &&
         walks->items[i].device == object->st_dev;
}

static size_t find(const struct second_walks *walks, pid_t thread, const struct stat *object) {
  size_t i = 0;
  while (i < SECOND_WALKS && !(walks->items[i].thread == thread && leads_to(walks, i, object)))
    i++;
  return i;
}

void second_walks_add(struct second_walks *walks, pid_t thread, const struct stat *object) {
  if (thread <= 0 || find(walks, thread, object) < SECOND_WALKS)
    return;
  size_t i = walks->next++ % SECOND_WALKS;
  walks->items[i].thread = thread;
  walks->items[i].device = object->st_dev;
  walks->items[i].inode = object->st_ino;
}

bool second_walks_take(struct second_walks *walks, pid_t thread, const struct stat *object) {
  size_t i = find(walks, thread, object);
  if (i == SECOND_WALKS)
    return false;
  walks->items[i].thread = 0;
  return true;
}

bool second_walks_lead_to(const struct second_walks *walks, const struct stat *object) {
  for (size_t i = 0; i < SECOND_WALKS; i++) {
    if (leads_to(walks, i, object))
      return true;
  }
  return false;
}
