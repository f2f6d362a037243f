/* Second names (hard links) of hidden files in a folder that is about to be granted as a whole.
 * Masks cover the names that are known; a file that is hidden under one name must not be read by
 * another. Nearly always no hidden file has a second name, and nothing is walked. */
#include <dirent.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/waiting.h"
#include "plan/inodes.h"
#include "plan/walk.h"

struct search {
  const struct inode_set *linked;
  const char *folder;
  struct strv *names;
  size_t seen;
};

static bool visit(void *context, const struct walk_entry *entry) {
  struct search *search = context;
  if (search->seen++ >= GRANT_ENTRY_LIMIT)
    return false;
  if (entry->type != DT_DIR && inode_set_contains(search->linked, entry->inode))
    strv_take(search->names, path_join(search->folder, entry->path));
  return true;
}

/* Which of them have one is found out for each grant: the host makes links while a session runs. Of
 * the file system that holds the folder: a link cannot lead to another. */
bool second_names_find(const struct strv *hidden, const char *folder, struct strv *ret_names) {
  struct stat status;
  if (lstat(folder, &status) < 0 || !S_ISDIR(status.st_mode))
    return true;
  struct inode_set linked = {.device = status.st_dev};
  STRV_FOREACH (path, hidden)
    inode_set_add_linked(&linked, *path);
  struct search search = {.linked = &linked, .folder = folder, .names = ret_names};
  if (linked.count > 0)
    walk_folder(folder, 0, visit, &search);
  inode_set_clear(&linked);
  return search.seen <= GRANT_ENTRY_LIMIT;
}
