/* Second names (hard links) of hidden files in a folder that is about to be granted as a whole. The
 * masks of a plan cover the names that it knows; a file that is hidden under one name must not be
 * read by another. Nearly always no hidden file has a second name, and nothing is walked. */
#include <dirent.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/waiting.h"
#include "plan/walk.h"

struct search {
  const struct inode_set *linked;
  const char *folder;
  struct strv *names;
  size_t seen;
};

/* Of the file system that holds the folder: a link cannot lead to another. */
void second_names_prepare(struct gate *gate, dev_t device) {
  if (gate->linked_known && gate->linked.device == device)
    return;
  inode_set_clear(&gate->linked);
  gate->linked = (struct inode_set){.device = device};
  STRV_FOREACH (hidden, &gate->config.plan->hidden)
    inode_set_add_linked(&gate->linked, *hidden);
  gate->linked_known = true;
}

static bool visit(void *context, const struct walk_entry *entry) {
  struct search *search = context;
  if (search->seen++ >= GRANT_ENTRY_LIMIT)
    return false;
  if (entry->type != DT_DIR && inode_set_contains(search->linked, entry->inode))
    strv_take(search->names, path_join(search->folder, entry->path));
  return true;
}

bool second_names_find(struct gate *gate, const char *folder, struct strv *ret_names) {
  struct stat status;
  if (lstat(folder, &status) < 0 || !S_ISDIR(status.st_mode))
    return true;
  second_names_prepare(gate, status.st_dev);
  struct search search = {.linked = &gate->linked, .folder = folder, .names = ret_names};
  if (gate->linked.count > 0)
    walk_folder(folder, 0, visit, &search);
  return search.seen <= GRANT_ENTRY_LIMIT;
}
