/* The keeper's hands; see keeper.h. Every object is opened without following a link, looked at, and
 * mounted on by its descriptor; then the name is opened again to see that the mount is there. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/keeping.h"

/* How often a name may change under our hands before we give up. The host does not do that, and the
 * workload cannot: it cannot remove what is mounted on. */
#define ATTEMPTS 64

/* How long something may stay open for writing that got a protected name. */
#define WRITER_PATIENCE_NS (1000ull * 1000 * 1000)

/* How long after that it is still tried to find out who holds it, if there is always something else
 * to do. */
#define HELD_PATIENCE_NS (10ull * 1000 * 1000 * 1000)

/* ---- masks ---- */

/* Made in advance, because making one means to leave the session's namespace. */
int renew_prepare(struct keeping *keeping) {
  static const char *const names[] = {"file", "folder"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (keeping->spare[i] >= 0)
      continue;
    int result = powers_go(&keeping->powers, IN_OWN);
    if (result == 0)
      result = powers_stage(&keeping->powers);
    if (result < 0)
      return result;
    keeping->spare[i] = mounts_clone(keeping->powers.staging, names[i], 0);
    if (keeping->spare[i] < 0)
      return keeping->spare[i];
  }
  return 0;
}

static int put_mask(struct keeping *keeping, int target, bool folder) {
  int result = mounts_attach(keeping->spare[folder], target);
  if (result < 0)
    return result;
  close(keeping->spare[folder]);
  keeping->spare[folder] = -1;
  return 0; /* the next one is made when there is time */
}

/* ---- looking ---- */

struct look {
  mode_t mode;
  dev_t device;
  bool mounted;  /* a mount begins here */
  bool readonly; /* it cannot be written through */
};

/* Never waits for the gate: its objects are judged by what the kernel knows. */
static int look_at(int fd, struct look *ret_look) {
  struct statx status;
  if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_MODE, &status) < 0)
    return -errno;
  *ret_look = (struct look){
      .mode = status.stx_mode,
      .device = ((dev_t)status.stx_dev_major << 32) | status.stx_dev_minor,
      .mounted = status.stx_attributes & STATX_ATTR_MOUNT_ROOT,
  };
  return 0;
}

static bool is_readonly(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 && status.f_flags & ST_RDONLY;
}

/* What the gate serves is not visible yet, and asked about by its own name: a grant was taken away
 * a moment ago. */
static bool is_gated(const struct keeping *keeping, const struct look *look) {
  struct look root;
  _cleanup_close_ int top = keeping->request.plan->gate == GATE_NONE ? -1 : mounts_open("/");
  return top >= 0 && look_at(top, &root) == 0 && look->device == root.device;
}

static bool is_covered(const struct kept_name *name, int fd, const struct look *look) {
  if (!look->mounted)
    return false;
  switch (name->kind) {
  case KEPT_SEAL:
    return is_readonly(fd);
  case KEPT_MASK:
    return name->holes || (look->mode & 0777) == 0;
  default:
    return true;
  }
}

/* Where the link leads, from the session's root. */
static int follow(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

/* A folder that contains the name itself cannot have been meant, nor can the root. */
static bool contains(int folder, const char *path) {
  struct statx above, wanted;
  if (statx(folder, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &wanted) < 0)
    return true;
  _cleanup_free_ char *at = xstrdup(path);
  for (char *slash = strrchr(at, '/'); slash; slash = strrchr(at, '/')) {
    slash[slash == at] = '\0';
    if (statx(AT_FDCWD, at, AT_STATX_DONT_SYNC, STATX_INO, &above) == 0 &&
        above.stx_ino == wanted.stx_ino && above.stx_dev_major == wanted.stx_dev_major &&
        above.stx_dev_minor == wanted.stx_dev_minor)
      return true;
    if (slash == at)
      return false;
  }
  return true;
}

/* ---- protected names ---- */

static int mount_on_itself(int target, uint64_t attributes) {
  _cleanup_close_ int tree = mounts_clone(target, "", AT_RECURSIVE);
  if (tree < 0)
    return tree;
  int result = attributes ? mounts_set(tree, attributes, AT_RECURSIVE) : 0;
  return result < 0 ? result : mounts_attach(tree, target);
}

/* A link in the place of a protected name is fixed as a link. What it leads to must be out of reach
 * by itself: a mount would come too late for who has it open already. */
static int seal_link(const char *path, int link) {
  _cleanup_close_ int target = follow(path);
  if (target < 0 || !is_readonly(target))
    return -ELOOP;
  return mount_on_itself(link, MOUNT_ATTR_RDONLY);
}

/* Has anybody a new protected file open for writing? A mount takes nothing away from who has. The
 * kernel grants a lease for reading only if there is no writer, whoever it is. */
static int has_writer(int object) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", object);
  _cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    return 0;
  if (fcntl(fd, F_SETLEASE, F_RDLCK) == 0) {
    fcntl(fd, F_SETLEASE, F_UNLCK);
    return 0;
  }
  return errno == EAGAIN;
}

