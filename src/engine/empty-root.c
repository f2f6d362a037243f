/* The session's root; see empty-root.h. */
#include "engine/empty-root.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "engine/cellar.h"

/* ---- what is made where somebody asks for it (seccomp notify) ---- */

static bool is_made(int parent, const char *name, enum made made, const char *target) {
  static const mode_t kinds[] = {S_IFDIR, S_IFREG, S_IFLNK};
  struct stat status;
  char text[PATH_MAX];
  if (fstatat(parent, name, &status, AT_SYMLINK_NOFOLLOW) < 0 ||
      (status.st_mode & S_IFMT) != kinds[made])
    return false;
  if (made != MADE_LINK)
    return true;
  ssize_t length = readlinkat(parent, name, text, sizeof text);
  return length == (ssize_t)strlen(target) && memcmp(text, target, (size_t)length) == 0;
}

/* What was something else on the host before is replaced. A file is only what a mount covers, and
 * nobody may open it when the mount is gone. */
static int make_entry(int parent, const char *name, enum made made, const char *target) {
  if (is_made(parent, name, made, target))
    return 0;
  if (unlinkat(parent, name, 0) < 0 && errno == EISDIR && unlinkat(parent, name, AT_REMOVEDIR) < 0)
    return -errno;
  int result = made == MADE_FOLDER ? mkdirat(parent, name, 0755)
               : made == MADE_FILE ? mknodat(parent, name, S_IFREG, 0)
                                   : symlinkat(target, parent, name);
  return result < 0 ? -errno : 0;
}

