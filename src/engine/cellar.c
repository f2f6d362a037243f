/* The cellar; see cellar.h. Runs in the broker: no allocation. */
#include "engine/cellar.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/mounts.h"

#define NAME ".taken-"

/* The folder above the mount point lets nobody through: the workload has no capabilities, and the
 * file system is read-only for it. Each has one of its own, so that ".." leads from one to no
 * other. */
static int dig(void) {
  static unsigned count; /* another broker may have dug before us */
  char name[64], place[128];
  _cleanup_close_ int folder = mounts_clone(AT_FDCWD, CELLAR_PLACE, 0);
  struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
  if (folder < 0 || mount_setattr(folder, "", AT_EMPTY_PATH, &writable, sizeof writable) < 0)
    return folder < 0 ? folder : -errno;
  do
    snprintf(name, sizeof name, NAME "%u", ++count);
  while (mkdirat(folder, name, 0700) < 0 && errno == EEXIST);
  _cleanup_close_ int above = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (above < 0 || mkdirat(above, "here", 0) < 0)
    return -errno;
  snprintf(place, sizeof place, CELLAR_PLACE "/%s/here", name);
  _cleanup_close_ int target = mounts_open(place);
  if (target < 0)
    return target;
  return fchmod(above, 0) < 0 ? -errno : steal_fd(&target);
}

/* Nothing is run or written there any more. Writing cannot be ended while a file is open for it. */
static void calm(int tree) {
  (void)mounts_set(tree, MOUNT_ATTR_NOEXEC | MOUNT_ATTR_NOSYMFOLLOW, AT_RECURSIVE);
  (void)mounts_set(tree, MOUNT_ATTR_RDONLY, AT_RECURSIVE);
}

int cellar_put(int mount) {
  _cleanup_close_ int target = dig();
  return target < 0 ? target : mounts_attach(mount, target);
}

int cellar_take(const char *path) {
  if (umount2(path, UMOUNT_NOFOLLOW) == 0)
    return 0; /* nobody holds anything of it, and nothing is mounted in it */
  if (errno != EBUSY)
    return -errno;
  _cleanup_close_ int tree = mounts_open(path);
  struct stat status;
  if (tree < 0 || fstat(tree, &status) < 0)
    return tree < 0 ? tree : -errno;
  if (!S_ISDIR(status.st_mode)) /* holds nothing */
    return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
  _cleanup_close_ int target = dig();
  int result = target < 0 ? target : mounts_attach(tree, target);
  if (result < 0)
    return result;
  calm(tree);
  return 1;
}

bool cellar_has(const char *path) {
  static const char start[] = CELLAR_PLACE "/" NAME;
  return strncmp(path, start, sizeof start - 1) == 0;
}
