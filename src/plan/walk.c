/* One walk for any number of globs; see walk.h. */
#include "plan/walk.h"

#include <dirent.h>
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

struct walk {
  walk_visit *visit;
  void *context;
  size_t max_depth;
  bool may_descend;   /* below the folder being read */
  struct text path;   /* of the entry being looked at, relative */
  struct text queued; /* names of folders still to enter, per level, NUL-separated */
  struct strv closed; /* folders of ours that cannot be looked into, relative */
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

static void walk_level(struct walk *walk, int fd, size_t depth) {
  size_t first = walk->queued.length, prefix = walk->path.length;
  walk->may_descend = walk->max_depth == 0 || depth < walk->max_depth;
  (void)folder_read(fd, visit_entry, walk);
  size_t last = walk->queued.length;
  for (size_t at = first; at < last; at += strlen(walk->queued.data + at) + 1) {
    const char *name = walk->queued.data + at;
    _cleanup_close_ int child = folder_open(fd, name);
    if (!is_open(child)) {
      if (is_own(fd, name))
        strv_addf(&walk->closed, "%.*s%s", (int)prefix, prefix ? walk->path.data : "", name);
      continue;
    }
    text_append(&walk->path, name);
    text_append_char(&walk->path, '/');
    walk_level(walk, child, depth + 1);
    walk->path.length = prefix;
  }
  walk->queued.length = first;
}

void walk_folder_wholly(const char *folder, size_t max_depth, walk_visit *visit, void *context,
                        struct strv *ret_closed) {
  struct walk walk = {.visit = visit, .context = context, .max_depth = max_depth};
  _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (is_open(fd))
    walk_level(&walk, fd, 1);
  else if (is_own(AT_FDCWD, folder))
    strv_add(&walk.closed, "");
  STRV_FOREACH (closed, &walk.closed)
    strv_take(ret_closed, path_join(folder, *closed));
  strv_clear(&walk.closed);
  text_clear(&walk.path);
  text_clear(&walk.queued);
}

void walk_folder(const char *folder, size_t max_depth, walk_visit *visit, void *context) {
  _cleanup_strv_ struct strv closed = {0};
  walk_folder_wholly(folder, max_depth, visit, context, &closed);
}

void walk_part(const char *folder, const char *part, walk_visit *visit, void *context) {
  struct walk walk = {.visit = visit, .context = context};
  _cleanup_free_ char *path = path_join(folder, part);
  _cleanup_close_ int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  text_append(&walk.path, part);
  text_append_char(&walk.path, '/');
  if (fd >= 0)
    walk_level(&walk, fd, 1);
  strv_clear(&walk.closed);
  text_clear(&walk.path);
  text_clear(&walk.queued);
}

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
