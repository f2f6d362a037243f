/* Copies the names in a folder; see listing.h. Runs in the broker. */
#include "engine/listing.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/folder.h"
#include "engine/mounts.h"

#define NAME_LIMIT 20000 /* each takes a kilobyte while somebody holds the copy */

static int new_file_system(void) {
  _cleanup_close_ int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
  if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "mode", "0755", 0) < 0 ||
      fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    return -errno;
  int mount =
      fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  return mount < 0 ? -errno : mount;
}

struct copying {
  int folder, copy;
  size_t count;
  int result;
};

static int copy_link(const struct copying *copying, const char *name) {
  char text[PATH_MAX];
  ssize_t length = readlinkat(copying->folder, name, text, sizeof text - 1);
  if (length < 0)
    return 0; /* gone meanwhile */
  text[length] = '\0';
  return symlinkat(text, copying->copy, name);
}

/* Nobody may open what stands for it. */
static int copy_name(const struct copying *copying, const struct folder_entry *entry) {
  switch (entry->type) {
  case DT_DIR:
    return mkdirat(copying->copy, entry->name, 0);
  case DT_LNK:
    return copy_link(copying, entry->name);
  case DT_FIFO:
    return mknodat(copying->copy, entry->name, S_IFIFO, 0);
  case DT_SOCK:
    return mknodat(copying->copy, entry->name, S_IFSOCK, 0);
  default:
    return mknodat(copying->copy, entry->name, S_IFREG, 0);
  }
}

static bool visit(void *context, const struct folder_entry *entry) {
  struct copying *copying = context;
  if (++copying->count > NAME_LIMIT)
    copying->result = -E2BIG;
  else if (copy_name(copying, entry) < 0 && errno != EEXIST)
    copying->result = -errno;
  return copying->result == 0;
}

int listing_copy(int folder) {
  _cleanup_close_ int names = folder_open(folder, ".");
  if (names < 0)
    return names;
  _cleanup_close_ int mount = new_file_system();
  if (mount < 0)
    return mount;
  struct copying copying = {.folder = names, .copy = mount};
  int result = folder_read(names, visit, &copying);
  if (result == 0)
    result = copying.result;
  if (result == 0)
    result = mounts_set(mount, MOUNT_ATTR_RDONLY, 0);
  if (result < 0)
    return result;
  return folder_open(mount, ".");
}
