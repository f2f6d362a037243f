/* Notices when the host replaces a granted file; see replaced.h. */
#include "gate/replaced.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/inotify.h"
#include "core/path.h"
#include "gate/waiting.h"

#define WATCH_LIMIT                                                                                \
  512 /* inotify watches are scarce: 8,192 for all programs of a user on old kernels */

struct replaced {
  struct replaced *next;
  int watch;
  char *path;
};

static size_t count_watched(const struct gate *gate) {
  size_t count = 0;
  for (const struct replaced *item = gate->watched; item; item = item->next)
    count++;
  return count;
}

static bool is_watched(const struct gate *gate, const char *path) {
  for (const struct replaced *item = gate->watched; item; item = item->next) {
    if (strcmp(item->path, path) == 0)
      return true;
  }
  return false;
}

void replaced_watch(struct gate *gate, const char *path) {
  struct stat status;
  if (is_watched(gate, path) || lstat(path, &status) < 0 || S_ISDIR(status.st_mode) ||
      count_watched(gate) >= WATCH_LIMIT)
    return;
  if (gate->changes < 0)
    gate->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  _cleanup_free_ char *folder = path_parent(path);
  int watch = inotify_add_watch(gate->changes, folder,
                                IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE | IN_ONLYDIR |
                                    IN_MASK_ADD);
  if (watch < 0)
    return;
  struct replaced *item = xcalloc(1, sizeof *item);
  *item = (struct replaced){.next = gate->watched, .watch = watch, .path = xstrdup(path)};
  gate->watched = item;
}

static void on_change(struct gate *gate, int watch, const char *name) {
  for (const struct replaced *item = gate->watched; item; item = item->next) {
    if (item->watch == watch && strcmp(path_base(item->path), name) == 0)
      gate_renew(gate, item->path);
  }
}

/* So many changes that the kernel dropped some: look at all of them again. */
static void on_overflow(struct gate *gate) {
  for (const struct replaced *item = gate->watched; item; item = item->next)
    gate_renew(gate, item->path);
}

static void on_event(void *context, const struct inotify_event *event, const char *name) {
  if (event->mask & IN_Q_OVERFLOW)
    on_overflow(context);
  else if (event->len > 0)
    on_change(context, event->wd, name);
}

void replaced_read(struct gate *gate) {
  _Alignas(struct inotify_event) char buffer[4096];
  inotify_read(gate->changes, buffer, sizeof buffer, on_event, gate);
}

void replaced_clear(struct gate *gate) {
  for (struct replaced *item = gate->watched, *next; item; item = next) {
    next = item->next;
    free(item->path);
    free(item);
  }
  if (gate->changes >= 0)
    close(gate->changes);
}
