/* The broker; see broker.h. Its own side runs in a forked copy of the monitor: no allocation, no
 * stdio, one request at a time, all state on one stack. */
#include "engine/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include <unistd.h>

#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/cellar.h"
#include "engine/empty-root.h"
#include "engine/holders.h"
#include "engine/listing.h"
#include "engine/mounts.h"

/* One packet: this, the path, the kept names, then the masks, each string with its NUL. */
struct packet_header {
  uint32_t kind, flags, kept_count, mask_count;
  uint64_t device, inode;
};
#define PACKET_LIMIT (128u << 10)
#define COVER_LAYERS 4 /* a mask and a protection, each once */

/* ---- the broker's own side ---- */

struct state {
  int channel;
  struct root_gate gate;
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
  if (letter_and_path[0] == BROKER_DROPS)
    return 0;
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

/* Every grant covers what has to be covered in it: what is too much here is put back by the next.
 * The host's own mounts cannot be taken away by us. */
static int uncover_own(struct state *state, const char *path) {
  int result = powers_go(&state->powers, IN_OWN);
  for (int layer = 0; result == 0 && layer < COVER_LAYERS; layer++) {
    if (umount2(path, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
      return 0;
  }
  return result;
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

/* ---- the session's root ---- */

static int forget(struct state *state, const char *path, const char *target) {
  int result = powers_go(&state->powers, IN_SESSION);
  return result < 0 ? result : empty_root_forget(path, target);
}

static int repeat(struct state *state, const struct packet_header *header, const char *path,
                  const char *target) {
  int result = powers_go(&state->powers, IN_SESSION);
  if (result < 0)
    return result;
  return empty_root_make(path, header->mask_count ? MADE_LINK : MADE_FOLDER, target);
}

/* Where the session's own mounts are: no mask and no folder, of which somebody may be inside. */
static bool is_granted_file(int folder, const char *name) {
  _cleanup_close_ int file = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  struct statx object;
  struct statfs mount;
  return file >= 0 && statx(file, "", AT_EMPTY_PATH, STATX_TYPE, &object) == 0 &&
         fstatfs(file, &mount) == 0 && object.stx_attributes & STATX_ATTR_MOUNT_ROOT &&
         S_ISREG(object.stx_mode) && !(mount.f_flags & ST_RDONLY);
}

static void drop(int covered, const char *below) {
  const char *name = path_base(below);
  char folder[PATH_MAX];
  snprintf(folder, sizeof folder, "./%.*s", (int)(name - below), below);
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                         .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
  _cleanup_close_ int fd = (int)syscall(SYS_openat2, covered, folder, &how, sizeof how);
  if (fd >= 0 && is_granted_file(fd, name) && fchdir(fd) == 0)
    (void)umount2(name, MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* What is covered now can be walked to by nobody, but nobody can remove or replace a file either
 * that something is mounted on, be it where it is. The new mount shows the same files. */
static void drop_covered(const struct packet_header *header, const char *path, const char *kept,
                         int covered) {
  for (uint32_t i = 0; i < header->kept_count; i++) {
    const char *below = kept[0] == BROKER_DROPS ? path_below(kept + 1, path) : NULL;
    if (below && below[0])
      drop(covered, below);
    kept += strlen(kept) + 1;
  }
  (void)!chdir("/");
}

static int grant(struct state *state, const struct packet_header *header, const char *path,
                 const char *masks) {
  _cleanup_close_ int tree = clone_approved(state, header, path, masks);
  if (tree < 0)
    return tree;
  struct stat status;
  int result = fstat(tree, &status) < 0 ? -errno : powers_go(&state->powers, IN_SESSION);
  if (result == 0 && header->flags & BROKER_MAKE)
    result = empty_root_make(path, S_ISDIR(status.st_mode) ? MADE_FOLDER : MADE_FILE, NULL);
  if (result < 0)
    return result;
  _cleanup_close_ int target = mounts_open(path);
  if (target < 0)
    return target;
  if (header->flags & BROKER_ANNOUNCE)
    answer(state, BROKER_READY, -1);
  result = mounts_attach(tree, target);
  if (result == 0)
    drop_covered(header, path, masks, target);
  return result;
}

/* A clone of what masks are made of; "": of all of it. Leaves us in the session's namespace. */
static int clone_staged(struct state *state, const char *name) {
  int result = powers_go(&state->powers, IN_OWN);
  if (result == 0)
    result = powers_stage(&state->powers);
  if (result < 0)
    return result;
  _cleanup_close_ int tree = mounts_clone(state->powers.staging, name, 0);
  result = tree < 0 ? tree : powers_go(&state->powers, IN_SESSION);
  return result < 0 ? result : steal_fd(&tree);
}

/* What cannot be taken away is at least covered. */
static int cover(struct state *state, const char *path) {
  _cleanup_close_ int mask = clone_staged(state, "folder");
  if (mask < 0)
    return mask;
  _cleanup_close_ int target = mounts_open(path);
  return target < 0 ? target : mounts_attach(mask, target);
}

/* In the session's namespace: the kernel clones what is attached in ours. */
static int attach_masks(struct state *state) {
  if (state->holders.masks >= 0)
    return 0;
  _cleanup_close_ int masks = clone_staged(state, "");
  int result = masks < 0 ? masks : cellar_put(masks);
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
  int result = header.kind == BROKER_GRANT     ? grant(state, &header, path, masks)
               : header.kind == BROKER_REVOKE  ? take_away(state, path)
               : header.kind == BROKER_REPEAT  ? repeat(state, &header, path, masks)
               : header.kind == BROKER_LOOK    ? close_held(state)
               : header.kind == BROKER_FORGET  ? forget(state, path, masks)
               : header.kind == BROKER_UNCOVER ? uncover_own(state, path)
               : header.kind == BROKER_FOLLOW
                   ? empty_root_follow(&state->powers, &state->gate, path)
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

/* Somebody will wait for the first grant: its code and the kernel's are fetched before, by one of
 * nothing that is attached nowhere. */
static void rehearse(struct state *state) {
  _cleanup_close_ int object = mounts_open("/");
  _cleanup_close_ int tree = object < 0 ? -1 : mounts_clone(object, "", 0);
  if (tree >= 0 && mounts_set(tree, MOUNT_ATTR_RDONLY, 0) == 0 &&
      powers_go(&state->powers, IN_SESSION) == 0)
    (void)powers_go(&state->powers, IN_OWN);
}

static _Noreturn void broker_main(int channel, const struct broker_input *input) {
  static char packet[PACKET_LIMIT];
  static struct state state;
  state = (struct state){.channel = channel,
                         .gate = {.fd = input->gate},
                         .holders = {.powers = &state.powers, .masks = -1, .changes = -1}};
  const int kept[] = {channel, input->user_ns, input->mount_ns, input->gate};
  prctl(PR_SET_NAME, "sandbox-broker");
  umask(0);
  setsid(); /* Ctrl-C is not meant for us: the monitor's end is ours */
  child_keep_only(kept, ARRAY_SIZE(kept));
  if (powers_enter(&state.powers, input->user_ns, input->mount_ns, 0) < 0)
    _exit(1);
  rehearse(&state);
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
  int line;
  pid_t pid = child_start("the broker", &line, error);
  if (pid == 0)
    broker_main(line, input);
  if (pid < 0)
    return -1;
  fcntl(line, F_SETFL, O_NONBLOCK);
  *broker = (struct broker){.channel = line, .pid = pid};
  return 0;
}

void broker_end(struct broker *broker) {
  if (broker->channel < 0)
    return;
  close(broker->channel);
  kill(broker->pid, SIGKILL);
  (void)child_wait_for(broker->pid, CHILD_PATIENCE_MS);
  *broker = BROKER_NONE;
}

static size_t size_of(const struct strv *list) {
  size_t size = 0;
  STRV_FOREACH (text, list)
    size += strlen(*text) + 1;
  return size;
}

bool broker_can_take(const struct broker_request *request) {
  const struct strv none = {0};
  return sizeof(struct packet_header) + strlen(request->path) + 1 +
             size_of(request->kept ? request->kept : &none) +
             size_of(request->masks ? request->masks : &none) <=
         PACKET_LIMIT;
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
  if (!broker_can_take(request))
    return -E2BIG;
  memcpy(packet, &header, sizeof header);
  for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
    STRV_FOREACH (text, lists[i]) {
      size_t length = strlen(*text) + 1;
      memcpy(packet + at, *text, length);
      at += length;
    }
  }
  return send(broker->channel, packet, at, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int broker_receive(const struct broker *broker, int *ret_result, int *ret_fd) {
  int32_t value = 0;
  int fds[FD_PASS_LIMIT];
  ssize_t got = fd_receive(broker->channel, fds, &value, sizeof value);
  *ret_fd = got > 0 ? fds[0] : -1;
  *ret_result = value;
  return got == sizeof value ? 1 : got == -EAGAIN ? 0 : -1;
}
