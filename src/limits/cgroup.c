/* Making and removing the session's folders in the cgroup hierarchies of both versions. Must never
 * change a group that is not ours, beyond letting the root's children have a controller. */
#include "limits/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/folder.h"

#define FOLDER_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)

/* Adds the group's folder in this one; takes the parent's descriptor if it succeeds. */
static int add_hierarchy(struct limit_group *group, int *parent, unsigned controllers) {
  if (group->hierarchy_count == HIERARCHIES_MAX)
    return -ENOSPC;
  if (mkdirat(*parent, group->name, 0755) < 0)
    return -errno;
  _cleanup_close_ int folder = openat(*parent, group->name, FOLDER_FLAGS);
  _cleanup_close_ int tasks = -1;
  if (folder >= 0 && !group->unified)
    tasks = openat(folder, "tasks", O_WRONLY | O_CLOEXEC);
  if (folder < 0 || (tasks < 0 && !group->unified)) {
    int saved = errno;
    unlinkat(*parent, group->name, AT_REMOVEDIR);
    return -saved;
  }
  flock(folder, LOCK_EX | LOCK_NB); /* says that we live; see recover.c */
  group->hierarchies[group->hierarchy_count++] = (struct limit_hierarchy){
      .parent = steal_fd(parent),
      .folder = steal_fd(&folder),
      .tasks = steal_fd(&tasks),
      .controllers = controllers,
  };
  return 0;
}

/* ---- version 1: a folder in each hierarchy, below our own so that outer limits keep holding ----
 */

/* Hierarchies are mounted by the list of their controllers, with a link for each of them. */
static char *v1_folder(const struct cgroup_place *place, const struct cgroup_membership *line) {
  size_t first = strcspn(line->controllers, ",:");
  size_t lengths[] = {line->controllers_length, first};
  for (size_t i = 0; i < ARRAY_SIZE(lengths); i++) {
    _cleanup_free_ char *hierarchy =
        xasprintf("%s/%.*s", place->mount, (int)lengths[i], line->controllers);
    char *folder = cgroup_place_folder(hierarchy, line);
    if (folder)
      return folder;
  }
  return NULL;
}

void cgroup_v1_create(struct limit_group *group, const struct cgroup_place *place,
                      unsigned needed) {
  const char *rest = place->membership;
  struct cgroup_membership line;
  while (cgroup_membership_next(&rest, &line)) {
    unsigned mask =
        cgroup_controllers_in(CGROUP_VERSION_1, line.controllers, line.controllers_length, ',');
    if (!(mask & needed))
      continue;
    _cleanup_free_ char *path = v1_folder(place, &line);
    _cleanup_close_ int parent = path ? open(path, FOLDER_FLAGS) : -1;
    if (parent >= 0)
      (void)add_hierarchy(group, &parent, mask); /* not ours to use: something else holds */
  }
}

/* ---- version 2: one folder ---- */

static unsigned read_controllers(int folder, const char *file) {
  _cleanup_free_ char *text = NULL;
  if (file_read_at(folder, file, 4096, &text, NULL) < 0)
    return 0;
  return cgroup_controllers_in(CGROUP_VERSION_2, text, strcspn(text, "\n"), ' ');
}

/* '+' or '-' for each controller of the mask, one write each: one that fails takes no other along.
 */
static void switch_controllers(int folder, unsigned mask, char sign) {
  for (size_t i = 0; i < CONTROLLER_COUNT; i++) {
    const char *name = cgroup_controller_name(CGROUP_VERSION_2, (enum cgroup_controller)i);
    char text[32];
    if (!name || !(mask & 1u << i))
      continue;
    snprintf(text, sizeof text, "%c%s", sign, name);
    (void)cgroup_write(folder, "cgroup.subtree_control", text);
  }
}

/* May we make a group here and start a process in it? The kernel wants write access to the
 * cgroup.procs of the common ancestor of the old and the new group, which this is. */
static bool is_usable(int folder) {
  return faccessat(folder, ".", W_OK, AT_EACCESS) == 0 &&
         faccessat(folder, "cgroup.procs", W_OK, AT_EACCESS) == 0;
}

struct candidate {
  int folder;
  unsigned offered; /* of what is needed */
};

/* What children of this folder would have. Only the root may be asked for more: it takes no part
 * in the rule that a group with controllers for its children has no process of its own, and
 * managers of the groups between expect to find them as they left them. */
static unsigned offered_by(int folder, unsigned needed, bool is_root) {
  unsigned offered = read_controllers(folder, "cgroup.subtree_control");
  if (is_root && needed & ~offered) {
    switch_controllers(folder, needed & ~offered, '+');
    offered = read_controllers(folder, "cgroup.subtree_control");
  }
  return offered & needed;
}

/* The nearest folder, from our own upwards, whose children have all that is needed; else the one
 * whose children have most. */
