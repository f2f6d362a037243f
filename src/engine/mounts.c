/* Mount powers; see mounts.h. */
#include "engine/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/caps.h"

/* Not reachable from inside, and needs next to nothing. */
int powers_enter(struct powers *powers, int user_ns, int mount_ns, uint64_t more) {
  *powers = (struct powers){.own_ns = -1, .session_ns = mount_ns, .staging = -1};
  if (setns(user_ns, CLONE_NEWUSER) < 0 || unshare(CLONE_NEWNS) < 0)
    return -errno;
  powers->own_ns = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
  if (powers->own_ns < 0)
    return -errno;
  close(user_ns);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0);
  return caps_keep((UINT64_C(1) << CAP_SYS_ADMIN) | (UINT64_C(1) << CAP_SYS_CHROOT) | more);
}

int powers_go(struct powers *powers, enum where where) {
  if (powers->where == where)
    return 0;
  if (setns(where == IN_OWN ? powers->own_ns : powers->session_ns, CLONE_NEWNS) < 0)
    return -errno;
  powers->where = where;
  return 0;
}

int mounts_open(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

int mounts_clone(int fd, const char *name, unsigned flags) {
  int tree = open_tree(fd, name, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | flags);
  return tree < 0 ? -errno : tree;
}

int mounts_set(int tree, uint64_t attributes, unsigned flags) {
  struct mount_attr change = {.attr_set = attributes, .propagation = MS_PRIVATE};
  return mount_setattr(tree, "", AT_EMPTY_PATH | flags, &change, sizeof change) < 0 ? -errno : 0;
}

int mounts_attach(int tree, int target) {
  return move_mount(tree, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0
             ? -errno
             : 0;
}

/* An empty folder and an empty file that nobody may open, over a place of our own namespace that is
 * never granted: the kernel clones attached mounts only. */
int powers_stage(struct powers *powers) {
  if (powers->staging >= 0)
    return 0;
  _cleanup_close_ int context = fsopen("tmpfs", FSOPEN_CLOEXEC);
  if (context < 0 || fsconfig(context, FSCONFIG_SET_STRING, "mode", "0700", 0) < 0 ||
      fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    return -errno;
  _cleanup_close_ int mount =
      fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  _cleanup_close_ int target = mounts_open("/sys");
  if (mount < 0 || target < 0 || mounts_attach(mount, target) < 0 ||
      mkdirat(mount, "folder", 0) < 0 || mknodat(mount, "file", S_IFREG, 0) < 0)
    return -errno;
  int result = mounts_set(mount, MOUNT_ATTR_RDONLY, 0);
  if (result == 0)
    powers->staging = steal_fd(&mount);
  return result;
}

/* Clones of the sealed staging area are sealed. */
int powers_new_mask(const struct powers *powers, int target) {
  struct stat status;
  if (fstat(target, &status) < 0)
    return -errno;
  return mounts_clone(powers->staging, S_ISDIR(status.st_mode) ? "folder" : "file", 0);
}
