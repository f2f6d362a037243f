/* Reading an upper layer; see layer.h.
 *
 * What the kernel leaves there with `userxattr`, for root and for everybody else: a character
 * device 0:0 for a deleted name, the attribute user.overlay.opaque on a folder that hides the one
 * below it, user.overlay.origin on whatever was copied up. Redirects and metacopy are off, so a
 * renamed folder is a whiteout and a full copy. */
#include "overlay/layer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/folder.h"
#include "core/path.h"
#include "core/strv.h"
#include "core/text.h"

/* Two descriptors per level must fit into the usual limit of 1024. */
enum { LAYER_DEPTH = 400, PERMISSIONS = 0777 };

struct reading {
  struct layer *layer;
  struct timespec started;
  struct text path; /* of the folder being read, with a slash at its end */
  bool moved;       /* that folder, or one above it, may be another one by now */
};

/* ---- safe opening ---- */

static int open_below(int root, const char *path, uint64_t flags) {
  struct open_how how = {.flags = flags | O_CLOEXEC,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS |
                                    RESOLVE_NO_XDEV};
  int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

int layer_open_parent(int root, const char *path, const char **ret_name) {
  const char *slash = strrchr(path, '/');
  *ret_name = slash ? slash + 1 : path;
  _cleanup_free_ char *parent = slash ? xstrndup(path, (size_t)(slash - path)) : xstrdup(".");
  return open_below(root, parent, O_PATH | O_DIRECTORY);
}

int layer_open_file(int root, const char *path) {
  const char *name;
  _cleanup_close_ int parent = layer_open_parent(root, path, &name);
  if (parent < 0)
    return parent;
  _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) < 0)
    return -errno;
  return S_ISREG(status.st_mode) ? steal_fd(&fd) : -EINVAL;
}

static char *read_link_at(int folder, const char *name) {
  char target[PATH_MAX];
  ssize_t length = readlinkat(folder, name, target, sizeof target);
  return length < 0 || length == sizeof target ? NULL : xstrndup(target, (size_t)length);
}

char *layer_read_link(int root, const char *path) {
  const char *name;
  _cleanup_close_ int parent = layer_open_parent(root, path, &name);
  return parent < 0 ? NULL : read_link_at(parent, name);
}

/* ---- what the kernel left ---- */

