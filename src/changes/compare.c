/* The comparison at the end; see changes.h. The workload chose the names, types and depths below:
 * nothing is followed, nothing is opened but folders, and time and memory are bounded. */
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "changes/snapshot.h"
#include "core/alloc.h"
#include "core/cleanup.h"

struct compared {
  struct changes *changes;
  const struct changes_limits *limits;
  const struct snapshot *snapshot;
  struct timespec start;
  struct walk_deadline deadline;
  struct text path;     /* of the folder being compared, relative, with a slash at the end */
  struct judged judged; /* what is the same for all entries of a place */
};

/* One folder's entries, old or new, in the order of their names. */
struct listing {
  struct listed {
    struct folder_entry entry;
    uint32_t folder;
  } * items;
  size_t count;
  struct arena names;
  bool known; /* false: the old folder was not read, so nothing can be said about what is missing */
};

static void listing_clear(struct listing *listing) {
  free(listing->items);
  arena_clear(&listing->names);
}
#define _cleanup_listing_ __attribute__((cleanup(listing_clear)))

static int by_name(const void *first, const void *second) {
  return strcmp(((const struct listed *)first)->entry.name,
                ((const struct listed *)second)->entry.name);
}

static bool list_new(void *context, const struct folder_entry *entry) {
  struct listing *listing = context;
  ARRAY_GROW(listing->items, listing->count);
  listing->items[listing->count++] = (struct listed){
      {arena_strdup(&listing->names, entry->name), entry->type, entry->inode}, NO_FOLDER};
  return true;
}

static void listing_sort(struct listing *listing) {
  if (listing->count)
    qsort(listing->items, listing->count, sizeof *listing->items, by_name);
}

static struct listing list_old(const struct snapshot *snapshot, uint32_t folder) {
  struct listing listing = {.known = folder != NO_FOLDER && snapshot->folders[folder].was_read};
  struct snapshot_cursor cursor = snapshot_open(snapshot, folder);
  struct listed item;
  while (snapshot_next(&cursor, &item.entry, &item.folder)) {
    ARRAY_GROW(listing.items, listing.count);
    listing.items[listing.count++] = item;
  }
  listing_sort(&listing);
  return listing;
}

/* ---- one entry ---- */

static mode_t mode_of_type(unsigned char type) {
  return (mode_t)DTTOIF(type);
}

static void add(struct compared *compared, enum change_kind kind, const char *name, mode_t mode,
                const char *link, bool contents) {
  size_t length = compared->path.length;
  text_append(&compared->path, name);
  struct judged judged = compared->judged;
  judged.kind = kind;
  judged.path = compared->path.data;
  judged.mode = mode;
  judged.link = link;
  changes_add(compared->changes, &judged, contents, compared->limits);
  compared->path.length = length;
  compared->path.data[length] = '\0';
}

static void add_present(struct compared *compared, enum change_kind kind, int fd, const char *name,
                        mode_t mode, bool contents) {
  char target[4096];
  ssize_t length = S_ISLNK(mode) ? readlinkat(fd, name, target, sizeof target - 1) : -1;
  if (length >= 0)
    target[length] = '\0';
  add(compared, kind, name, mode, length >= 0 ? target : NULL, contents);
}

static void add_deleted_below(struct compared *compared, const char *name, uint32_t folder);

static void add_deleted(struct compared *compared, const struct listed *old) {
  add(compared, CHANGE_DELETED, old->entry.name, mode_of_type(old->entry.type), NULL, true);
  if (old->folder != NO_FOLDER)
    add_deleted_below(compared, old->entry.name, old->folder);
}

static void add_deleted_below(struct compared *compared, const char *name, uint32_t folder) {
  size_t length = compared->path.length;
  text_append(&compared->path, name);
  text_append_char(&compared->path, '/');
  struct snapshot_cursor cursor = snapshot_open(compared->snapshot, folder);
  struct listed below;
  while (snapshot_next(&cursor, &below.entry, &below.folder))
    add_deleted(compared, &below);
  compared->path.length = length;
}

static struct timespec stamp(struct statx_timestamp time) {
  return (struct timespec){.tv_sec = time.tv_sec, .tv_nsec = (long)time.tv_nsec};
}

static void compare_folder(struct compared *compared, int fd, uint32_t folder, bool is_new,
                           size_t depth);

static void enter(struct compared *compared, int fd, const char *name, uint32_t folder, bool is_new,
                  size_t depth) {
  _cleanup_close_ int child = depth < SNAPSHOT_DEPTH ? folder_open(fd, name) : -1;
  if (child < 0) {
    compared->changes->unreadable++;
    return;
  }
  size_t length = compared->path.length;
  text_append(&compared->path, name);
  text_append_char(&compared->path, '/');
  compare_folder(compared, child, folder, is_new, depth + 1);
  compared->path.length = length;
}

