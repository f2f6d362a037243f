/* The broker; see broker.h. Its own side runs in a forked copy of the monitor: no allocation, no
 * stdio, one request at a time, all state on one stack. */
#include "engine/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "engine/cellar.h"
#include "engine/holders.h"
#include "engine/listing.h"
#include "engine/mounts.h"

/* One packet: this, the path, the kept names, then the masks, each string with its NUL. */
struct packet_header {
  uint32_t kind, flags, kept_count, mask_count;
  uint64_t device, inode;
};
#define PACKET_LIMIT (128u << 10)

/* ---- the broker's own side ---- */

struct state {
  int channel;
  int gate; /* what the FUSE gate serves; -1: none */
  bool gate_attached;
  struct powers powers;
  struct holders holders;
};

static void answer(const struct state *state, int result, int fd) {
  int32_t value = result;
  (void)fd_send(state->channel, &fd, fd >= 0 ? 1 : 0, &value, sizeof value);
}

/* Masks stay in our own namespace: whatever is cloned from there later carries them along. */
static int mask_own(struct state *state, const char *path) {
  int result = powers_stage(&state->powers);
  if (result < 0)
    return result;
  _cleanup_close_ int target = mounts_open(path);
  if (target == -ENOENT || target == -ENOTDIR)
    return 0; /* gone meanwhile */
  if (target < 0)
    return target;
  struct statx object, staging;
  if (statx(target, "", AT_EMPTY_PATH, STATX_INO, &object) < 0 ||
      statx(state->powers.staging, "", AT_EMPTY_PATH, STATX_INO, &staging) < 0)
    return -errno;
  if (object.stx_dev_major == staging.stx_dev_major &&
      object.stx_dev_minor == staging.stx_dev_minor)
    return 0; /* masked already */
  _cleanup_close_ int mask = powers_new_mask(&state->powers, target);
  return mask < 0 ? mask : mounts_attach(mask, target);
}

/* In our own namespace, as masks. What is gone meanwhile, or was changed into a link, could not be
 * protected where it leads to: then nothing is granted. */
static int keep_own(const char *letter_and_path) {
  bool seals = letter_and_path[0] == BROKER_SEALS;
  _cleanup_close_ int target = mounts_open(letter_and_path + 1);
  struct statx object;
  struct statfs mount;
  if (target < 0)
    return target;
  if (statx(target, "", AT_EMPTY_PATH, STATX_TYPE, &object) < 0 || fstatfs(target, &mount) < 0)
    return -errno;
  if (object.stx_attributes & STATX_ATTR_MOUNT_ROOT && (!seals || mount.f_flags & ST_RDONLY))
    return 0; /* by an earlier grant */
  _cleanup_close_ int tree = mounts_clone(target, "", AT_RECURSIVE);
  if (tree < 0)
    return tree;
  int result = mounts_set(tree, seals ? MOUNT_ATTR_RDONLY : 0, AT_RECURSIVE);
  return result < 0 ? result : mounts_attach(tree, target);
}

/* Opens the object in our own namespace, and makes sure that it is the one that was shown. */
static int open_approved(struct state *state, const struct packet_header *header,
                         const char *path) {
  int result = powers_go(&state->powers, IN_OWN);
  if (result < 0)
    return result;
  if (header->flags & BROKER_UNMASK)
    (void)umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW);
  int object = mounts_open(path);
  struct stat status;
  if (object < 0)
    return object;
  if (fstat(object, &status) == 0 && status.st_dev == header->device &&
      status.st_ino == header->inode)
    return object;
  close(object);
  return -ESTALE;
}

/* Names first, then masks; `below` are the strings after the path. */
static int cover_own(struct state *state, const struct packet_header *header, const char *below) {
  int result = 0;
  for (uint32_t i = 0; result == 0 && i < header->kept_count + header->mask_count; i++) {
    result = i < header->kept_count ? keep_own(below) : mask_own(state, below);
    below += strlen(below) + 1;
  }
  return result;
}

static int clone_approved(struct state *state, const struct packet_header *header, const char *path,
                          const char *below) {
  _cleanup_close_ int object = open_approved(state, header, path);
  if (object < 0)
    return object;
  int covered = cover_own(state, header, below);
  if (covered < 0)
    return covered;
  _cleanup_close_ int tree = mounts_clone(object, "", AT_RECURSIVE);
  if (tree < 0)
    return tree;
  uint64_t attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                        (header->flags & BROKER_WRITABLE ? 0 : MOUNT_ATTR_RDONLY);
  int result = mounts_set(tree, attributes, AT_RECURSIVE);
  return result < 0 ? result : steal_fd(&tree);
}

/* ---- the empty root of a session whose gate is seccomp notify ---- */

enum made { MADE_FOLDER, MADE_FILE, MADE_LINK };

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

static int make_in_root(const char *path, enum made made, const char *target) {
  _cleanup_close_ int folder = -1;
  char name[NAME_MAX + 1];
  int result = walk_root(path, true, &folder, name);
  return result < 0 ? result : make_entry(folder, name, made, target);
}

