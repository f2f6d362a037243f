/* Names that the host makes and removes in its root, for a session whose root is a tmpfs with parts
 * of the FUSE gate in it: the monitor is told, and has them followed. Nothing is protected by it:
 * what the session's root does not have cannot be reached. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/keeping.h"

bool root_is_followed(const struct keeping *keeping) {
  return keeping->request.plan->gate == GATE_FUSE;
}

void root_tell(const struct keeping *keeping, const char *name) {
  char path[NAME_MAX + 2];
  snprintf(path, sizeof path, "/%.*s", NAME_MAX, name);
  keeping_tell(keeping, KEEPER_ROOT, 0, path);
}

static void list_root(struct strv *ret_names) {
  DIR *root = opendir("/");
  for (struct dirent *entry; root && (entry = readdir(root));) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      strv_add(ret_names, entry->d_name);
  }
  if (root)
    closedir(root);
}

/* Held, not looked at: the gate would ask somebody about a file. */
static bool is_missing(const char *name) {
  char path[NAME_MAX + 2];
  snprintf(path, sizeof path, "/%.*s", NAME_MAX, name);
  _cleanup_close_ int fd = mounts_open(path);
  return fd == -ENOENT;
}

void root_compare(struct keeping *keeping) {
  struct strv names = {0};
  keeping->root_changed = false;
  if (!root_is_followed(keeping) || powers_go(&keeping->powers, IN_OWN) < 0)
    return;
  list_root(&names);
  if (powers_go(&keeping->powers, IN_SESSION) == 0) {
    STRV_FOREACH (name, &names) {
      if (is_missing(*name))
        root_tell(keeping, *name);
    }
  }
  strv_clear(&names);
}
