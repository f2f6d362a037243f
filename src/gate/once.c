/* What was allowed once, for a moment; see once.h. */
#include "gate/once.h"
#include "core/clock.h"

#include <poll.h>
#include <sys/pidfd.h>
#include <unistd.h>

#define ONCE_NS (2ull * 1000 * 1000 * 1000)

static bool has_ended(const struct once *once) {
  struct pollfd end = {.fd = once->pidfd, .events = POLLIN};
  return poll(&end, 1, 0) != 0;
}

static void forget(struct once *once) {
  if (once->process > 0)
    close(once->pidfd);
  *once = (struct once){0};
}

/* Numbers of files are used again at once; a file that came later was changed later. */
static bool is_object(const struct once *once, const struct stat *object) {
  return once->inode == object->st_ino && once->device == object->st_dev &&
         once->changed.tv_sec == object->st_ctim.tv_sec &&
         once->changed.tv_nsec == object->st_ctim.tv_nsec;
}

static struct once *find(struct once_list *list, pid_t process, const struct stat *object) {
  for (size_t i = 0; i < ONCE_COUNT; i++) {
    struct once *once = &list->items[i];
    if (process > 0 && once->process == process && is_object(once, object) &&
        once->until_ns > monotonic_ns() && !has_ended(once))
      return once;
  }
  return NULL;
}

bool once_may_use(struct once_list *list, pid_t process, const struct stat *object,
                  enum once_use use) {
  struct once *once = find(list, process, object);
  if (!once || (use != ONCE_LOOK && once->used[use] && once->again[use] == 0))
    return false;
  if (once->used[use] && once->again[use] > 0)
    once->again[use]--;
  once->used[use] = true;
  return true;
}

void once_remember(struct once_list *list, pid_t process, const struct stat *object,
                   enum once_use use) {
  if (process <= 0 || find(list, process, object))
    return;
  int pidfd = pidfd_open(process, 0);
  if (pidfd < 0)
    return; /* then the next call is another question */
  struct once *once = &list->items[list->next++ % ONCE_COUNT];
  forget(once);
  *once = (struct once){
      .process = process,
      .pidfd = pidfd,
      .device = object->st_dev,
      .inode = object->st_ino,
      .changed = object->st_ctim,
      .until_ns = monotonic_ns() + ONCE_NS,
  };
  once->used[use] = true;
}

bool once_give_back(struct once_list *list, pid_t process, const struct stat *object,
                    enum once_use use) {
  struct once *once = find(list, process, object);
  if (once)
    once->again[use]++;
  return once;
}

void once_clear(struct once_list *list) {
  for (size_t i = 0; i < ONCE_COUNT; i++)
    forget(&list->items[i]);
}