/* Only if nothing else has come there since. */
static int forget(struct state *state, const char *path, const char *target) {
  int result = powers_go(&state->powers, IN_SESSION);
  if (result < 0)
    return result;
  _cleanup_close_ int folder = -1;
  char name[NAME_MAX + 1];
  result = walk_root(path, false, &folder, name);
  if (result < 0)
    return result;
  if (!is_made(folder, name, MADE_LINK, target))
    return -ESTALE;
  return unlinkat(folder, name, 0) < 0 ? -errno : 0;
}

static int repeat(struct state *state, const struct packet_header *header, const char *path,
                  const char *target) {
  int result = powers_go(&state->powers, IN_SESSION);
  if (result < 0)
    return result;
  return make_in_root(path, header->mask_count ? MADE_LINK : MADE_FOLDER, target);
}

/* ---- the root of a session whose gate is FUSE ---- */

/* The kernel clones attached mounts alone. In the session's namespace, so that another broker finds
 * it attached if we die. */
static int attach_gate(struct state *state) {
  int result = state->gate_attached ? 0 : cellar_put(state->gate);
  state->gate_attached |= result == 0;
  return result;
}

/* The name as the host has it, and the gate's part that stands for it. */
struct likeness {
  bool missing;
  enum made made;
  char target[PATH_MAX]; /* a link's */
  int part;              /* -1: none, it is closed */
};