static struct candidate find_parent(const char *own, const char *mount, unsigned needed) {
  struct candidate best = {.folder = -1};
  _cleanup_free_ char *path = xstrdup(own);
  size_t mount_length = strlen(mount);
  for (;;) {
    bool is_root = strlen(path) <= mount_length;
    _cleanup_close_ int folder = open(path, FOLDER_FLAGS);
    if (folder >= 0 && is_usable(folder)) {
      unsigned offered = offered_by(folder, needed, is_root);
      if (__builtin_popcount(offered) > __builtin_popcount(best.offered)) {
        if (best.folder >= 0)
          close(best.folder);
        best = (struct candidate){.folder = steal_fd(&folder), .offered = offered};
      }
    }
    if (is_root || best.offered == needed)
      return best;
    *strrchr(path, '/') = '\0';
  }
}

static bool is_alone(int folder) {
  _cleanup_free_ char *text = NULL;
  char ours[32];
  snprintf(ours, sizeof ours, "%d\n", getpid());
  return file_read_at(folder, "cgroup.procs", 4096, &text, NULL) == 0 && strcmp(text, ours) == 0;
}

static void monitor_name(const struct limit_group *group, char *ret_name, size_t size) {
  snprintf(ret_name, size, "%s" CGROUP_MONITOR_SUFFIX, group->name);
}

void cgroup_v2_move_back(struct limit_group *group) {
  char name[sizeof group->name + sizeof CGROUP_MONITOR_SUFFIX];
  int own = group->hierarchies[0].parent;
  monitor_name(group, name, sizeof name);
  switch_controllers(own, group->hierarchies[0].controllers, '-');
  (void)cgroup_write(own, "cgroup.procs", "0");
  unlinkat(own, name, AT_REMOVEDIR);
  group->monitor_moved = false;
}

/* A delegated group that only we are in, as `systemd-run --user --scope -p Delegate=yes` makes it:
 * we step aside into a leaf, so that the group can give controllers to its children. Leaving the
 * group costs a grace period of the kernel (15 ms and more), so this comes last. */
static int make_room(struct limit_group *group, const char *own, unsigned needed) {
  char name[sizeof group->name + sizeof CGROUP_MONITOR_SUFFIX];
  monitor_name(group, name, sizeof name);
  _cleanup_close_ int folder = open(own, FOLDER_FLAGS);
  if (folder < 0 || !is_usable(folder) || !is_alone(folder))
    return -EBUSY;
  unsigned there = read_controllers(folder, "cgroup.controllers") & needed;
  if (!there || mkdirat(folder, name, 0755) < 0)
    return -EOPNOTSUPP;
  _cleanup_close_ int leaf = openat(folder, name, FOLDER_FLAGS);
  if (leaf < 0 || cgroup_write(leaf, "cgroup.procs", "0") < 0) {
    unlinkat(folder, name, AT_REMOVEDIR);
    return -EACCES;
  }
  switch_controllers(folder, there, '+');
  int result = add_hierarchy(group, &folder, there);
  if (result < 0) { /* back as it was */
    switch_controllers(folder, there, '-');
    (void)cgroup_write(folder, "cgroup.procs", "0");
    unlinkat(folder, name, AT_REMOVEDIR);
    return result;
  }
  group->monitor_moved = true;
  return 0;
}

void cgroup_v2_create(struct limit_group *group, const struct cgroup_place *place,
                      unsigned needed) {
  const char *rest = place->membership;
  struct cgroup_membership line;
  do {
    if (!cgroup_membership_next(&rest, &line))
      return;
  } while (line.controllers_length > 0);
  _cleanup_free_ char *own = cgroup_place_folder(place->mount, &line);
  if (!own)
    return;
  group->unified = true;
  struct candidate best = find_parent(own, place->mount, needed);
  _cleanup_close_ int parent = best.folder;
  if (best.offered == needed || make_room(group, own, needed) < 0) {
    if (parent >= 0)
      (void)add_hierarchy(group, &parent, best.offered);
  }
}

/* ---- removing ---- */

/* A group that was handed to the workload may be nested as deep as it liked; we only follow so far
 * and would rather leave a folder behind than run out of stack. */
enum { REMOVE_DEPTH = 64 };

static int remove_tree(int parent, const char *name, int depth);

static void remove_children(int parent, const char *name, int depth) {
  int fd = openat(parent, name, FOLDER_FLAGS);
  _cleanup_stream_ DIR *folder = folder_stream(fd);
  if (!folder)
    return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    bool is_child = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    if (entry->d_type == DT_DIR && is_child)
      (void)remove_tree(fd, entry->d_name, depth + 1);
  }
}

static int remove_tree(int parent, const char *name, int depth) {
  if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT)
    return 0;
  if ((errno != EBUSY && errno != ENOTEMPTY) || depth == REMOVE_DEPTH)
    return -errno;
  remove_children(parent, name, depth);
  return unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT ? 0 : -errno;
}

int cgroup_remove_tree(int parent, const char *name) {
  return remove_tree(parent, name, 0);
}