/* A name that was there before: another object, or touched since the start? A folder's own stamp
 * only says that something in it changed, which its entries tell better. */
static void compare_entry(struct compared *compared, int fd, const struct listed *old,
                          const struct statx *now) {
  bool same_type = old->entry.type == DT_UNKNOWN ||
                   (mode_of_type(old->entry.type) & S_IFMT) == (now->stx_mode & S_IFMT);
  bool replaced = !same_type || old->entry.inode != now->stx_ino;
  if (S_ISDIR(now->stx_mode) && same_type)
    return;
  if (!same_type && old->folder != NO_FOLDER)
    add_deleted_below(compared, old->entry.name, old->folder);
  if (replaced || stamp_is_since(stamp(now->stx_ctime), compared->start) ||
      stamp_is_since(stamp(now->stx_mtime), compared->start))
    add_present(compared, CHANGE_MODIFIED, fd, old->entry.name, now->stx_mode,
                replaced || stamp_is_since(stamp(now->stx_mtime), compared->start));
}

/* A name in a folder about which the snapshot knows nothing. */
static void judge_unknown(struct compared *compared, int fd, const char *name,
                          const struct statx *now) {
  bool born =
      (now->stx_mask & STATX_BTIME) && stamp_is_since(stamp(now->stx_btime), compared->start);
  if (born || (!S_ISDIR(now->stx_mode) && stamp_is_since(stamp(now->stx_ctime), compared->start)))
    add_present(compared, born ? CHANGE_CREATED : CHANGE_MODIFIED, fd, name, now->stx_mode, true);
}

static void compare_new(struct compared *compared, int fd, const struct listed *new,
                        const struct listed *old, bool certainly_new, bool is_known, size_t depth) {
  const char *name = new->entry.name;
  struct statx now;
  /* An old folder that is still the same object needs no stat. */
  bool is_same_folder = old && old->folder != NO_FOLDER && new->entry.type == DT_DIR &&
                        old->entry.inode == new->entry.inode;
  if (is_same_folder) {
    enter(compared, fd, name, old->folder, false, depth);
    return;
  }
  if (statx(fd, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_BTIME,
            &now) < 0)
    return; /* gone while we looked */
  bool is_created = !old && (certainly_new || is_known);
  if (is_created)
    add_present(compared, CHANGE_CREATED, fd, name, now.stx_mode, true);
  else if (old)
    compare_entry(compared, fd, old, &now);
  else
    judge_unknown(compared, fd, name, &now);
  if (S_ISDIR(now.stx_mode))
    enter(compared, fd, name, old ? old->folder : NO_FOLDER,
          is_created || (old && old->folder == NO_FOLDER), depth);
}

static void compare_folder(struct compared *compared, int fd, uint32_t folder, bool is_new,
                           size_t depth) {
  _cleanup_listing_ struct listing old = list_old(compared->snapshot, folder), new = {0};
  if (folder_read(fd, list_new, &new) < 0)
    compared->changes->unreadable++;
  listing_sort(&new);
  for (size_t i = 0, k = 0; i < old.count || k < new.count;) {
    if (walk_deadline_passed(&compared->deadline)) {
      compared->changes->complete = false;
      return;
    }
    int order = i == old.count ? 1 : k == new.count ? -1 : by_name(&old.items[i], &new.items[k]);
    if (order < 0)
      add_deleted(compared, &old.items[i++]);
    else
      compare_new(compared, fd, &new.items[k++], order == 0 ? &old.items[i++] : NULL, is_new,
                  old.known, depth);
  }
}

struct changes *changes_report(const struct snapshot *snapshot, const char *home,
                               const struct changes_limits *limits) {
  struct compared compared = {.changes = changes_new(),
                              .limits = limits,
                              .snapshot = snapshot,
                              .start = change_clock_start(&snapshot->clock),
                              .deadline = walk_deadline_new(limits->milliseconds)};
  compared.changes->complete = snapshot->complete;
  text_append(&compared.path, "");
  for (size_t i = 0; i < snapshot->places.count; i++) {
    const char *place = snapshot->places.items[i];
    compared.judged = (struct judged){.place = arena_strdup(&compared.changes->strings, place),
                                      .places = snapshot->places.items,
                                      .place_count = snapshot->places.count,
                                      .at_home = home && strcmp(home, place) == 0};
    _cleanup_close_ int fd = folder_open(AT_FDCWD, place);
    if (fd >= 0)
      compare_folder(&compared, fd, (uint32_t)i, false, 1);
  }
  text_clear(&compared.path);
  changes_sort(compared.changes);
  compared.changes->milliseconds = deadline_elapsed(&compared.deadline);
  return compared.changes;
}
