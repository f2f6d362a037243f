/* Second names of hidden files; see second-names.h. Masks cover the names that are known; a file
 * that is hidden under one name must not be read by another. Nearly always no hidden file has a
 * second name, and nothing is walked. */
#include "plan/second-names.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/inodes.h"
#include "plan/walk.h"

struct search {
  const struct second_names *request;
  struct inode_set linked;
  const char *folder;
  struct strv *names;
  size_t seen;
  dev_t *devices;
  size_t device_count;
};

static bool has_device(const struct search *search, dev_t device) {
  for (size_t i = 0; i < search->device_count; i++) {
    if (search->devices[i] == device)
      return true;
  }
  return false;
}

static bool is_over(const struct search *search) {
  return search->request->limit > 0 && search->seen > search->request->limit;
}

static bool visit(void *context, const struct walk_entry *entry) {
  struct search *search = context;
  search->seen++;
  if (is_over(search))
    return false;
  if (entry->type != DT_DIR && inode_set_contains(&search->linked, entry->inode))
    strv_take(search->names, path_join(search->folder, entry->path));
  return true;
}

/* Which of them have one is found out each time: the host makes links while a session runs. Of the
 * file system that holds the folder: a link cannot lead to another. */
static void search_in(struct search *search, const char *folder, dev_t device) {
  search->folder = folder;
  search->linked = (struct inode_set){.device = device};
  STRV_FOREACH (path, search->request->hidden)
    inode_set_add_linked(&search->linked, *path);
  if (search->linked.count > 0)
    walk_folder(folder, search->request->max_depth, visit, search);
  inode_set_clear(&search->linked);
}

/* The devices that hidden objects are on, each once. */
static void find_devices(struct search *search) {
  struct stat status;
  STRV_FOREACH (path, search->request->hidden) {
    if (lstat(*path, &status) < 0 || has_device(search, status.st_dev))
      continue;
    ARRAY_GROW(search->devices, search->device_count);
    search->devices[search->device_count++] = status.st_dev;
  }
}

/* What is mounted in the folder is seen with it. There may be hundreds, of containers; another way
 * into the folder's own file system was gone already. */
static void search_mounts(struct search *search, const struct mount_table *table,
                          const char *folder, dev_t device) {
  struct stat status;
  for (size_t i = 0; i < table->count; i++) {
    const char *point = table->entries[i].point, *below = path_below(point, folder);
    if (!below || !below[0] || lstat(point, &status) < 0 || status.st_dev == device)
      continue;
    if (search->device_count == 0)
      find_devices(search);
    if (has_device(search, status.st_dev))
      search_in(search, point, status.st_dev);
  }
  free(search->devices);
}

bool second_names_find(const struct second_names *request, const char *folder,
                       struct strv *ret_names) {
  struct search search = {.request = request, .names = ret_names};
  struct stat status;
  if (request->hidden->count == 0 || lstat(folder, &status) < 0 || !S_ISDIR(status.st_mode))
    return true;
  search_in(&search, folder, status.st_dev);
  if (request->max_depth > 0)
    return !is_over(&search);
  _cleanup_mounts_ struct mount_table now = {0};
  if (!request->mounts && mount_table_load(&now) < 0)
    return false;
  search_mounts(&search, request->mounts ? request->mounts : &now, folder, status.st_dev);
  return !is_over(&search);
}
