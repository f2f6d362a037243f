/* The workload's file system view; see view.h.
 *
 * The session's own objects (/tmp, /run, /dev, masks) live in one private tmpfs, so that one size
 * limit holds for all of them. It is attached somewhere in the old tree, and the new root inside
 * it, only because the kernel clones attached mounts alone; pivot_root then takes the old root,
 * with whatever is attached to it, out of the namespace. Never attach anything to "/" itself: what
 * is stacked there stays when the old root goes, and "/.." leads to it. */
#include "engine/view.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/mounts.h"
#include "engine/view-private.h"

#define MASKS "mask" /* their folder in the private tmpfs; the plan's names begin with it */

/* Opens an absolute path below a root without following any symbolic link: what the plan saw is
 * what is mounted, even if somebody swaps a folder for a link meanwhile. */
static int open_inside(int root, const char *path, unsigned flags) {
  struct open_how how = {
      .flags = O_PATH | O_CLOEXEC | (flags & OPERATION_NOFOLLOW ? O_NOFOLLOW : 0),
      .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

static void forget_folder(struct near_folder *folder) {
  if (folder->fd >= 0)
    close(folder->fd);
  folder->fd = -1;
}

/* Opens the folder that a path lies in. Thousands of places are neighbours in a few folders: for
 * the next one it is still open, and only a name is left to look up. */
static int open_folder(struct near_folder *near, int root, const char *path,
                       const char **ret_name) {
  char name[PATH_MAX];
  *ret_name = path_base(path);
  size_t length = (size_t)(*ret_name - path);
  if (near->fd >= 0 && near->length == length && memcmp(near->path, path, length) == 0)
    return near->fd;
  forget_folder(near);
  if (length >= sizeof name)
    return -ENAMETOOLONG;
  memcpy(name, path, length);
  name[length] = '\0';
  int fd = open_inside(root, name, 0);
  if (fd >= 0)
    *near = (struct near_folder){fd, path, length};
  return fd;
}

/* One step of the way: what lies between the root and a mount point is the gate's, if there is one
 * that serves files. */
static int make_step(struct view *view, int parent, const char *name, bool last, bool folder) {
  if (!last && view->gate >= 0)
    return view_show_gated(view, name, true);
  int result = last && !folder ? mknodat(parent, name, S_IFREG, 0) : mkdirat(parent, name, 0755);
  return result < 0 && errno != EEXIST ? -errno : 0;
}

/* In an empty root: the folders on the way to a mount point, and the point itself. Only there: what
 * is mounted already is the host's, and nothing is ever made in it. */
static int make_point(struct view *view, const char *path, bool folder) {
  struct stat empty, status;
  _cleanup_close_ int parent = fcntl(view->root, F_DUPFD_CLOEXEC, 3);
  if (parent < 0 || fstat(view->root, &empty) < 0)
    return -errno;
  for (const char *from = path + 1;;) {
    char name[NAME_MAX + 1];
    const char *end = strchrnul(from, '/');
    bool last = *end == '\0';
    if ((size_t)(end - from) > NAME_MAX)
      return -ENAMETOOLONG;
    memcpy(name, from, (size_t)(end - from));
    name[end - from] = '\0';
    if (fstat(parent, &status) < 0)
      return -errno;
    int made = status.st_dev == empty.st_dev ? make_step(view, parent, name, last, folder) : 0;
    if (made < 0 || last)
      return made;
    int next = open_inside(parent, name, OPERATION_NOFOLLOW);
    if (next < 0)
      return next;
    close(parent);
    parent = next;
    from = end + 1;
  }
}

/* A link in the place of the last name is covered, not followed. */
static int attach(struct view *view, int tree, const char *path) {
  const char *name;
  int folder = open_folder(&view->to, view->root, path, &name);
  if (folder < 0)
    return folder;
  unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (*name ? 0 : MOVE_MOUNT_T_EMPTY_PATH);
  return move_mount(tree, "", folder, name, flags) < 0 ? -errno : 0;
}

/* Where the root is empty, mount points are made as they are needed. */
static int place(struct view *view, int tree, const struct operation *operation) {
  struct stat status;
  int result = attach(view, tree, operation->path);
  if (result != -ENOENT || view->plan->gate == GATE_NONE)
    return result;
  forget_folder(&view->to);
  if (fstat(tree, &status) < 0)
    return -errno;
  result = make_point(view, operation->path, S_ISDIR(status.st_mode));
  return result < 0 ? result : attach(view, tree, operation->path);
}

/* A tree of the host's. What became a symbolic link since the plan saw it is refused. */
static int clone_host_object(struct view *view, const char *path, unsigned flags) {
  const char *name;
  struct stat status;
  int folder = open_folder(&view->from, view->host, path, &name);
  if (folder < 0)
    return folder;
  _cleanup_close_ int tree =
      mounts_clone(folder, name, AT_RECURSIVE | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT);
  if (tree < 0)
    return tree;
  if (fstat(tree, &status) < 0)
    return -errno;
  return S_ISLNK(status.st_mode) && !(flags & OPERATION_NOFOLLOW) ? -ELOOP : steal_fd(&tree);
}

/* Clones a host object, gives it its attributes and puts it in place. */
static int place_host_object(struct view *view, const struct operation *operation,
                             unsigned long long attributes) {
  const char *path = operation->source ? operation->source : operation->path;
  _cleanup_close_ int tree = clone_host_object(view, path, operation->flags);
  if (tree < 0)
    return tree;
  int result = mounts_set(tree, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes, AT_RECURSIVE);
  return result < 0 ? result : place(view, tree, operation);
}

static int apply_writable(struct view *view, const struct operation *operation) {
  return place_host_object(view, operation, 0);
}

/* Read-only: that does not stop reading or writing a device, only changing its node. Root's uid
 * owns the host's nodes, and `chmod 600 /dev/null` inside would reach everybody. */
static int apply_device(struct view *view, const struct operation *operation) {
  const char *below = operation->path + 1; /* only root can make /dev/null a link, here and there */
  _cleanup_close_ int tree = mounts_clone(view->host, below, AT_SYMLINK_NOFOLLOW);
  if (tree < 0)
    return tree;
  int result = mounts_set(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, 0);
  if (result < 0)
    return result;
  return move_mount(tree, "", view->root, below, MOVE_MOUNT_F_EMPTY_PATH) < 0 ? -errno : 0;
}

static int apply_private_folder(struct view *view, const struct operation *operation) {
  return mkdirat(view->private, operation->source, operation->mode) < 0 && errno != EEXIST ? -errno
                                                                                           : 0;
}

static int fill_private_file(struct view *view, const struct operation *operation) {
  _cleanup_close_ int fd =
      openat(view->private, operation->source, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
  return fd < 0 ? -errno : file_write_all(fd, operation->text, strlen(operation->text));
}

static int apply_private_file(struct view *view, const struct operation *operation) {
  mode_t mode = S_IFREG | operation->mode;
  if (mknodat(view->private, operation->source, mode, 0) < 0 && errno != EEXIST)
    return -errno;
  return operation->text ? fill_private_file(view, operation) : 0;
}

static int apply_private_link(struct view *view, const struct operation *operation) {
  return symlinkat(operation->path, view->private, operation->source) < 0 ? -errno : 0;
}

static int apply_private(struct view *view, const struct operation *operation) {
  _cleanup_close_ int tree = mounts_clone(view->private, operation->source, 0);
  return tree < 0 ? tree : place(view, tree, operation);
}

static int apply_private_sealed(struct view *view, const struct operation *operation) {
  _cleanup_close_ int tree = mounts_clone(view->private, operation->source, 0);
  if (tree < 0)
    return tree;
  int result = mounts_set(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0);
  return result < 0 ? result : place(view, tree, operation);
}

/* Once what they are cloned from is read-only, every mask is; that saves a call for each. */
static int seal_masks(struct view *view) {
  if (view->sealed)
    return 0;
  view->sealed = true;
  int result = mounts_set(view->private, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0);
  return result < 0 || view->masks < 0
             ? result
             : mounts_set(view->masks, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0);
}

/* Whatever is cloned must be in our tree. The private tmpfs goes with the old root; masks that are
 * needed afterwards stay in the new one, where the next mount covers them. */
static int keep_masks(struct view *view, const struct operation *covered) {
  view->masks = mounts_clone(view->private, MASKS, 0);
  return view->masks < 0 ? view->masks : place(view, view->masks, covered);
}

static int clone_mask(struct view *view, const char *source) {
  return view->inside ? mounts_clone(view->masks, source + sizeof MASKS, 0)
                      : mounts_clone(view->private, source, 0);
}

static int apply_mask(struct view *view, const struct operation *operation) {
  int result = seal_masks(view);
  if (result < 0)
    return result;
  _cleanup_close_ int target = open_inside(view->root, operation->path, operation->flags);
  if (target < 0)
    return target;
  struct stat status;
  if (fstat(target, &status) < 0)
    return -errno;
  const char *source = operation->source         ? operation->source
                       : S_ISDIR(status.st_mode) ? MASKS "/folder"
                                                 : MASKS "/file";
  _cleanup_close_ int tree = clone_mask(view, source);
  return tree < 0 ? tree : mounts_attach(tree, target);
}

/* Mounts a part of the view on itself: as a mount point it can be neither renamed nor removed. */
static int mount_on_itself(struct view *view, const struct operation *operation,
                           unsigned long long attributes) {
  _cleanup_close_ int target = open_inside(view->root, operation->path, operation->flags);
  if (target < 0)
    return target;
  _cleanup_close_ int tree = mounts_clone(target, "", AT_RECURSIVE);
  if (tree < 0)
    return tree;
  int result = attributes ? mounts_set(tree, attributes, AT_RECURSIVE) : 0;
  return result < 0 ? result : mounts_attach(tree, target);
}

static int apply_readonly(struct view *view, const struct operation *operation) {
  /* From the host's tree, not from the view: cloning there would look at every mount made so far.
   */
  return place_host_object(view, operation, MOUNT_ATTR_RDONLY);
}

static int apply_pin(struct view *view, const struct operation *operation) {
  return mount_on_itself(view, operation, 0);
}

static int apply_seal(struct view *view, const struct operation *operation) {
  return mount_on_itself(view, operation, MOUNT_ATTR_RDONLY);
}

/* Over a folder of the old tree from which nothing is taken any more. */
static int attach_somewhere(struct view *view, int mount) {
  static const char *const places[] = {"/sys", "/mnt"};
  int result = -ENOENT;
  for (size_t i = 0; result < 0 && i < ARRAY_SIZE(places); i++) {
    _cleanup_close_ int target = open_inside(view->host, places[i], 0);
    result = target < 0 ? target : mounts_attach(mount, target);
  }
  return result;
}

int view_become_root(struct view *view, int *tree) {
  int result = attach_somewhere(view, view->private);
  if (result < 0)
    return result;
  _cleanup_close_ int target = openat(view->private, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (target < 0)
    return -errno;
  result = mounts_attach(*tree, target);
  if (result == 0)
    view->root = steal_fd(tree);
  return result;
}

static int apply_root(struct view *view, const struct operation *operation) {
  (void)operation;
  _cleanup_close_ int tree = mounts_clone(view->host, "", AT_RECURSIVE);
  if (tree < 0)
    return tree;
  int result =
      mounts_set(tree, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, AT_RECURSIVE);
  /* Attached only now, or the copy of the tree would hold a copy of the private tmpfs. */
  return result < 0 ? result : view_become_root(view, &tree);
}

/* ---- new file systems ---- */

int view_new_filesystem(const char *type, const struct fs_option *options, size_t count,
                        unsigned attributes) {
  _cleanup_close_ int context = fsopen(type, FSOPEN_CLOEXEC);
  if (context < 0)
    return -errno;
  for (size_t i = 0; i < count; i++) {
    if (!options[i].key)
      continue;
    unsigned command = options[i].value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG;
    if (fsconfig(context, command, options[i].key, options[i].value, 0) < 0)
      return -errno;
  }
  if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    return -errno;
  int mount = fsmount(context, FSMOUNT_CLOEXEC, attributes);
  return mount < 0 ? -errno : mount;
}

static int apply_link(struct view *view, const struct operation *operation) {
  return symlinkat(operation->source, view->root, operation->path + 1) < 0 ? -errno : 0;
}

static int apply_devpts(struct view *view, const struct operation *operation) {
  int kept = view->awaits_network && view->masks < 0 ? keep_masks(view, operation) : 0;
  if (kept < 0)
    return kept;
  static const struct fs_option options[] = {
      {"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "0620"}};
  _cleanup_close_ int mount = view_new_filesystem("devpts", options, ARRAY_SIZE(options),
                                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
  return mount < 0 ? mount : place(view, mount, operation);
}

/* The kernel refuses a fresh /proc or /sys where the visible one is masked, as in most containers:
 * what it would show would be more than is visible now. Then the outer one stays, read-only. */
static int place_or_keep_outer(struct view *view, const struct operation *operation,
                               const char *type, unsigned attributes, volatile bool *ret_weaker) {
  _cleanup_close_ int mount = view_new_filesystem(type, NULL, 0, attributes);
  if (mount == -EPERM) {
    *ret_weaker = true;
    /* In an empty root there is none that could stay. */
    return view->plan->gate != GATE_NONE ? place_host_object(view, operation, MOUNT_ATTR_RDONLY)
                                         : 0;
  }
  return mount < 0 ? mount : place(view, mount, operation);
}

static int apply_proc(struct view *view, const struct operation *operation) {
  int result = place_or_keep_outer(view, operation, "proc",
                                   MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
                                   &view->report->weaker_proc);
  /* The outer /proc shows processes outside. Only Landlock then keeps the workload from using
   * /proc/PID/root of a process of the same user; without it there is no boundary left. */
  if (result == 0 && view->report->weaker_proc &&
      (!landlock_has_domain(&view->plan->landlock) || !view->plan->weaker_nested))
    return -EPERM;
  return result;
}

static int apply_sysfs(struct view *view, const struct operation *operation) {
  return place_or_keep_outer(view, operation, "sysfs",
                             MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                 MOUNT_ATTR_NOEXEC,
                             &view->report->weaker_sysfs);
}

static int apply_overlay(struct view *view, const struct operation *operation) {
  char lower[64], upper[64], work[64];
  /* overlayfs takes names only; the descriptors pin what the plan saw. */
  _cleanup_close_ int lower_fd = open_inside(view->host, operation->path, 0);
  _cleanup_close_ int upper_fd = open_inside(view->host, operation->upper, 0);
  if (lower_fd < 0 || upper_fd < 0)
    return lower_fd < 0 ? lower_fd : upper_fd;
  snprintf(lower, sizeof lower, "/proc/self/fd/%d", lower_fd);
  snprintf(upper, sizeof upper, "/proc/self/fd/%d/upper", upper_fd);
  snprintf(work, sizeof work, "/proc/self/fd/%d/work", upper_fd);
  const struct fs_option options[] = {
      {"lowerdir", lower}, {"upperdir", upper}, {"workdir", work}, {"userxattr", NULL}};
  _cleanup_close_ int mount = view_new_filesystem("overlay", options, ARRAY_SIZE(options),
                                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  return mount < 0 ? mount : place(view, mount, operation);
}

static int apply_nothing(struct view *view, const struct operation *operation) {
  (void)view;
  (void)operation;
  return 0; /* done outside, by the monitor, before we were told to go on */
}

static int (*const appliers[OPERATION_COUNT])(struct view *, const struct operation *) = {
    [OPERATION_PLACEHOLDER_FOLDER] = apply_nothing,
    [OPERATION_PLACEHOLDER_FILE] = apply_nothing,
    [OPERATION_PRIVATE_FOLDER] = apply_private_folder,
    [OPERATION_PRIVATE_FILE] = apply_private_file,
    [OPERATION_PRIVATE_LINK] = apply_private_link,
    [OPERATION_ROOT] = apply_root,
    [OPERATION_GATE] = view_apply_gate,
    [OPERATION_LINK] = apply_link,
    [OPERATION_PRIVATE] = apply_private,
    [OPERATION_PRIVATE_SEALED] = apply_private_sealed,
    [OPERATION_DEVICE] = apply_device,
    [OPERATION_DEVPTS] = apply_devpts,
    [OPERATION_PROC] = apply_proc,
    [OPERATION_SYSFS] = apply_sysfs,
    [OPERATION_WRITABLE] = apply_writable,
    [OPERATION_READONLY] = apply_readonly,
    [OPERATION_OVERLAY] = apply_overlay,
    [OPERATION_PIN] = apply_pin,
    [OPERATION_PROTECT] = apply_seal,
    [OPERATION_SEAL] = apply_seal,
    [OPERATION_MASK] = apply_mask,
};

/* What is not in the view needs no mask, and its folder no pin: it was removed since the plan saw
 * it. What must be there, below a pin, is missed by its own operation. */
static bool forgivable(const struct operation *operation, int result) {
  bool may_be_missing = (operation->flags & OPERATION_OPTIONAL) ||
                        operation->kind == OPERATION_MASK || operation->kind == OPERATION_PIN;
  return may_be_missing && (result == -ENOENT || result == -ENOTDIR);
}

static void forget_folders(struct view *view) {
  forget_folder(&view->from);
  forget_folder(&view->to);
}

/* Somebody outside may replace a file between our opening and mounting on it (useradd does it to
 * /etc/shadow); the name then leads to the new one. */
static int apply(struct view *view, const struct operation *operation) {
  int result = -ENOENT, attempts = operation->flags & OPERATION_OPTIONAL ? 1 : 5;
  for (int attempt = 0; result == -ENOENT && attempt < attempts; attempt++) {
    if (attempt > 0)
      forget_folders(view);
    result = appliers[operation->kind](view, operation);
  }
  return result;
}

/* A sysfs shows the network namespace of who mounts it. */
static bool shows_network(const struct operation *operation) {
  return path_is_under(operation->path, "/sys");
}

/* A folder may be kept open only while every mount is made by open_folder: one at the folder itself
 * has another folder, which takes its place. Other kinds mount in other ways. */
static int apply_next(struct view *view, size_t index, bool first) {
  const struct operation *operation = &view->plan->operations[index];
  if (first || operation->kind != operation[-1].kind)
    forget_folders(view);
  return apply(view, operation);
}

/* A base operation has the same index in the plan that was begun and in the complete one, which is
 * where the monitor looks it up. */
static int apply_operations(struct view *view, size_t first, size_t end, bool network) {
  for (size_t i = first; i < end; i++) {
    const struct operation *operation = &view->plan->operations[i];
    if (view->awaits_network && shows_network(operation) != network)
      continue;
    int result = apply_next(view, i, i == first);
    if (result < 0 && !forgivable(operation, result)) {
      view->report->operation = i;
      return report_failure(view->report, STEP_OPERATION, result);
    }
  }
  forget_folders(view);
  return 0;
}

static int create_private(struct view *view) {
  char size[32], inodes[32];
  snprintf(size, sizeof size, "%llu", view->plan->private_size_bytes);
  snprintf(inodes, sizeof inodes, "%llu", view->plan->private_inodes);
  const struct fs_option options[] = {
      {"mode", "0755"},
      {view->plan->private_size_bytes ? "size" : NULL, size},
      {view->plan->private_inodes ? "nr_inodes" : NULL, inodes},
  };
  int mount = view_new_filesystem("tmpfs", options, ARRAY_SIZE(options),
                                  MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
  if (mount < 0)
    return report_failure(view->report, STEP_PRIVATE, mount);
  view->private = mount;
  return mkdirat(mount, "root", 0755) < 0 ? report_failure(view->report, STEP_PRIVATE, -errno) : 0;
}

static int enter(struct view *view) {
  if (fchdir(view->root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0 || chdir("/") < 0)
    return report_failure(view->report, STEP_PIVOT, -errno);
  view->inside = true;
  return 0;
}

int view_begin(struct view *view, const struct plan *base, struct start_report *report, int channel,
               bool awaits_network) {
  *view = (struct view){.plan = base,
                        .report = report,
                        .channel = channel,
                        .awaits_network = awaits_network,
                        .private = -1,
                        .root = -1,
                        .gate = -1,
                        .masks = -1,
                        .entered = -1,
                        .from.fd = -1,
                        .to.fd = -1,
                        .namespaces = {-1, -1}};
  view->host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (view->host < 0)
    return report_failure(report, STEP_PRIVATE, -errno);
  /* The caller's must not decide who may use /tmp; the workload gets it back. */
  view->umask = umask(0);
  int result = create_private(view);
  return result < 0 ? result : apply_operations(view, 0, base->base_count, false);
}

static int seal_empty_root(struct view *view) {
  int result = view->gate >= 0 ? view_show_rest(view) : 0;
  if (result == 0)
    result = mounts_set(view->root, MOUNT_ATTR_RDONLY, 0);
  if (result == 0 && view->gate < 0) {
    view->entered = fcntl(view->root, F_DUPFD_CLOEXEC, 3);
    result = view->entered < 0 ? -errno : 0;
  }
  return result < 0 ? report_failure(view->report, STEP_PIVOT, result) : 0;
}

int view_enter(struct view *view, const struct plan *plan) {
  view->plan = plan;
  int result = apply_operations(view, plan->base_count, plan->operation_count, false);
  if (result == 0 && plan->gate != GATE_NONE)
    result = seal_empty_root(view);
  return result < 0 ? result : enter(view);
}

int view_finish(struct view *view) {
  int result =
      view->awaits_network ? apply_operations(view, 0, view->plan->operation_count, true) : 0;
  umask(view->umask);
  /* No descriptor of the old root may survive: it would be a way out (CVE-2024-21626). */
  close(view->host);
  close(view->private);
  close(view->root);
  if (view->gate >= 0)
    close(view->gate);
  if (view->masks >= 0)
    close(view->masks);
  return result;
}
