/* The view of dynamic mode: an empty root, and the gate that shows what is allowed; see view.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/pid-numbers.h"
#include "engine/channel.h"
#include "engine/mounts.h"
#include "engine/view-private.h"

int view_show_gated(struct view *view, const char *name, bool folder) {
  _cleanup_close_ int tree = mounts_clone(view->gate, name, AT_SYMLINK_NOFOLLOW);
  if (tree < 0)
    return tree;
  if ((folder ? mkdirat(view->root, name, 0755) : mknodat(view->root, name, S_IFREG, 0)) < 0)
    return errno == EEXIST ? 0 : -errno;
  return move_mount(tree, "", view->root, name, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static void close_namespaces(struct view *view) {
  for (size_t i = 0; i < ARRAY_SIZE(view->namespaces); i++) {
    if (view->namespaces[i] >= 0)
      close(view->namespaces[i]);
    view->namespaces[i] = -1;
  }
}

static int open_namespaces(struct view *view) {
  static const char *const names[] = {"/proc/self/ns/mnt", "/proc/self/ns/pid"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    view->namespaces[i] = open(names[i], O_RDONLY | O_CLOEXEC);
    if (view->namespaces[i] < 0)
      return -errno;
  }
  return 0;
}

/* The monitor serves the gate, and the broker makes mounts in our namespaces later. */
static int hand_over_gate(struct view *view, const int *fds, size_t count) {
  struct message message = {.kind = MESSAGE_GATE};
  int result = fd_send(view->channel, fds, count, &message, sizeof message);
  close_namespaces(view);
  return result;
}

int view_hand_over_listener(struct view *view, int listener) {
  _cleanup_close_ int owned = listener; /* no copy may stay: its death is how the end shows */
  const int fds[] = {owned, view->namespaces[0], view->entered};
  int result = hand_over_gate(view, fds, ARRAY_SIZE(fds));
  close(steal_fd(&view->entered));
  return result;
}

/* An empty root: what is not mounted in it does not exist for the kernel, whatever the supervisor
 * says. It becomes read-only when all mount points are made. The limits only stop a flood of names
 * of folders and links that are repeated here when somebody asks for them. */
static int apply_empty_root(struct view *view) {
  static const struct fs_option options[] = {
      {"mode", "0755"}, {"size", "16m"}, {"nr_inodes", "65536"}};
  _cleanup_close_ int mount =
      view_new_filesystem("tmpfs", options, ARRAY_SIZE(options),
                          MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
  return mount < 0 ? mount : view_become_root(view, &mount);
}

/* The device must be opened here: the kernel wants it from the user namespace that mounts. With
 * "default_permissions" it asks for attributes before each use; what for is to be seen only where
 * the monitor can tell who it is that asks. */
static int mount_fuse(const struct view *view, int *ret_device) {
  char number[16], user[16], group[16];
  _cleanup_close_ int device = open("/dev/fuse", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (device < 0)
    return -errno;
  snprintf(number, sizeof number, "%d", device);
  snprintf(user, sizeof user, "%u", (unsigned)geteuid());
  snprintf(group, sizeof group, "%u", (unsigned)getegid());
  const struct fs_option options[] = {{"fd", number},         {"rootmode", "40000"},
                                      {"user_id", user},      {"group_id", group},
                                      {"subtype", "sandbox"}, /* as mount_is_distant() knows it */
                                      {"allow_other", NULL},  {"default_permissions", NULL}};
  bool checks = pid_numbers_process(view->namespaces[1], getpid()) > 0;
  int mount = view_new_filesystem("fuse", options, ARRAY_SIZE(options) - (checks ? 0 : 1),
                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  if (mount >= 0)
    *ret_device = steal_fd(&device);
  return mount;
}

/* Beside the root and never in it: only parts of it are shown there. The kernel clones attached
 * mounts alone. */
static int keep_gate(struct view *view, int *mount) {
  if (mkdirat(view->private, "gate", 0700) < 0)
    return -errno;
  _cleanup_close_ int target = openat(view->private, "gate", O_PATH | O_DIRECTORY | O_CLOEXEC);
  int result = target < 0 ? -errno : mounts_attach(*mount, target);
  if (result == 0)
    view->gate = steal_fd(mount);
  return result;
}

/* With a copy of the whole, which is attached nowhere: the broker takes from it what the host adds
 * to its root later. */
static int hand_over_fuse(struct view *view, int device) {
  _cleanup_close_ int whole = mounts_clone(view->gate, "", 0);
  const int fds[] = {device, view->namespaces[0], view->namespaces[1], whole};
  return whole < 0 ? whole : hand_over_gate(view, fds, ARRAY_SIZE(fds));
}

/* The root is a tmpfs in either case, for the kernel passes through it on every path, and one that
 * is served costs as much as the filter of system calls. */
int view_apply_gate(struct view *view, const struct operation *operation) {
  (void)operation;
  int result = open_namespaces(view);
  if (result < 0 || view->plan->gate == GATE_NOTIFY)
    return result < 0 ? result : apply_empty_root(view);
  _cleanup_close_ int device = -1;
  _cleanup_close_ int mount = mount_fuse(view, &device);
  result = mount < 0 ? mount : apply_empty_root(view);
  if (result == 0)
    result = keep_gate(view, &mount);
  return result < 0 ? result : hand_over_fuse(view, device);
}

/* A name that the gate refuses to show, or whose server does not answer, is there, and closed. */
static int show_name(struct view *view, const char *name, unsigned char type) {
  bool folder = type == DT_DIR;
  if (faccessat(view->root, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
    return 0;
  int result = view_show_gated(view, name, folder);
  if (result != -EACCES && result != -ETIMEDOUT)
    return result == -ENOENT ? 0 : result;
  result = folder ? mkdirat(view->root, name, 0) : mknodat(view->root, name, S_IFREG, 0);
  return result < 0 ? -errno : 0;
}

/* Reading its names also makes the kernel know them, so that the gate is not asked for each. */
int view_show_rest(struct view *view) {
  _Alignas(struct dirent64) char buffer[8192];
  _cleanup_close_ int fd = openat(view->gate, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return -errno;
  for (ssize_t got; (got = getdents64(fd, buffer, sizeof buffer)) != 0;) {
    if (got < 0)
      return -errno;
    for (ssize_t at = 0; at < got;) {
      const struct dirent64 *entry = (const struct dirent64 *)(buffer + at);
      bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
      int result = dots ? 0 : show_name(view, entry->d_name, entry->d_type);
      if (result < 0)
        return result;
      at += entry->d_reclen;
    }
  }
  return 0;
}
