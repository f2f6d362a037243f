/* Whose socket is it? The kernel keeps the sockets of each network namespace apart, and tells the
 * object that each is bound to. An object gets its socket when it is made, and never another one,
 * so the answer stays true. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/unix-diag.h"
#include "engine/connecting.h"

#ifndef SO_NETNS_COOKIE
#define SO_NETNS_COOKIE 71 /* Linux 5.14 */
#endif
#define MOUNTS_LIMIT (16u << 20)
#define EVERY_STATE  UINT32_MAX

static bool is_same(const struct stat *status, dev_t device, ino_t inode) {
  return status->st_dev == device && status->st_ino == inode;
}

/* An inode's number is given away again when the object is gone. One that is held keeps its own. */
static int hold(const struct plan_socket *socket) {
  struct stat status;
  _cleanup_close_ int fd = open(socket->path, O_PATH | O_CLOEXEC | O_NOFOLLOW);
  bool same = fd >= 0 && fstat(fd, &status) == 0 && is_same(&status, socket->device, socket->inode);
  return same ? steal_fd(&fd) : -1;
}

int judge_prepare(struct judge *judge, const struct connector_input *input, int proc) {
  const struct plan *plan = input->plan;
  *judge = (struct judge){.plan = plan,
                          .gate_device = input->gate_device,
                          .proc = proc,
                          .outside = unix_diag_open(),
                          .inside = -1};
  judge->held = xcalloc(plan->socket_count + 1, sizeof *judge->held);
  for (size_t i = 0; i < plan->socket_count; i++)
    judge->held[i] = hold(&plan->sockets[i]);
  return judge->outside < 0 ? judge->outside : 0;
}

/* ---- networks ---- */

/* Older kernels do not tell; they have no Landlock for abstract names either. */
static uint64_t network_of(int socket) {
  uint64_t cookie = 0;
  socklen_t length = sizeof cookie;
  return getsockopt(socket, SOL_SOCKET, SO_NETNS_COOKIE, &cookie, &length) < 0 ? 0 : cookie;
}

int judge_enter_network(struct judge *judge, pid_t thread) {
  char name[64];
  if (judge->inside >= 0)
    return 0;
  snprintf(name, sizeof name, "%d/ns/net", thread);
  _cleanup_close_ int network = openat(judge->proc, name, O_RDONLY | O_CLOEXEC);
  if (network < 0 || setns(network, CLONE_NEWNET) < 0)
    return -errno;
  judge->inside = unix_diag_open();
  if (judge->inside < 0)
    return judge->inside;
  judge->network = network_of(judge->inside);
  return 0;
}

bool judge_knows_network(const struct judge *judge, int socket) {
  return network_of(socket) == judge->network;
}

/* ---- objects ---- */

/* As the kernel tells it of a socket: with 32 bits of the inode's number. */
struct identity {
  uint32_t device, inode;
};

struct search {
  struct identity wanted;
  bool found;
};

static uint32_t kernel_device(unsigned major, unsigned minor) {
  return major << 20 | minor;
}

/* The accepted end of a connection has its listener's object, and the network of who connected:
 * those prove nothing. */
static bool is_bound(const struct unix_diag_msg *socket) {
  return socket->udiag_type == SOCK_DGRAM || socket->udiag_state != TCP_ESTABLISHED;
}

static void compare(void *context, const struct unix_diag_msg *socket, int kind, const void *data,
                    size_t length) {
  struct search *search = context;
  struct unix_diag_vfs object;
  if (kind != UNIX_DIAG_VFS || length < sizeof object || !is_bound(socket))
    return;
  memcpy(&object, data, sizeof object);
  search->found |=
      object.udiag_vfs_ino == search->wanted.inode && object.udiag_vfs_dev == search->wanted.device;
}

/* Sockets that come and go while the kernel lists them may make it miss one: look twice. */
static bool is_bound_in(int line, struct identity wanted) {
  struct search search = {.wanted = wanted};
  for (int i = 0; i < 2 && !search.found; i++)
    (void)unix_diag_dump(line, EVERY_STATE, UDIAG_SHOW_VFS, compare, &search);
  return search.found;
}

/* "36 35 98:0 /mnt1 /mnt2 …": the device that the kernel has for the whole file system. What
 * stat(2) tells may be a part of it (btrfs) or made up (overlays). */
static bool find_device(const char *mounts, unsigned long long mount, uint32_t *ret_device) {
  for (const char *line = mounts; line && *line; line = strchr(line, '\n')) {
    unsigned long long id;
    unsigned major, minor;
    line += *line == '\n';
    if (sscanf(line, "%llu %*u %u:%u", &id, &major, &minor) != 3 || id != mount)
      continue;
    *ret_device = kernel_device(major, minor);
    return true;
  }
  return false;
}