static int enter_folder(int parent, const char *name) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_DIRECTORY | O_NOFOLLOW,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV};
  int fd = (int)syscall(SYS_openat2, parent, name, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

/* The root, writable: a mount of our own, with nothing mounted over it. */
static int open_root(void) {
  _cleanup_close_ int root = mounts_clone(AT_FDCWD, "/", 0);
  struct mount_attr writable = {.attr_clr = MOUNT_ATTR_RDONLY};
  if (root < 0 || mount_setattr(root, "", AT_EMPTY_PATH, &writable, sizeof writable) < 0)
    return root < 0 ? root : -errno;
  return steal_fd(&root);
}

/* Walks to the folder that the entry is in, step by step, following no link; with `makes` it makes
 * the folders on the way. Gives the entry's own name. */
static int walk_root(const char *path, bool makes, int *ret_folder, char ret_name[NAME_MAX + 1]) {
  _cleanup_close_ int folder = open_root();
  if (folder < 0)
    return folder;
  for (const char *from = path + 1;;) {
    const char *end = strchrnul(from, '/');
    if ((size_t)(end - from) > NAME_MAX)
      return -ENAMETOOLONG;
    memcpy(ret_name, from, (size_t)(end - from));
    ret_name[end - from] = '\0';
    if (*end == '\0')
      break;
    int result = makes ? make_entry(folder, ret_name, MADE_FOLDER, NULL) : 0;
    int next = result < 0 ? result : enter_folder(folder, ret_name);
    if (next < 0)
      return next;
    close(folder);
    folder = next;
    from = end + 1;
  }
  *ret_folder = steal_fd(&folder);
  return 0;
}

int empty_root_make(const char *path, enum made made, const char *target) {
  _cleanup_close_ int folder = -1;
  char name[NAME_MAX + 1];
  int result = walk_root(path, true, &folder, name);
  return result < 0 ? result : make_entry(folder, name, made, target);
}

/* Only if nothing else has come there since. */
int empty_root_forget(const char *path, const char *target) {
  _cleanup_close_ int folder = -1;
  char name[NAME_MAX + 1];
  int result = walk_root(path, false, &folder, name);
  if (result < 0)
    return result;
  if (!is_made(folder, name, MADE_LINK, target))
    return -ESTALE;
  return unlinkat(folder, name, 0) < 0 ? -errno : 0;
}

/* ---- names of the host's root (FUSE) ---- */

/* The kernel clones attached mounts alone. In the session's namespace, so that another broker finds
 * it attached if we die. */
static int attach_gate(struct root_gate *gate) {
  int result = gate->attached ? 0 : cellar_put(gate->fd);
  gate->attached |= result == 0;
  return result;
}

/* The name as the host has it, and the gate's part that stands for it. */
struct likeness {
  bool missing;
  enum made made;
  char target[PATH_MAX]; /* a link's */
  int part;              /* -1: none, it is closed */
};

static int look_at_host(struct powers *powers, const char *path, struct likeness *ret_likeness) {
  struct stat status;
  int result = powers_go(powers, IN_OWN);
  *ret_likeness = (struct likeness){.part = -1};
  if (result < 0)
    return result;
  ret_likeness->missing = lstat(path, &status) < 0;
  if (ret_likeness->missing)
    return errno == ENOENT ? 0 : -errno;
  ret_likeness->made = S_ISLNK(status.st_mode)   ? MADE_LINK
                       : S_ISDIR(status.st_mode) ? MADE_FOLDER
                                                 : MADE_FILE;
  if (ret_likeness->made == MADE_LINK &&
      readlink(path, ret_likeness->target, sizeof ret_likeness->target - 1) < 0)
    return -errno;
  return 0;
}

/* In the session's namespace. What the gate refuses to show is there, and closed. */
static int take_part(struct root_gate *gate, const char *path, struct likeness *likeness) {
  int result = attach_gate(gate);
  if (result < 0)
    return result;
  likeness->part = mounts_clone(gate->fd, path + 1, AT_SYMLINK_NOFOLLOW);
  return likeness->part < 0 && likeness->part != -EACCES ? likeness->part : 0;
}

/* Nothing may be looked at that the gate would have to ask about: it would wait for us. */
static uint64_t mount_of(int fd) {
  struct statx status;
  unsigned flags = AT_EMPTY_PATH | AT_STATX_DONT_SYNC;
  return statx(fd, "", (int)flags, STATX_MNT_ID, &status) < 0 ? 0 : status.stx_mnt_id;
}

/* Is there a part of the gate, which can be taken away, or nothing but the root's own entry? */
static int bare_likeness(const char *path) {
  struct statfs mount;
  _cleanup_close_ int there = mounts_open(path), above = mounts_open("/");
  if (there < 0 || above < 0 || fstatfs(there, &mount) < 0)
    return there < 0 ? there : above < 0 ? above : -errno;
  if (mount_of(there) == mount_of(above))
    return 0;
  if (mount.f_type != FUSE_SUPER_MAGIC)
    return -EBUSY;
  close(steal_fd(&there));
  return umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0 ? -errno : 0;
}

static int take_likeness(int root, const char *path) {
  struct stat status;
  if (fstatat(root, path + 1, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return errno == ENOENT ? 0 : -errno;
  int result = bare_likeness(path);
  if (result == 0 && unlinkat(root, path + 1, S_ISDIR(status.st_mode) ? AT_REMOVEDIR : 0) < 0)
    result = -errno;
  return result;
}

/* As init made the others; see view.c. */
static int put_likeness(int root, const char *path, const struct likeness *likeness) {
  mode_t mode = likeness->part >= 0 && likeness->made == MADE_FOLDER ? 0755 : 0;
  const char *name = path + 1;
  int result = likeness->made == MADE_FOLDER ? mkdirat(root, name, mode)
               : likeness->made == MADE_FILE ? mknodat(root, name, S_IFREG | mode, 0)
                                             : symlinkat(likeness->target, root, name);
  if (result < 0 || likeness->part < 0)
    return result < 0 ? -errno : 0;
  _cleanup_close_ int target = mounts_open(path);
  return target < 0 ? target : mounts_attach(likeness->part, target);
}

int empty_root_follow(struct powers *powers, struct root_gate *gate, const char *path) {
  struct likeness likeness;
  bool ours = gate->fd >= 0 && !strchr(path + 1, '/');
  int result = ours ? look_at_host(powers, path, &likeness) : -EINVAL;
  if (result == 0)
    result = powers_go(powers, IN_SESSION);
  if (result == 0 && !likeness.missing && likeness.made != MADE_LINK)
    result = take_part(gate, path, &likeness);
  if (result < 0)
    return result;
  _cleanup_close_ int root = open_root();
  result = root < 0 ? root : take_likeness(root, path);
  if (result == 0 && !likeness.missing)
    result = put_likeness(root, path, &likeness);
  if (likeness.part >= 0)
    close(likeness.part);
  return result;
}
