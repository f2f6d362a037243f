/* Removes the folders of monitors that were killed. A living monitor holds a lock on its folders;
 * only empty ones can be removed at all. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/folder.h"
#include "core/id.h"
#include "limits/cgroup.h"

/* Between making a folder and locking it lies a moment. The kernel's time of a cgroup folder is
 * never earlier than its making, so a young one may be somebody's who is just starting. */
enum { YOUNG_SECONDS = 10 };

/* Our prefix and a session's id (session_new_id), or the leaf that its monitor stepped into.
 * Somebody else may call a group "sandbox-builds", with limits for what is started in it later. */
static bool is_session(const char *name) {
  static const char letters[] = ID_LETTERS;
  if (strncmp(name, CGROUP_PREFIX, strlen(CGROUP_PREFIX)) != 0)
    return false;
  const char *id = name + strlen(CGROUP_PREFIX), *rest = id + strspn(id, letters);
  return rest - id == 8 && (*rest == '\0' || strcmp(rest, CGROUP_MONITOR_SUFFIX) == 0);
}

static bool is_young(int folder) {
  struct stat status;
  return fstat(folder, &status) < 0 || time(NULL) < status.st_mtime + YOUNG_SECONDS;
}

static size_t recover_one(int parent, const char *name) {
  _cleanup_close_ int folder =
      openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  if (folder < 0 || is_young(folder) || flock(folder, LOCK_EX | LOCK_NB) < 0)
    return 0;
  return cgroup_remove_tree(parent, name) == 0;
}

static size_t recover_in(int parent, const char *own) {
  int fd = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  _cleanup_stream_ DIR *folder = folder_stream(fd);
  if (!folder)
    return 0;
  size_t count = 0;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (entry->d_type == DT_DIR && is_session(entry->d_name) && strcmp(entry->d_name, own) != 0)
      count += recover_one(fd, entry->d_name);
  }
  return count;
}

size_t limit_groups_recover(const struct limit_group *group) {
  size_t count = 0;
  for (size_t i = 0; i < group->hierarchy_count; i++)
    count += recover_in(group->hierarchies[i].parent, group->name);
  return count;
}