/* How a new protected file could still be written to, as an errno: by who has it open, or by a
 * second name that the command gave it before it had this one. 0: not at all. */
static int find_way_in(int object) {
  struct stat status;
  if (fstat(object, &status) < 0 || !S_ISREG(status.st_mode))
    return 0;
  return status.st_nlink > 1 ? EMLINK : has_writer(object) ? ETXTBSY : 0;
}

/* A program of the host that writes in place, or links and unlinks, is done soon. */
int renew_check_writers(struct keeping *keeping, struct kept_name *name) {
  int result = powers_go(&keeping->powers, IN_OWN); /* there is a /proc of ours there */
  if (result < 0)
    return result;
  _cleanup_close_ int object = mounts_open(name->path);
  uint64_t now = monotonic_ns(), until = name->writer_until_ns;
  name->writer_until_ns = 0;
  int way = object < 0 ? 0 : find_way_in(object);
  int held = object < 0 || way ? 0 : held_inside(keeping, name->path);
  if (held < 0 && held != -EAGAIN)
    return held;
  bool unknown = held == -EAGAIN && (!until || now < until + HELD_PATIENCE_NS);
  if (held == 1)
    way = EBUSY;
  if (way == 0 && !unknown)
    return 0;
  if (until && now >= until && way)
    return -way;
  name->writer_until_ns = until ? until : now + WRITER_PATIENCE_NS;
  keeping->writers = true;
  return 1;
}

/* ---- placeholders ---- */

/* A sticky folder, as those that are made at the start; a file as an editor would leave it. */
static int make_placeholder(int parent, const char *name, bool folder, const char *content) {
  if (folder)
    return mkdirat(parent, name, S_ISVTX | 0755) < 0 ? -errno : 0;
  _cleanup_close_ int fd =
      openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (fd < 0)
    return -errno;
  return content ? file_write_all(fd, content, strlen(content)) : 0;
}

static bool is_writable_place(const struct keeping *keeping, const char *path) {
  for (size_t i = 0; i < keeping->request.plan->operation_count; i++) {
    const struct operation *operation = &keeping->request.plan->operations[i];
    if (operation->kind == OPERATION_WRITABLE && strcmp(operation->path, path) == 0)
      return true;
  }
  return keeping->request.granted_writable &&
         strv_contains(keeping->request.granted_writable, path);
}

static int hold_path(struct keeping *keeping, const char *path, bool folder, const char *content);

/* The folder that a name lies in; made, as a placeholder, if the host removed it as a whole. */
static int hold_parent(struct keeping *keeping, const char *parent) {
  int fd = mounts_open(parent);
  if (fd != -ENOENT || is_writable_place(keeping, parent))
    return fd;
  int result = hold_path(keeping, parent, true, NULL);
  return result < 0 ? result : mounts_open(parent);
}

/* In the host's view. Who may not create a name there needs not be kept from it. */
static int hold_path(struct keeping *keeping, const char *path, bool folder, const char *content) {
  _cleanup_free_ char *above = path_parent(path);
  _cleanup_close_ int parent = hold_parent(keeping, above);
  if (parent < 0)
    return parent;
  int result = make_placeholder(parent, path_base(path), folder, content);
  if (result == 0)
    keeping_tell(keeping, folder ? KEEPER_MADE_FOLDER : KEEPER_MADE_FILE, 0, path);
  return result;
}

/* 0 if it was made, 1 if there is nothing to be held. */
static int hold(struct keeping *keeping, const struct kept_name *name) {
  int result = powers_go(&keeping->powers, IN_OWN);
  if (result == 0)
    result = hold_path(keeping, name->path, name->folder, name->content);
  bool impossible = result == -EACCES || result == -EPERM || result == -EROFS ||
                    result == -ENOENT || result == -ENOTDIR;
  return impossible ? 1 : result;
}

