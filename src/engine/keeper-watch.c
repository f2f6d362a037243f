/* The keeper's eyes; see keeper.h. An event only says where to look: what is there decides. The
 * workload can make as many events as it likes, so each must cost next to nothing unless it is
 * about a name that counts. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/inotify.h"
#include "core/path.h"
#include "engine/keeping.h"

#define OF_NAMES  (IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_MOVED_FROM)
#define OF_ITSELF (IN_DELETE_SELF | IN_MOVE_SELF)

/* More than that between two looks can only be a flood: then everything is looked at. */
#define APPEARED_LIMIT 256

/* ---- names that count ---- */

static size_t hash_name(const char *name, size_t length) {
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < length; i++)
    hash = (hash ^ (unsigned char)name[i]) * 16777619u;
  return hash % (64 * ARRAY_SIZE(((struct keeping *)0)->names));
}

static void remember_components(struct keeping *keeping, const char *path) {
  for (const char *from = path + 1; *from;) {
    size_t length = strcspn(from, "/"), bit = hash_name(from, length);
    keeping->names[bit / 64] |= UINT64_C(1) << bit % 64;
    from += length + (from[length] == '/');
  }
}

void watch_know_names(struct keeping *keeping) {
  for (size_t i = 0; i < keeping->list.name_count; i++)
    remember_components(keeping, keeping->list.names[i].path);
}

static bool may_count(const struct keeping *keeping, const char *name) {
  size_t bit = hash_name(name, strlen(name));
  return keeping->names[bit / 64] >> bit % 64 & 1;
}

/* ---- watches ---- */

void watch_open(struct keeping *keeping) {
  keeping->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  if (keeping->changes < 0) {
    keeping->polls = true;
    keeping_tell(keeping, KEEPER_POLLS, errno, "");
  }
  watch_know_names(keeping);
}

