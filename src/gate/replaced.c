/* Notices when the host replaces what was granted; see replaced.h. */
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

#define OF_NAMES  (IN_MOVED_TO | IN_MOVED_FROM | IN_CREATE | IN_DELETE)
#define OF_ITSELF (IN_DELETE_SELF | IN_MOVE_SELF)

struct replaced {
  struct replaced *next;
  char *path;
  int *watches; /* of the folders above it; the first is the one that it lies in */
  size_t watch_count;
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

static void replaced_free(struct replaced *item) {
  free(item->path);
  free(item->watches);
  free(item);
}

/* A folder above it may be moved away, or be removed with all that is in it, and another one have
 * its name. What cannot be watched is missed. */
static void watch_folders(int changes, struct replaced *item) {
  uint32_t events = OF_ITSELF | OF_NAMES;
  _cleanup_free_ char *folder = path_parent(item->path);
  while (strcmp(folder, "/") != 0 || item->watch_count == 0) {
    int watch = inotify_add_watch(changes, folder, events | IN_ONLYDIR | IN_MASK_ADD);
    if (watch >= 0) {
      ARRAY_GROW(item->watches, item->watch_count);
      item->watches[item->watch_count++] = watch;
    } else if (item->watch_count == 0)
      return;
    char *above = path_parent(folder);
    free(folder);
    folder = above;
    events = OF_ITSELF;
  }
}

void replaced_watch(struct gate *gate, const char *path) {
  struct stat status;
  if (is_watched(gate, path) || lstat(path, &status) < 0 || count_watched(gate) >= WATCH_LIMIT)
    return;
  if (gate->changes < 0)
    gate->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  struct replaced *item = xcalloc(1, sizeof *item);
  *item = (struct replaced){.next = gate->watched, .path = xstrdup(path)};
  watch_folders(gate->changes, item);
  if (item->watch_count > 0)
    gate->watched = item;
  else
    replaced_free(item);
}

static void on_change(struct gate *gate, int watch, const char *name) {
  for (const struct replaced *item = gate->watched; item; item = item->next) {
    if (item->watches[0] == watch && strcmp(path_base(item->path), name) == 0)
      gate_renew(gate, item->path);
  }
}

static bool lies_below(const struct replaced *item, int watch) {
  for (size_t i = 0; i < item->watch_count; i++) {
    if (item->watches[i] == watch)
      return true;
  }
  return false;
}

/* The folder is not where it was: all that was watched by way of it is found anew. */
static void on_folder(struct gate *gate, int watch) {
  struct replaced *moved = NULL;
  for (struct replaced **place = &gate->watched, *item; (item = *place);) {
    if (lies_below(item, watch)) {
      *place = item->next;
      item->next = moved;
      moved = item;
    } else
      place = &item->next;
  }
  for (struct replaced *next; moved; moved = next) {
    next = moved->next;
    gate_renew(gate, moved->path);
    replaced_watch(gate, moved->path);
    replaced_free(moved);
  }
}

/* So many changes that the kernel dropped some: look at all of them again. */
static void on_overflow(struct gate *gate) {
  for (const struct replaced *item = gate->watched; item; item = item->next)
    gate_renew(gate, item->path);
}

static void on_event(void *context, const struct inotify_event *event, const char *name) {
  struct gate *gate = context;
  if (event->mask & IN_Q_OVERFLOW)
    on_overflow(gate);
  else if (event->mask & OF_ITSELF) {
    inotify_rm_watch(gate->changes, event->wd); /* it may live on, elsewhere */
    on_folder(gate, event->wd);
  } else if (event->mask & (IN_IGNORED | IN_UNMOUNT))
    on_folder(gate, event->wd);
  else if (event->len > 0)
    on_change(gate, event->wd, name);
}

void replaced_read(struct gate *gate) {
  _Alignas(struct inotify_event) char buffer[4096];
  inotify_read(gate->changes, buffer, sizeof buffer, on_event, gate);
}

void replaced_clear(struct gate *gate) {
  for (struct replaced *item = gate->watched, *next; item; item = next) {
    next = item->next;
    replaced_free(item);
  }
  if (gate->changes >= 0)
    close(gate->changes);
}
