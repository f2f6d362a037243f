/* Where cgroups are on this machine and where in them we are. Inside src/limits only. */
#pragma once

#include <stdbool.h>

#include "core/strv.h"
#include "limits/limits.h"

enum cgroup_controller {
  CONTROLLER_MEMORY,
  CONTROLLER_PIDS,
  CONTROLLER_CPU,
  CONTROLLER_CPUACCT, /* v1 only; v2 counts processor time everywhere */
  CONTROLLER_IO,
  CONTROLLER_COUNT
};

enum cgroup_version { CGROUP_VERSION_NONE, CGROUP_VERSION_1, CGROUP_VERSION_2 };

struct cgroup_place {
  enum cgroup_version version; /* of the hierarchy that has the controllers */
  const char *mount;           /* "/sys/fs/cgroup" */
  const char *membership;      /* the text of /proc/self/cgroup */
};

/* The name of a controller in that version, or NULL if it has none. */
const char *cgroup_controller_name(enum cgroup_version version, enum cgroup_controller controller);

/* The mask of the controllers in a list with this separator. */
unsigned cgroup_controllers_in(enum cgroup_version version, const char *list, size_t length,
                               char separator);

/* One line of /proc/self/cgroup. */
struct cgroup_membership {
  const char *controllers, *path; /* not terminated; empty controllers: v2 */
  size_t controllers_length, path_length;
};

/* Takes the next line off *text; false at the end. Lines that make no sense are passed over. */
bool cgroup_membership_next(const char **text, struct cgroup_membership *ret_line);

/* Looks at the machine. The text must be freed by the caller once the place is not needed. */
struct cgroup_place cgroup_place_find(char **ret_text);

/* The folder of a path of a hierarchy. A container shows its own group as the root of the mount
 * but names it from further out; then that root is meant. New string, or NULL. */
char *cgroup_place_folder(const char *hierarchy, const struct cgroup_membership *line);