static bool has_attribute(int folder, const char *name, const char *attribute, char *ret_value) {
  char link[64 + NAME_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d/%s", folder, name);
  return lgetxattr(link, attribute, ret_value, 1) >= 0 || errno == ERANGE;
}

static bool is_whiteout(int folder, const char *name, const struct stat *status) {
  char value;
  if (S_ISCHR(status->st_mode))
    return status->st_rdev == makedev(0, 0);
  return S_ISREG(status->st_mode) && status->st_size == 0 &&
         has_attribute(folder, name, "user.overlay.whiteout", &value);
}

static bool is_opaque(int folder, const char *name) {
  char value = 0;
  return has_attribute(folder, name, "user.overlay.opaque", &value) && value == 'y';
}

static bool was_copied_up(int folder, const char *name) {
  char value;
  return has_attribute(folder, name, "user.overlay.origin", &value);
}

/* ---- one change ---- */

/* Moving a folder leaves no stamp on what is in it. On the folder itself it changes one stamp;
 * names that come and go in it change both. Changing its mode looks the same: rather a conflict too
 * many. */
static bool was_moved(const struct reading *reading, int folder) {
  struct stat status;
  return fstat(folder, &status) == 0 && stamp_is_since(status.st_ctim, reading->started) &&
         !stamp_is_since(status.st_mtim, status.st_ctim);
}

/* Why applying a change to this file would lose what somebody else did; or NULL. */
static const char *conflict_of(const struct reading *reading, const struct stat *old) {
  /* A folder's stamp says only that something in it changed; that is judged where it changed. */
  if (!old || S_ISDIR(old->st_mode))
    return NULL;
  if (stamp_is_since(old->st_ctim, reading->started))
    return "changed in the original since the session began";
  return reading->moved ? "its folder was moved or changed in the original since the session began"
                        : NULL;
}

static struct layer_change *add(struct reading *reading, enum change_kind kind, const char *name,
                                const struct stat *old, const struct stat *new, const char *link) {
  struct layer *layer = reading->layer;
  size_t length = reading->path.length;
  text_append(&reading->path, name);
  struct layer_change change = {.kind = kind,
                                .path = arena_strdup(&layer->strings, reading->path.data),
                                .old_mode = old ? old->st_mode : 0,
                                .mode = new ? new->st_mode : 0,
                                .size = new   ? new->st_size
                                        : old ? old->st_size
                                              : 0,
                                .contents = true};
  reading->path.length = length;
  if (old) {
    change.old_inode = old->st_ino;
    change.old_stamp = old->st_ctim;
  }
  struct judgement judgement =
      change_judge(&(struct judged){.kind = kind,
                                    .path = change.path,
                                    .mode = new ? change.mode : change.old_mode,
                                    .link = link,
                                    .place = layer->place->path,
                                    .places = &layer->place->path,
                                    .place_count = 1,
                                    .at_home = layer->at_home});
  change.flags = judgement.flags;
  change.reason = judgement.reason;
  change.conflict = conflict_of(reading, old);
  ARRAY_GROW(layer->changes, layer->count);
  layer->changes[layer->count++] = change;
  return &layer->changes[layer->count - 1];
}

/* ---- comparing ---- */

/* 1 if the files have the same contents, 0 if not, negative if that cannot be told. */
static int same_contents(int upper, int lower, const char *name) {
  _cleanup_close_ int first = openat(upper, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  _cleanup_close_ int second = openat(lower, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (first < 0 || second < 0)
    return -EACCES;
  static _Thread_local char buffers[2][64 * 1024];
  for (;;) {
    ssize_t got = read(first, buffers[0], sizeof buffers[0]);
    ssize_t other = read(second, buffers[1], sizeof buffers[1]);
    if (got < 0 || other < 0)
      return -EIO;
    if (got != other || memcmp(buffers[0], buffers[1], (size_t)got) != 0)
      return 0;
    if (got == 0)
      return 1;
  }
}

static bool same_links(int upper, int lower, const char *name) {
  _cleanup_free_ char *first = read_link_at(upper, name), *second = read_link_at(lower, name);
  return first && second && strcmp(first, second) == 0;
}

static int same_objects(int upper, int lower, const char *name, const struct stat *new,
                        const struct stat *old) {
  if ((new->st_mode &S_IFMT) != (old->st_mode & S_IFMT))
    return 0;
  if (S_ISLNK(new->st_mode))
    return same_links(upper, lower, name);
  if (!S_ISREG(new->st_mode))
    return 1;
  return new->st_size == old->st_size ? same_contents(upper, lower, name) : 0;
}

/* ---- walking ---- */

static void read_level(struct reading *reading, int upper, int lower, bool opaque, size_t depth);
static void add_deleted(struct reading *reading, int lower, const char *name, bool makes_room,
                        size_t depth);

static bool list_name(void *context, const struct folder_entry *entry) {
  strv_add(context, entry->name);
  return true;
}

static int by_text(const void *first, const void *second) {
  return strcmp(*(char *const *)first, *(char *const *)second);
}

static int list_sorted(int fd, struct strv *ret_names) {
  int result = folder_read(fd, list_name, ret_names);
  if (ret_names->count)
    qsort(ret_names->items, ret_names->count, sizeof *ret_names->items, by_text);
  return result;
}

/* What was true of the folder around it. */
struct around {
  size_t length;
  bool moved;
};

/* `lower` is the folder in the original, if there is one. */
static struct around folder_enter(struct reading *reading, const char *name, int lower) {
  struct around around = {reading->path.length, reading->moved};
  text_append(&reading->path, name);
  text_append_char(&reading->path, '/');
  reading->moved |= lower >= 0 && was_moved(reading, lower);
  return around;
}

static void folder_leave(struct reading *reading, struct around around) {
  reading->path.length = around.length;
  reading->moved = around.moved;
}

static void add_deleted_below(struct reading *reading, int fd, bool makes_room, size_t depth) {
  _cleanup_strv_ struct strv names = {0};
  (void)list_sorted(fd, &names);
  STRV_FOREACH (name, &names)
    add_deleted(reading, fd, *name, makes_room, depth);
}

static void add_deleted(struct reading *reading, int lower, const char *name, bool makes_room,
                        size_t depth) {
  struct stat old;
  if (fstatat(lower, name, &old, AT_SYMLINK_NOFOLLOW) < 0)
    return;
  size_t index = reading->layer->count;
  add(reading, CHANGE_DELETED, name, &old, NULL, NULL)->makes_room = makes_room;
  if (!S_ISDIR(old.st_mode))
    return;
  _cleanup_close_ int fd = depth < LAYER_DEPTH ? folder_open(lower, name) : -EMFILE;
  if (fd < 0) {
    reading->layer->changes[index].problem = "the original folder cannot be read";
    return;
  }
  struct around around = folder_enter(reading, name, fd);
  add_deleted_below(reading, fd, makes_room, depth + 1);
  folder_leave(reading, around);
}

static void read_folder(struct reading *reading, int upper, int lower, const char *name,
                        const struct stat *new, const struct stat *old, size_t depth) {
  bool merged = old && S_ISDIR(old->st_mode);
  struct layer_change *change = NULL;
  size_t index = reading->layer->count;
  if (old && !merged)
    add_deleted(reading, lower, name, true, depth);
  if (!merged) {
    index = reading->layer->count;
    change = add(reading, CHANGE_CREATED, name, NULL, new, NULL);
  } else if ((new->st_mode &PERMISSIONS) != (old->st_mode & PERMISSIONS)) {
    change = add(reading, CHANGE_MODIFIED, name, old, new, NULL);
    change->contents = false;
  }
  _cleanup_close_ int inner = depth < LAYER_DEPTH ? folder_open(upper, name) : -EMFILE;
  _cleanup_close_ int below = merged && inner >= 0 ? folder_open(lower, name) : -1;
  if (inner < 0 || (merged && below < 0)) {
    if (!change)
      add(reading, CHANGE_MODIFIED, name, old, new, NULL);
    reading->layer->changes[index].problem =
        inner == -EMFILE ? "nested too deeply" : "the folder cannot be read";
    return;
  }
  struct around around = folder_enter(reading, name, below);
  read_level(reading, inner, below, merged && is_opaque(upper, name), depth + 1);
  folder_leave(reading, around);
}

/* A mode that keeps its owner out keeps us out, too, unless we are root. */
static const char *problem_of(int upper, const char *name, const struct stat *new) {
  bool is_closed = S_ISREG(new->st_mode) && faccessat(upper, name, R_OK, AT_EACCESS) < 0;
  return is_closed ? "the file cannot be read" : NULL;
}

static const char deleted_meanwhile[] = "deleted in the original since the session began";

static void read_object(struct reading *reading, int upper, int lower, const char *name,
                        const struct stat *new, const struct stat *old, size_t depth) {
  _cleanup_free_ char *link = S_ISLNK(new->st_mode) ? read_link_at(upper, name) : NULL;
  if (old && S_ISDIR(old->st_mode)) {
    add_deleted(reading, lower, name, true, depth);
    add(reading, CHANGE_CREATED, name, NULL, new, link)->problem = problem_of(upper, name, new);
    return;
  }
  if (!old) {
    struct layer_change *change = add(reading, CHANGE_CREATED, name, NULL, new, link);
    change->problem = problem_of(upper, name, new);
    if (was_copied_up(upper, name))
      change->conflict = deleted_meanwhile;
    return;
  }
  int same = same_objects(upper, lower, name, new, old);
  bool same_mode =
      S_ISLNK(new->st_mode) || (new->st_mode &PERMISSIONS) == (old->st_mode & PERMISSIONS);
  if (same == 1 && same_mode)
    return; /* touched, or applied already */
  struct layer_change *change = add(reading, CHANGE_MODIFIED, name, old, new, link);
  change->contents = same != 1;
  change->problem = same < 0 ? "the file cannot be read" : problem_of(upper, name, new);
}

static void read_entry(struct reading *reading, int upper, int lower, const char *name,
                       size_t depth) {
  struct stat new, old;
  if (fstatat(upper, name, &new, AT_SYMLINK_NOFOLLOW) < 0)
    return;
  bool has_old = lower >= 0 && fstatat(lower, name, &old, AT_SYMLINK_NOFOLLOW) == 0;
  if (is_whiteout(upper, name, &new)) {
    if (has_old)
      add_deleted(reading, lower, name, false, depth);
  } else if (S_ISDIR(new.st_mode)) {
    read_folder(reading, upper, lower, name, &new, has_old ? &old : NULL, depth);
  } else {
    read_object(reading, upper, lower, name, &new, has_old ? &old : NULL, depth);
  }
}

/* What an opaque folder does not have again is gone. */
static void read_hidden(struct reading *reading, int lower, const struct strv *names,
                        size_t depth) {
  _cleanup_strv_ struct strv below = {0};
  (void)list_sorted(lower, &below);
  STRV_FOREACH (name, &below) {
    if (!names->count || !bsearch(name, names->items, names->count, sizeof *names->items, by_text))
      add_deleted(reading, lower, *name, false, depth);
  }
}

static void read_level(struct reading *reading, int upper, int lower, bool opaque, size_t depth) {
  _cleanup_strv_ struct strv names = {0};
  (void)list_sorted(upper, &names);
  STRV_FOREACH (name, &names)
    read_entry(reading, upper, lower, *name, depth);
  if (opaque)
    read_hidden(reading, lower, &names, depth);
}

static int weight(unsigned char byte) {
  return byte == '/' ? 1 : byte ? byte + 1 : 0;
}

/* By component: a folder is followed by all that is in it ("a", "a/b", "a-b"). What takes a place
 * stands before what makes room for it. */
static int by_path(const void *first, const void *second) {
  const struct layer_change *one = first, *other = second;
  const unsigned char *x = (const void *)one->path, *y = (const void *)other->path;
  while (*x && *x == *y)
    x++, y++;
  int order = weight(*x) - weight(*y);
  return order ? order : one->makes_room - other->makes_room;
}

static int open_place(const char *path, const char *what, struct sb_error *error) {
  int fd = folder_open(AT_FDCWD, path);
  if (fd >= 0)
    return fd;
  _cleanup_free_ char *shown = escape_string(path);
  return sb_fail(error, SB_CODE_CONFLICT, -fd, "opening %s '%s'", what, shown);
}

/* ---- renamed files ---- */

/* What a copy has in common with its original. Which object that was the kernel tells only to who
 * may open any by its handle. */
struct likeness {
  struct timespec written;
  off_t size;
  mode_t mode;
};

static bool look_at(int root, const char *path, struct likeness *ret_likeness) {
  const char *name;
  struct stat status;
  _cleanup_close_ int parent = layer_open_parent(root, path, &name);
  if (parent < 0 || fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return false;
  memset(ret_likeness, 0, sizeof *ret_likeness); /* compared byte by byte */
  ret_likeness->written = status.st_mtim;
  ret_likeness->size = status.st_size;
  ret_likeness->mode = status.st_mode;
  return true;
}

static int by_likeness(const void *left, const void *right) {
  return memcmp(left, right, sizeof(struct likeness));
}

/* Of everything in the original that the session deleted. Sorted, new. */
static struct likeness *collect_deleted(const struct layer *layer, size_t *ret_count) {
  struct likeness *deleted = xcalloc(layer->count, sizeof *deleted);
  size_t count = 0;
  for (size_t i = 0; i < layer->count; i++) {
    const struct layer_change *change = &layer->changes[i];
    count += change->kind == CHANGE_DELETED && look_at(layer->lower, change->path, &deleted[count]);
  }
  qsort(deleted, count, sizeof *deleted, by_likeness);
  *ret_count = count;
  return deleted;
}

/* Nobody deleted the original of a file that the session has only given another name: it is there
 * still, under the name that the session deleted. */
static void forgive_renamed(struct layer *layer) {
  _cleanup_free_ struct likeness *deleted = NULL;
  size_t count = 0;
  for (size_t i = 0; i < layer->count; i++) {
    struct layer_change *change = &layer->changes[i];
    struct likeness copy;
    if (change->conflict != deleted_meanwhile || !look_at(layer->upper, change->path, &copy))
      continue;
    if (!deleted)
      deleted = collect_deleted(layer, &count);
    if (bsearch(&copy, deleted, count, sizeof copy, by_likeness))
      change->conflict = NULL;
  }
}

int layer_read(const struct overlay *overlay, size_t index, const char *home,
               struct layer *ret_layer, struct sb_error *error) {
  _cleanup_layer_ struct layer layer = {.place = &overlay->layers[index], .upper = -1, .lower = -1};
  _cleanup_free_ char *upper = path_join(layer.place->folder, "upper");
  if ((layer.upper = open_place(upper, "the overlay", error)) < 0)
    return -1;
  if ((layer.lower = open_place(layer.place->path, "the original", error)) < 0)
    return sb_hint(error, "the overlay belongs to this folder; make it available again");
  layer.at_home = home && strcmp(home, layer.place->path) == 0;
  struct reading reading = {.layer = &layer, .started = overlay->started};
  reading.moved = was_moved(&reading, layer.lower);
  read_level(&reading, layer.upper, layer.lower, false, 1);
  text_clear(&reading.path);
  if (layer.count)
    qsort(layer.changes, layer.count, sizeof *layer.changes, by_path);
  forgive_renamed(&layer);
  *ret_layer = layer;
  layer = (struct layer){.upper = -1, .lower = -1};
  return 0;
}

void layer_clear(struct layer *layer) {
  if (layer->upper >= 0)
    close(layer->upper);
  if (layer->lower >= 0)
    close(layer->lower);
  free(layer->changes);
  arena_clear(&layer->strings);
  *layer = (struct layer){.upper = -1, .lower = -1};
}

void layer_report(const struct layer *layer, struct changes *changes,
                  const struct changes_limits *limits) {
  char *place = arena_strdup(&changes->strings, layer->place->path);
  for (size_t i = 0; i < layer->count; i++) {
    const struct layer_change *change = &layer->changes[i];
    _cleanup_free_ char *link =
        S_ISLNK(change->mode) ? layer_read_link(layer->upper, change->path) : NULL;
    changes_add(changes,
                &(struct judged){.kind = change->kind,
                                 .path = change->path,
                                 .mode = change->mode ? change->mode : change->old_mode,
                                 .link = link,
                                 .place = place,
                                 .places = &place,
                                 .place_count = 1,
                                 .at_home = layer->at_home},
                change->contents, limits);
    changes->unreadable += change->problem != NULL;
  }
}