/* Sorted by descriptor; the kernel counts upwards, so that new ones nearly always go to the end. */
static size_t watch_index(const struct keeping *keeping, int descriptor) {
  size_t low = 0, high = keeping->watch_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (keeping->watches[middle].descriptor < descriptor)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static struct watch *watch_find(struct keeping *keeping, int descriptor) {
  size_t at = watch_index(keeping, descriptor);
  return at < keeping->watch_count && keeping->watches[at].descriptor == descriptor
             ? &keeping->watches[at]
             : NULL;
}

static void watch_remember(struct keeping *keeping, int descriptor, const char *folder) {
  struct watch *watch = watch_find(keeping, descriptor);
  if (!watch) {
    size_t at = watch_index(keeping, descriptor);
    ARRAY_GROW(keeping->watches, keeping->watch_count);
    memmove(keeping->watches + at + 1, keeping->watches + at,
            (keeping->watch_count - at) * sizeof *keeping->watches);
    keeping->watch_count++;
    watch = &keeping->watches[at];
    *watch = (struct watch){.descriptor = descriptor};
  }
  if (!strv_contains(&watch->paths, folder))
    strv_add(&watch->paths, folder);
}

/* 0, or a negative errno. */
static int add(struct keeping *keeping, const char *folder, uint32_t events) {
  if (keeping->changes < 0)
    return -ENOSPC;
  int descriptor = inotify_add_watch(keeping->changes, folder, events | IN_ONLYDIR | IN_MASK_ADD);
  if (descriptor < 0)
    return -errno;
  watch_remember(keeping, descriptor, folder);
  return 0;
}

static bool is_missing(int result) {
  return result == -ENOENT || result == -ENOTDIR;
}

/* What was watched in this round, or was found missing below a folder that is watched for names by
 * now, is not asked for again: kept names share most of the folders above them. Not longer than a
 * round, so that the next one sees what the host mounts over a folder. */
void watch_begin_round(struct keeping *keeping) {
  for (size_t i = 0; i < ARRAY_SIZE(keeping->known); i++) {
    free(keeping->known[i].folder);
    keeping->known[i] = (struct known_folder){0};
  }
}

void watch_begin_batch(struct keeping *keeping) {
  keeping->batch++;
}

static struct known_folder *known_slot(struct keeping *keeping, const char *folder) {
  return &keeping->known[hash_name(folder, strlen(folder)) % ARRAY_SIZE(keeping->known)];
}

static void know(struct keeping *keeping, const char *folder, uint32_t events) {
  struct known_folder *slot = known_slot(keeping, folder);
  bool same = slot->folder && strcmp(slot->folder, folder) == 0;
  if (same && (slot->events & events) == events)
    return;
  if (!same) {
    free(slot->folder);
    *slot = (struct known_folder){.folder = xstrdup(folder)};
  }
  slot->events |= events;
  slot->batch = keeping->batch;
}

static int add_once(struct keeping *keeping, const char *folder, uint32_t events) {
  const struct known_folder *slot = known_slot(keeping, folder);
  bool known = slot->folder && strcmp(slot->folder, folder) == 0 &&
               (slot->events == 0 || (slot->events & events) == events);
  keeping->newly |= !known || slot->batch == keeping->batch;
  if (known)
    return slot->events == 0 ? -ENOENT : 0;
  int result = add(keeping, folder, events);
  if (result == 0)
    know(keeping, folder, events);
  return result;
}

/* Said once. Where the folder may not be listed, names in it are looked at from time to time. */
static void poll_instead(struct keeping *keeping, struct kept_name *name, int result) {
  name->watched = false;
  if (!keeping->polls && result != -EACCES)
    keeping_tell(keeping, KEEPER_POLLS, -result, name->path);
  keeping->polls = true;
}

/* Every folder above it is watched for being moved away, and the last that exists for what appears
 * in it. */
static void watch_way_to(struct keeping *keeping, struct kept_name *name) {
  char folder[PATH_MAX];
  const char *last = strrchr(name->path, '/');
  int above = add_once(keeping, "/", last == name->path ? OF_NAMES : OF_ITSELF);
  for (const char *end = name->path; end < last && !is_missing(above);) {
    end = strchr(end + 1, '/');
    if ((size_t)(end - name->path) >= sizeof folder)
      return;
    memcpy(folder, name->path, (size_t)(end - name->path));
    folder[end - name->path] = '\0';
    int result = add_once(keeping, folder, OF_ITSELF | (end == last ? OF_NAMES : 0));
    if (is_missing(result)) {
      _cleanup_free_ char *parent = path_parent(folder);
      above = add_once(keeping, parent, OF_ITSELF | OF_NAMES);
      result = add_once(keeping, folder, OF_ITSELF | (end == last ? OF_NAMES : 0));
      if (is_missing(result)) {
        know(keeping, folder, 0);
        return; /* the parent tells when it appears */
      }
    }
    if (result < 0)
      poll_instead(keeping, name, result);
  }
}

bool watch_name(struct keeping *keeping, struct kept_name *name) {
  name->watched = true;
  keeping->newly = false;
  if (powers_go(&keeping->powers, IN_OWN) < 0)
    return true; /* renewing needs it, too, and reports it */
  watch_way_to(keeping, name);
  return keeping->newly;
}

bool watch_folder(struct keeping *keeping, const char *folder) {
  bool full = keeping->folder_count >= KEPT_FOLDER_LIMIT;
  /* Without any watches it is walked again and again. */
  int result = full ? -ENOSPC : keeping->changes < 0 ? 0 : add(keeping, folder, OF_NAMES);
  if (result == 0)
    keeping->folder_count++;
  if (result == -ENOSPC && !keeping->bounded) {
    keeping->bounded = true;
    keeping_tell(keeping, KEEPER_BOUNDED, full ? 0 : ENOSPC, folder);
  }
  return result == 0;
}

void watch_root(struct keeping *keeping) {
  keeping->root_changed = true;
  if (root_is_followed(keeping) && powers_go(&keeping->powers, IN_OWN) == 0)
    (void)add(keeping, "/", OF_NAMES); /* then new names in it are not seen, which harms nobody */
}

/* ---- events ---- */

static void mark_below(struct keeping *keeping, const char *path) {
  for (size_t i = 0; i < keeping->list.name_count; i++) {
    if (path_is_under(keeping->list.names[i].path, path))
      keeping->list.names[i].dirty = true;
  }
}

/* The folder is not where it was: what is at its paths now must be found anew. */
static void forget(struct keeping *keeping, int descriptor, bool by_kernel) {
  struct watch *watch = watch_find(keeping, descriptor);
  if (!watch)
    return;
  struct strv paths = watch->paths;
  size_t at = (size_t)(watch - keeping->watches);
  memmove(watch, watch + 1, (keeping->watch_count - at - 1) * sizeof *watch);
  keeping->watch_count--;
  if (!by_kernel)
    inotify_rm_watch(keeping->changes, descriptor);
  STRV_FOREACH (path, &paths)
    mark_below(keeping, *path);
  strv_clear(&paths);
}

static void on_name(struct keeping *keeping, const struct watch *watch, const char *name,
                    bool appeared) {
  bool counts = may_count(keeping, name);
  STRV_FOREACH (folder, &watch->paths) {
    char path[PATH_MAX];
    size_t length = strlen(*folder), rest = strlen(name);
    if (length == 1 && root_is_followed(keeping))
      root_tell(keeping, name);
    if (length + rest + 2 > sizeof path)
      continue; /* longer than anybody can open it */
    length -= (*folder)[length - 1] == '/';
    memcpy(path, *folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, rest + 1);
    if (counts)
      mark_below(keeping, path);
    if (!appeared || !kept_may_hide(&keeping->list, path))
      continue;
    if (keeping->appeared.count >= APPEARED_LIMIT)
      keeping->lost = true;
    else if (!strv_contains(&keeping->appeared, path))
      strv_add(&keeping->appeared, path);
  }
}

static void on_event(void *context, const struct inotify_event *event, const char *name) {
  struct keeping *keeping = context;
  if (event->mask & IN_Q_OVERFLOW) {
    keeping->lost = true;
    return;
  }
  if (event->mask & (OF_ITSELF | IN_IGNORED | IN_UNMOUNT)) {
    forget(keeping, event->wd, event->mask & (IN_IGNORED | IN_UNMOUNT));
    return;
  }
  const struct watch *watch = watch_find(keeping, event->wd);
  if (watch && event->len > 0)
    on_name(keeping, watch, name, event->mask & (IN_CREATE | IN_MOVED_TO));
}

void watch_read(struct keeping *keeping) {
  static _Alignas(struct inotify_event) char buffer[64 << 10];
  inotify_read(keeping->changes, buffer, sizeof buffer, on_event, keeping);
}
