/* A set of inode numbers; see inodes.h. */
#include "plan/inodes.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/walk.h"

#define TREE_LIMIT 2048

static size_t slot_of(const struct inode_set *set, ino_t inode) {
  size_t slot = (size_t)(inode * 0x9e3779b97f4a7c15ULL >> 20) & (set->capacity - 1);
  while (set->slots[slot] != 0 && set->slots[slot] != inode)
    slot = (slot + 1) & (set->capacity - 1);
  return slot;
}

static void grow(struct inode_set *set) {
  struct inode_set larger = {.device = set->device,
                             .capacity = set->capacity ? set->capacity * 2 : 256};
  larger.slots = xcalloc(larger.capacity, sizeof *larger.slots);
  for (size_t i = 0; i < set->capacity; i++) {
    if (set->slots[i])
      larger.slots[slot_of(&larger, set->slots[i])] = set->slots[i];
  }
  larger.count = set->count;
  free(set->slots);
  *set = larger;
}

static void add(struct inode_set *set, ino_t inode) {
  if (set->count * 2 >= set->capacity)
    grow(set);
  size_t slot = slot_of(set, inode);
  set->count += set->slots[slot] == 0;
  set->slots[slot] = inode;
}

struct tree {
  struct inode_set *set;
  size_t seen;
};

static bool visit(void *context, const struct walk_entry *entry) {
  struct tree *tree = context;
  if (tree->seen++ >= TREE_LIMIT)
    return false;
  if (entry->type != DT_DIR)
    add(tree->set, entry->inode);
  return true;
}

bool inode_set_add_tree(struct inode_set *set, const char *path) {
  struct stat status;
  struct tree tree = {.set = set};
  if (lstat(path, &status) < 0)
    return true;
  if (status.st_dev != set->device)
    return false;
  if (S_ISDIR(status.st_mode))
    walk_folder(path, 2, visit, &tree);
  else
    add(set, status.st_ino);
  return true;
}

struct linked {
  struct tree tree;
  const char *folder;
};

static void add_linked(struct inode_set *set, const struct stat *status) {
  if (S_ISREG(status->st_mode) && status->st_nlink > 1 && status->st_dev == set->device)
    add(set, status->st_ino);
}

static bool visit_linked(void *context, const struct walk_entry *entry) {
  struct linked *linked = context;
  if (linked->tree.seen++ >= TREE_LIMIT)
    return false;
  _cleanup_free_ char *path = path_join(linked->folder, entry->path);
  struct stat status;
  if (entry->type != DT_DIR && lstat(path, &status) == 0)
    add_linked(linked->tree.set, &status);
  return true;
}

void inode_set_add_linked(struct inode_set *set, const char *path) {
  struct stat status;
  if (lstat(path, &status) < 0 || status.st_dev != set->device)
    return;
  add_linked(set, &status);
  struct linked linked = {.tree = {.set = set}, .folder = path};
  if (S_ISDIR(status.st_mode))
    walk_folder(path, 2, visit_linked, &linked);
}

bool inode_set_contains(const struct inode_set *set, ino_t inode) {
  return set->count > 0 && set->slots[slot_of(set, inode)] == inode;
}

bool inode_is_hidden(const struct strv *hidden, const struct stat *status) {
  if (!S_ISREG(status->st_mode) || status->st_nlink < 2)
    return false;
  struct inode_set set = {.device = status->st_dev};
  STRV_FOREACH (path, hidden)
    (void)inode_set_add_tree(&set, *path);
  bool contained = inode_set_contains(&set, status->st_ino);
  inode_set_clear(&set);
  return contained;
}

void inode_set_clear(struct inode_set *set) {
  free(set->slots);
  *set = (struct inode_set){0};
}