/* What the kernel itself has for the object. */
static bool look_closely(const struct judge *judge, int object, struct identity *ret_identity) {
  char name[64];
  unsigned long long mount, inode;
  _cleanup_free_ char *info = NULL, *mounts = NULL;
  snprintf(name, sizeof name, "self/fdinfo/%d", object);
  if (file_read_at(judge->proc, name, 4096, &info, NULL) < 0 ||
      file_read_at(judge->proc, "self/mountinfo", MOUNTS_LIMIT, &mounts, NULL) < 0)
    return false;
  const char *mount_line = strstr(info, "mnt_id:"), *inode_line = strstr(info, "\nino:");
  if (!mount_line || sscanf(mount_line, "mnt_id: %llu", &mount) != 1 || !inode_line ||
      sscanf(inode_line, "\nino: %llu", &inode) != 1)
    return false;
  ret_identity->inode = (uint32_t)inode;
  return find_device(mounts, mount, &ret_identity->device);
}

/* The kernel tells 32 bits of an inode's number, and not which part of a file system it is in
 * (btrfs). Where there is more to tell, the command could make a socket of its own that looks like
 * one of the host's: what both seem to have is refused. */
static bool is_inside_alone(const struct judge *judge, struct identity identity, bool exact) {
  return is_bound_in(judge->inside, identity) && (exact || !is_bound_in(judge->outside, identity));
}

static bool is_bound_inside(const struct judge *judge, int object, const struct stat *status) {
  struct statfs system;
  bool exact = fstatfs(object, &system) == 0 && system.f_type == EXT4_SUPER_MAGIC;
  struct identity identity = {.device = kernel_device(major(status->st_dev), minor(status->st_dev)),
                              .inode = (uint32_t)status->st_ino},
                  closely;
  if (is_inside_alone(judge, identity, exact))
    return true;
  return look_closely(judge, object, &closely) &&
         (closely.device != identity.device || closely.inode != identity.inode) &&
         is_inside_alone(judge, closely, false);
}

/* ---- policy ---- */

int judge_open_named(const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

bool judge_is_movable(int object) {
  struct statvfs mount;
  return fstatvfs(object, &mount) < 0 || !(mount.f_flag & ST_RDONLY);
}

static bool is_object(int fd, const struct stat *object) {
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 && is_same(&status, object->st_dev, object->st_ino);
}

bool judge_is_same(int object, int other) {
  struct stat status;
  return fstat(object, &status) == 0 && is_object(other, &status);
}

/* Whoever listens may have started anew since. Only what the command cannot rename is believed; and
 * what protects a name in a writable place protects whatever has it by then. */
static bool is_there_now(const char *path, const struct stat *object) {
  _cleanup_close_ int fd = judge_open_named(path);
  return is_object(fd, object) && !judge_is_movable(fd);
}

static const struct plan_socket *find_named(const struct judge *judge, const struct stat *object) {
  for (size_t i = 0; i < judge->plan->socket_count; i++) {
    const struct plan_socket *socket = &judge->plan->sockets[i];
    bool known = judge->held[i] >= 0 && is_same(object, socket->device, socket->inode);
    if (known || (!socket->movable && is_there_now(socket->path, object)))
      return socket;
  }
  return NULL;
}

const char *judge_named_path(const struct judge *judge, int object) {
  struct stat status;
  const struct plan_socket *socket = fstat(object, &status) < 0 ? NULL : find_named(judge, &status);
  return socket && !socket->movable ? socket->path : NULL;
}

/* FUSE would take a closer look for one of the command's, and ask about it. */
static bool is_gated(const struct judge *judge, int object, mode_t *ret_mode) {
  struct statx seen;
  if (statx(object, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE, &seen) < 0)
    return false;
  *ret_mode = seen.stx_mode;
  return judge->gate_device != 0 &&
         makedev(seen.stx_dev_major, seen.stx_dev_minor) == judge->gate_device;
}

bool judge_is_gated(const struct judge *judge, int object) {
  mode_t mode;
  return is_gated(judge, object, &mode);
}

/* "/NAME": each is a mount of its own there. */
static bool is_right_below_root(const struct judge *judge, int object) {
  char name[64], path[NAME_MAX + 2];
  snprintf(name, sizeof name, "self/fd/%d", object);
  ssize_t length = readlinkat(judge->proc, name, path, sizeof path);
  return length > 1 && !memchr(path + 1, '/', (size_t)length - 1);
}

bool judge_is_link(const struct judge *judge, int object) {
  mode_t mode = 0;
  bool gated = is_gated(judge, object, &mode);
  return S_ISLNK(mode) && !(gated && is_right_below_root(judge, object));
}

/* What is visible and no socket the kernel refuses by itself. */
enum judged judge_object(const struct judge *judge, int object) {
  struct stat status;
  mode_t mode;
  if (is_gated(judge, object, &mode))
    return S_ISSOCK(mode) || S_ISLNK(mode) ? JUDGED_GATED : JUDGED_NOTHING;
  if (fstat(object, &status) < 0)
    return JUDGED_FOREIGN;
  if (S_ISSOCK(status.st_mode) && find_named(judge, &status))
    return JUDGED_NAMED;
  return !S_ISSOCK(status.st_mode) || is_bound_inside(judge, object, &status) ? JUDGED_ALLOWED
                                                                              : JUDGED_FOREIGN;
}
