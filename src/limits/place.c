/* Where cgroups are; see place.h. The parsing is pure and has the unit tests. */
#include "limits/place.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"

#define CGROUP_MOUNT "/sys/fs/cgroup"

const char *cgroup_controller_name(enum cgroup_version version, enum cgroup_controller controller) {
  static const struct {
    const char *v1, *v2;
  } names[CONTROLLER_COUNT] = {
      [CONTROLLER_MEMORY] = {"memory", "memory"}, [CONTROLLER_PIDS] = {"pids", "pids"},
      [CONTROLLER_CPU] = {"cpu", "cpu"},          [CONTROLLER_IO] = {"blkio", "io"},
      [CONTROLLER_CPUACCT] = {"cpuacct", NULL},
  };
  return version == CGROUP_VERSION_2 ? names[controller].v2 : names[controller].v1;
}

static unsigned controller_bit(enum cgroup_version version, const char *word, size_t length) {
  for (size_t i = 0; i < CONTROLLER_COUNT; i++) {
    const char *name = cgroup_controller_name(version, (enum cgroup_controller)i);
    if (name && strlen(name) == length && memcmp(name, word, length) == 0)
      return 1u << i;
  }
  return 0;
}

unsigned cgroup_controllers_in(enum cgroup_version version, const char *list, size_t length,
                               char separator) {
  unsigned mask = 0;
  const char *end = list + length;
  while (list < end) {
    const char *word_end = memchr(list, separator, (size_t)(end - list));
    if (!word_end)
      word_end = end;
    mask |= controller_bit(version, list, (size_t)(word_end - list));
    list = word_end + 1;
  }
  return mask;
}

bool cgroup_membership_next(const char **text, struct cgroup_membership *ret_line) {
  while (**text) {
    const char *line = *text, *end = strchrnul(line, '\n');
    *text = *end ? end + 1 : end;
    const char *list = memchr(line, ':', (size_t)(end - line));
    const char *path = list ? memchr(list + 1, ':', (size_t)(end - list - 1)) : NULL;
    if (!path || path[1] != '/')
      continue;
    *ret_line = (struct cgroup_membership){
        .controllers = list + 1,
        .controllers_length = (size_t)(path - list - 1),
        .path = path + 1,
        .path_length = (size_t)(end - path - 1),
    };
    return true;
  }
  return false;
}

static long file_system_type(const char *path) {
  struct statfs status;
  return statfs(path, &status) < 0 ? 0 : (long)status.f_type;
}

struct cgroup_place cgroup_place_find(char **ret_text) {
  struct cgroup_place place = {.mount = CGROUP_MOUNT};
  long type = file_system_type(CGROUP_MOUNT);
  if (type == CGROUP2_SUPER_MAGIC)
    place.version = CGROUP_VERSION_2;
  else if (type == TMPFS_MAGIC)
    place.version = CGROUP_VERSION_1; /* hybrid, too: the v2 beside it has no controllers */
  *ret_text = NULL;
  if (place.version && file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, ret_text, NULL) < 0)
    place.version = CGROUP_VERSION_NONE;
  place.membership = *ret_text;
  return place;
}

char *cgroup_place_folder(const char *hierarchy, const struct cgroup_membership *line) {
  /* "/../x": our group is outside of what we can see. */
  if (line->path_length >= 3 && memcmp(line->path, "/..", 3) == 0)
    return NULL;
  _cleanup_free_ char *folder = xasprintf(
      "%s%.*s", hierarchy, line->path_length > 1 ? (int)line->path_length : 0, line->path);
  if (access(folder, F_OK) == 0)
    return steal_pointer(folder);
  return access(hierarchy, F_OK) == 0 ? xstrdup(hierarchy) : NULL;
}
