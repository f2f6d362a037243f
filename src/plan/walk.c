/* One walk for any number of globs; see walk.h. */
#include "plan/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/folder.h"
#include "core/path.h"
#include "core/text.h"

/* So many folders above the one being read stay open. The rest of a deeper tree is closed on the
 * way down and opened from below on the way up: a command may have made it as deep as it likes. */
#define OPEN_LEVELS 64

struct level {
  int fd; /* -1: closed for now */
  dev_t device;
  ino_t inode;       /* to know it by when it is opened again */
  size_t prefix;     /* how much of the path is its own */
  size_t first;      /* of the queued names, those of folders in it: where they begin */
  size_t next, last; /* which of them comes next, and where they end */
};

struct walk {
  walk_visit *visit;
  void *context;
  size_t max_depth;
  bool may_descend;   /* below the folder being read */
  struct text path;   /* of the entry being looked at, relative */
  struct text queued; /* names of folders still to enter, per level, NUL-separated */
  struct level *levels;
  size_t level_count;
  const char *folder; /* where it began, for those that are closed; NULL: nobody asks for them */
  struct walk_closed closed;
};

/* Both are needed: to list it, and to reach what is in it. Root may everything. */
static bool is_open(int fd) {
  return fd >= 0 && (geteuid() == 0 || faccessat(fd, ".", X_OK, AT_EACCESS) == 0);
}

static bool is_own(int parent, const char *name) {
  struct stat status;
  return fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(status.st_mode) &&
         status.st_uid == geteuid();
}

static bool visit_entry(void *context, const struct folder_entry *entry) {
  struct walk *walk = context;
  size_t length = walk->path.length;
  text_append(&walk->path, entry->name);
  struct walk_entry shown = {.path = walk->path.data,
                             .name = walk->path.data + length,
                             .type = entry->type,
                             .inode = (ino_t)entry->inode};
  bool wanted = walk->visit(walk->context, &shown);
  /* Some file systems do not tell the type; opening with O_DIRECTORY will. */
  if (wanted && walk->may_descend && (entry->type == DT_DIR || entry->type == DT_UNKNOWN))
    text_append_bytes(&walk->queued, entry->name, strlen(entry->name) + 1);
  walk->path.length = length;
  return true;
}

static void note_closed(struct walk *walk, size_t prefix, const char *name, int errnum) {
  if (!walk->folder)
    return;
  _cleanup_free_ char *below =
      xasprintf("%.*s%s", (int)prefix, prefix ? walk->path.data : "", name);
  ARRAY_GROW(walk->closed.items, walk->closed.count);
  walk->closed.items[walk->closed.count++] =
      (struct closed_folder){.path = path_join(walk->folder, below), .errnum = errnum};
}

/* ---- levels ---- */

/* Takes the descriptor, and reads the folder. */
static void enter(struct walk *walk, int fd) {
  ARRAY_GROW(walk->levels, walk->level_count);
  struct level *level = &walk->levels[walk->level_count++];
  *level = (struct level){.fd = fd,
                          .prefix = walk->path.length,
                          .first = walk->queued.length,
                          .next = walk->queued.length};
  walk->may_descend = walk->max_depth == 0 || walk->level_count < walk->max_depth;
  (void)folder_read(fd, visit_entry, walk);
  level->last = walk->queued.length;
}

/* Leads to nothing but what it was, or it stays open. */
static void close_for_now(struct level *level) {
  struct stat status;
  if (fstat(level->fd, &status) < 0)
    return;
  level->device = status.st_dev;
  level->inode = status.st_ino;
  close(level->fd);
  level->fd = -1;
}

/* Somebody may have moved the one below meanwhile: then ".." is another folder. */
static void open_again(struct level *level, int below) {
  struct stat status;
  _cleanup_close_ int fd = folder_open(below, "..");
  if (fd >= 0 && fstat(fd, &status) == 0 && status.st_dev == level->device &&
      status.st_ino == level->inode)
    level->fd = steal_fd(&fd);
}

static void leave(struct walk *walk) {
  struct level *level = &walk->levels[--walk->level_count];
  struct level *above = walk->level_count > 0 ? level - 1 : NULL;
  if (above && above->fd < 0 && level->fd >= 0)
    open_again(above, level->fd);
  if (level->fd >= 0)
    close(level->fd);
  walk->queued.length = level->first;
  walk->path.length = above ? above->prefix : level->prefix;
}

static void descend(struct walk *walk, struct level *level) {
  const char *name = walk->queued.data + level->next;
  level->next += strlen(name) + 1;
  int child = level->fd < 0 ? -ESTALE : folder_open(level->fd, name);
  if (child < 0 || !is_open(child)) {
    if (level->fd < 0 || is_own(level->fd, name))
      note_closed(walk, level->prefix, name, child < 0 ? -child : EACCES);
    if (child >= 0)
      close(child);
    return;
  }
  text_append(&walk->path, name);
  text_append_char(&walk->path, '/');
  if (walk->level_count > OPEN_LEVELS)
    close_for_now(level);
  enter(walk, child);
}

/* ---- trees ---- */

/* Takes the descriptor. No recursion: a tree may be deeper than our stack. */
static void walk_from(struct walk *walk, int fd) {
  enter(walk, fd);
  while (walk->level_count > 0) {
    struct level *level = &walk->levels[walk->level_count - 1];
    if (level->next < level->last)
      descend(walk, level);
    else
      leave(walk);
  }
}

static void walk_clear(struct walk *walk) {
  text_clear(&walk->path);
  text_clear(&walk->queued);
  free(walk->levels);
}

void walk_folder_wholly(const char *folder, size_t max_depth, walk_visit *visit, void *context,
                        struct walk_closed *ret_closed) {
  struct walk walk = {.visit = visit, .context = context, .max_depth = max_depth, .folder = folder};
  _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  int errnum = fd < 0 ? errno : EACCES;
  if (is_open(fd))
    walk_from(&walk, steal_fd(&fd));
  else if (is_own(AT_FDCWD, folder))
    note_closed(&walk, 0, "", errnum);
  *ret_closed = walk.closed;
  walk_clear(&walk);
}

void walk_closed_clear(struct walk_closed *closed) {
  for (size_t i = 0; i < closed->count; i++)
    free(closed->items[i].path);
  free(closed->items);
}

void walk_folder(const char *folder, size_t max_depth, walk_visit *visit, void *context) {
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(folder, max_depth, visit, context, &closed);
}

void walk_part(const char *folder, const char *part, walk_visit *visit, void *context) {
  struct walk walk = {.visit = visit, .context = context};
  _cleanup_free_ char *path = path_join(folder, part);
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  text_append(&walk.path, part);
  text_append_char(&walk.path, '/');
  if (fd >= 0)
    walk_from(&walk, fd);
  walk_clear(&walk);
}

/* ---- which folders ---- */

/* Folders full of other people's files. The built-in secret globs stay out of them (a published
 * package holds no secret of this machine); a glob that somebody wrote looks everywhere. */
static const char *const bulk_folders[] = {"node_modules", ".git",      "target",      ".venv",
                                           "venv",         ".tox",      "__pycache__", ".gradle",
                                           ".mypy_cache",  ".terraform"};

bool walk_is_bulk(const char *name) {
  for (size_t i = 0; i < ARRAY_SIZE(bulk_folders); i++) {
    if (strcmp(name, bulk_folders[i]) == 0)
      return true;
  }
  return false;
}