static int look_at_host(struct state *state, const char *path, struct likeness *ret_likeness) {
  struct stat status;
  int result = powers_go(&state->powers, IN_OWN);
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
static int take_part(struct state *state, const char *path, struct likeness *likeness) {
  int result = attach_gate(state);
  if (result < 0)
    return result;
  likeness->part = mounts_clone(state->gate, path + 1, AT_SYMLINK_NOFOLLOW);
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

static int follow(struct state *state, const char *path) {
  struct likeness likeness;
  bool ours = state->gate >= 0 && !strchr(path + 1, '/');
  int result = ours ? look_at_host(state, path, &likeness) : -EINVAL;
  if (result == 0)
    result = powers_go(&state->powers, IN_SESSION);
  if (result == 0 && !likeness.missing && likeness.made != MADE_LINK)
    result = take_part(state, path, &likeness);
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

static int grant(struct state *state, const struct packet_header *header, const char *path,
                 const char *masks) {
  _cleanup_close_ int tree = clone_approved(state, header, path, masks);
  if (tree < 0)
    return tree;
  struct stat status;
  int result = fstat(tree, &status) < 0 ? -errno : powers_go(&state->powers, IN_SESSION);
  if (result == 0 && header->flags & BROKER_MAKE)
    result = make_in_root(path, S_ISDIR(status.st_mode) ? MADE_FOLDER : MADE_FILE, NULL);
  if (result < 0)
    return result;
  _cleanup_close_ int target = mounts_open(path);
  if (target < 0)
    return target;
  if (header->flags & BROKER_ANNOUNCE)
    answer(state, BROKER_READY, -1);
  return mounts_attach(tree, target);
}

/* What cannot be taken away is at least covered. */
static int cover(struct state *state, const char *path) {
  int result = powers_go(&state->powers, IN_OWN);
  if (result == 0)
    result = powers_stage(&state->powers);
  if (result < 0)
    return result;
  _cleanup_close_ int mask = mounts_clone(state->powers.staging, "folder", 0);
  result = mask < 0 ? mask : powers_go(&state->powers, IN_SESSION);
  if (result < 0)
    return result;
  _cleanup_close_ int target = mounts_open(path);
  return target < 0 ? target : mounts_attach(mask, target);
}

/* In the session's namespace: the kernel clones what is attached in ours. */
static int attach_masks(struct state *state) {
  if (state->holders.masks >= 0)
    return 0;
  int result = powers_go(&state->powers, IN_OWN);
  if (result == 0)
    result = powers_stage(&state->powers);
  if (result < 0)
    return result;
  _cleanup_close_ int masks = mounts_clone(state->powers.staging, "", 0);
  result = masks < 0 ? masks : powers_go(&state->powers, IN_SESSION);
  if (result == 0)
    result = cellar_put(masks);
  if (result == 0)
    state->holders.masks = steal_fd(&masks);
  return result;
}

/* It is out of sight. Whoever holds a folder of it is left with its names. */
static int close_held(struct state *state) {
  int result = attach_masks(state);
  if (result == 0)
    result = powers_go(&state->powers, IN_SESSION);
  if (result == 0)
    result = holders_close(&state->holders);
  return result < 0 ? BROKER_HELD : 0;
}

static int take_away(struct state *state, const char *path) {
  int result = powers_go(&state->powers, IN_SESSION);
  if (result == 0)
    result = cellar_take(path);
  if (result > 0)
    return close_held(state);
  return result == 0 || result == -EINVAL || result == -ENOENT ? result : cover(state, path);
}

/* Reopened through a clone that is read-only: a descriptor from the host's own mount could be
 * opened again for writing by way of /proc/self/fd. Only regular files: a folder would be a way to
 * walk the host, and a FIFO would keep us waiting. */
static int open_once(struct state *state, const struct packet_header *header, const char *path) {
  _cleanup_close_ int tree = clone_approved(state, header, path, NULL);
  struct stat status;
  if (tree < 0)
    return tree;
  if (fstat(tree, &status) < 0)
    return -errno;
  if (!S_ISREG(status.st_mode))
    return -EACCES;
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", tree);
  int fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  return fd < 0 ? -errno : fd;
}

static int list_once(struct state *state, const struct packet_header *header, const char *path) {
  _cleanup_close_ int folder = open_approved(state, header, path);
  return folder < 0 ? folder : listing_copy(folder);
}

static void obey(struct state *state, const char *packet) {
  struct packet_header header;
  memcpy(&header, packet, sizeof header);
  const char *path = packet + sizeof header, *masks = path + strlen(path) + 1;
  if (header.kind == BROKER_OPEN || header.kind == BROKER_LIST) {
    _cleanup_close_ int fd = header.kind == BROKER_LIST ? list_once(state, &header, path)
                                                        : open_once(state, &header, path);
    answer(state, fd < 0 ? fd : 0, fd);
    return;
  }
  int result = header.kind == BROKER_GRANT    ? grant(state, &header, path, masks)
               : header.kind == BROKER_REVOKE ? take_away(state, path)
               : header.kind == BROKER_REPEAT ? repeat(state, &header, path, masks)
               : header.kind == BROKER_FORGET ? forget(state, path, masks)
               : header.kind == BROKER_FOLLOW ? follow(state, path)
                                              : -ENOSYS;
  answer(state, result, -1);
}

static void wait_for_work(struct state *state) {
  struct pollfd watched[] = {{.fd = state->channel, .events = POLLIN},
                             {.fd = state->holders.changes, .events = POLLIN}};
  int ready = poll(watched, ARRAY_SIZE(watched), holders_timeout(&state->holders));
  if (ready == 0)
    holders_look(&state->holders);
  else if (ready > 0 && watched[1].revents)
    holders_renew(&state->holders);
}

static _Noreturn void broker_main(int channel, const struct broker_input *input) {
  static char packet[PACKET_LIMIT];
  static struct state state;
  state = (struct state){.channel = channel,
                         .gate = input->gate,
                         .holders = {.powers = &state.powers, .masks = -1, .changes = -1}};
  const int kept[] = {channel, input->user_ns, input->mount_ns, input->gate};
  prctl(PR_SET_NAME, "sandbox-broker");
  umask(0);
  setsid(); /* Ctrl-C is not meant for us: the monitor's end is ours */
  fd_close_others(kept, ARRAY_SIZE(kept));
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int fd = 0; fd < 3; fd++)
    dup2(null, fd);
  if (powers_enter(&state.powers, input->user_ns, input->mount_ns, 0) < 0)
    _exit(1);
  for (;;) {
    wait_for_work(&state);
    ssize_t got = recv(channel, packet, sizeof packet, MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (got < (ssize_t)sizeof(struct packet_header))
      _exit(0); /* the monitor is gone */
    obey(&state, packet);
  }
}

/* ---- the monitor's side ---- */

int broker_start(struct broker *broker, const struct broker_input *input, struct sb_error *error) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return sb_fail_errno(error, "creating the line to the broker");
  pid_t pid = fork();
  if (pid == 0) {
    close(ends[0]);
    broker_main(ends[1], input);
  }
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return sb_fail_errno(error, "starting the broker");
  }
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  *broker = (struct broker){.channel = ends[0], .pid = pid};
  return 0;
}

void broker_end(struct broker *broker) {
  if (broker->channel < 0)
    return;
  close(broker->channel);
  kill(broker->pid, SIGKILL);
  while (waitpid(broker->pid, NULL, 0) < 0 && errno == EINTR)
    ;
  *broker = BROKER_NONE;
}

int broker_send(const struct broker *broker, const struct broker_request *request) {
  static char packet[PACKET_LIMIT];
  const struct strv path = {.items = (char *[]){(char *)request->path}, .count = 1}, none = {0};
  const struct strv *lists[] = {&path, request->kept ? request->kept : &none,
                                request->masks ? request->masks : &none};
  struct packet_header header = {.kind = request->kind,
                                 .flags = request->flags,
                                 .kept_count = (uint32_t)lists[1]->count,
                                 .mask_count = (uint32_t)lists[2]->count,
                                 .device = request->device,
                                 .inode = request->inode};
  size_t at = sizeof header;
  memcpy(packet, &header, sizeof header);
  for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
    STRV_FOREACH (text, lists[i]) {
      size_t length = strlen(*text) + 1;
      if (length > sizeof packet - at)
        return -E2BIG;
      memcpy(packet + at, *text, length);
      at += length;
    }
  }
  return send(broker->channel, packet, at, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

bool broker_receive(const struct broker *broker, int *ret_result, int *ret_fd) {
  int32_t value = 0;
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(broker->channel, fds, &value, sizeof value);
  *ret_fd = got > 0 ? fds[0] : -1;
  *ret_result = got == -EAGAIN ? -EAGAIN : value;
  return got == -EAGAIN || got == sizeof value;
}