/* Nothing is there inside. 1 if there is now, 0 if there need not be, or a negative errno. */
static int on_missing(struct keeping *keeping, const struct kept_name *name) {
  int result = name->held ? hold(keeping, name) : 1;
  if (result != -EEXIST)
    return result < 0 ? result : !result;
  /* Somebody was faster, and it is covered next; or something above it is hidden inside. */
  result = powers_go(&keeping->powers, IN_SESSION);
  _cleanup_close_ int fd = result < 0 ? result : mounts_open(name->path);
  return result < 0 ? result : fd >= 0;
}

/* ---- one name ---- */

/* A hidden link means what it leads to. */
static int cover_behind_link(struct keeping *keeping, const char *path) {
  struct look look;
  _cleanup_close_ int target = follow(path);
  if (target < 0)
    return target == -ENOENT || target == -ENOTDIR || target == -ELOOP || target == -EACCES
               ? 0
               : target;
  if (look_at(target, &look) < 0)
    return -errno;
  if (is_gated(keeping, &look) || (look.mounted && (look.mode & 0777) == 0) ||
      contains(target, path))
    return 0;
  if (keeping->link_count++ >= KEEPER_LINK_LIMIT)
    return -E2BIG;
  int result = put_mask(keeping, target, S_ISDIR(look.mode));
  return result < 0 ? result : 1;
}

static int cover(struct keeping *keeping, struct kept_name *name, int fd, mode_t mode) {
  switch (name->kind) {
  case KEPT_PIN:
    return S_ISLNK(mode) ? -ELOOP : mount_on_itself(fd, S_ISDIR(mode) ? 0 : MOUNT_ATTR_RDONLY);
  case KEPT_SEAL:
    return S_ISLNK(mode) ? seal_link(name->path, fd) : mount_on_itself(fd, MOUNT_ATTR_RDONLY);
  case KEPT_MASK:
  case KEPT_PLACE:
    return put_mask(keeping, fd, S_ISDIR(mode));
  }
  return -EINVAL;
}

static int step(struct keeping *keeping, struct kept_name *name);

/* The folders above it that must not be moved, before the name itself: what is protected in a
 * folder that somebody put there a moment ago could be moved out of the way with it. 0 if they were
 * so. */
static int pin_above(struct keeping *keeping, const struct kept_name *name) {
  int result = 0;
  for (size_t i = 0; i < keeping->list.name_count && result == 0; i++) {
    struct kept_name *above = &keeping->list.names[i];
    bool is_above = path_is_under(name->path, above->path) && strcmp(name->path, above->path) != 0;
    if (is_above && above->kind == KEPT_PIN)
      result = step(keeping, above);
  }
  return result == 0 ? powers_go(&keeping->powers, IN_SESSION) : result;
}

/* One attempt: 0 if it is as it should be, 1 if something was done, or a negative errno. */
static int step(struct keeping *keeping, struct kept_name *name) {
  struct look look;
  int result = renew_prepare(keeping);
  if (result == 0)
    result = powers_go(&keeping->powers, IN_SESSION);
  if (result < 0)
    return result;
  _cleanup_close_ int fd = mounts_open(name->path);
  if (fd == -ENOENT || fd == -ENOTDIR)
    return on_missing(keeping, name);
  if (fd == -ELOOP && name->kind == KEPT_MASK)
    return cover_behind_link(keeping, name->path);
  if (fd < 0)
    return fd == -EACCES ? 0 : fd; /* nor can it be reached inside */
  result = look_at(fd, &look);
  if (result < 0 || is_covered(name, fd, &look) || is_gated(keeping, &look))
    return result;
  if (S_ISLNK(look.mode) && name->kind == KEPT_MASK)
    return cover_behind_link(keeping, name->path);
  result = pin_above(keeping, name);
  if (result != 0)
    return result; /* looked at again: it may have been replaced together with them */
  name->folder = S_ISDIR(look.mode) && !name->content;
  result = cover(keeping, name, fd, look.mode);
  /* Gone while we looked: there is something else by now, or nothing. */
  return result == 0 || result == -ENOENT || result == -ESTALE ? 1 : result;
}

int renew_name(struct keeping *keeping, struct kept_name *name) {
  bool done = false;
  int result = 1;
  for (int attempt = 0; result == 1 && attempt < ATTEMPTS; attempt++) {
    result = step(keeping, name);
    done |= result == 1;
  }
  return result < 0 ? result : result == 1 ? -EAGAIN : done;
}

int renew_late(struct keeping *keeping, const char *path) {
  struct kept_name name = {.kind = KEPT_MASK, .path = (char *)path};
  return renew_name(keeping, &name);
}
