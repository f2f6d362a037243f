/* Closes folders to who holds them; see holders.h. */
#include "engine/holders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/inotify.h"
#include "engine/cellar.h"

#define MASK_LIMIT  20000 /* the kernel has 100,000 mounts for a session */
#define PASS_LIMIT  50    /* a holder may open what is not covered yet, but that becomes less */
#define PASS_ENOUGH 5     /* in which nothing new was found */

#define DEPTH_LIMIT 4096
#define INIT        "1" /* ours: nobody may look into it, and it holds nothing */

#define OF_NAMES (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE)

struct closing {
  struct holders *holders;
  bool found; /* something new, in this pass */
  bool blind; /* there was a process that could not be looked at */
  int result;
};

/* ---- names ---- */

/* One for each of the folders that are read inside each other. */
struct names {
  int fd;
  ssize_t got, at;
  _Alignas(struct dirent64) char buffer[4096];
};

static int names_open(struct names *names, int folder, const char *name) {
  names->got = names->at = 0;
  names->fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
  return names->fd < 0 ? -errno : 0;
}

static void names_close(struct names *names) {
  if (names->fd >= 0)
    close(names->fd);
}
#define _cleanup_names_ __attribute__((cleanup(names_close)))

/* NULL at the end. */
static const char *names_next(struct names *names) {
  if (names->at >= names->got) {
    names->at = 0;
    names->got = getdents64(names->fd, names->buffer, sizeof names->buffer);
    if (names->got <= 0)
      return NULL;
  }
  const struct dirent64 *entry = (const struct dirent64 *)(names->buffer + names->at);
  names->at += entry->d_reclen;
  bool dots = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
  return dots ? names_next(names) : entry->d_name;
}

/* ---- covering ---- */

static int look(int folder, const char *name, struct statx *ret_status) {
  unsigned flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC;
  unsigned wanted = STATX_TYPE | STATX_INO | STATX_MNT_ID;
  if (statx(folder, name, (int)flags, wanted, ret_status) < 0)
    return -errno;
  return ret_status->stx_mask & STATX_MNT_ID ? 0 : -ENOTSUP;
}

static dev_t device_of(const struct statx *status) {
  return makedev(status->stx_dev_major, status->stx_dev_minor);
}

static bool is_mask(const struct holders *holders, const struct statx *status) {
  return device_of(status) == holders->masks_device;
}

static int cover(const struct holders *holders, int folder, const char *name) {
  struct statx status;
  int result = look(folder, name, &status);
  if (result < 0)
    return result == -ENOENT ? 0 : result; /* gone meanwhile */
  /* Links are not followed there any more. */
  if (S_ISLNK(status.stx_mode) || (name[0] && is_mask(holders, &status)))
    return 0;
  const char *kind = S_ISDIR(status.stx_mode) ? "folder" : "file";
  _cleanup_close_ int mask = mounts_clone(holders->masks, kind, 0);
  if (mask < 0)
    return mask;
  unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (name[0] ? 0 : MOVE_MOUNT_T_EMPTY_PATH);
  if (move_mount(mask, "", folder, name, flags) == 0)
    return 0;
  return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
}

static int cover_names(const struct holders *holders, int folder) {
  _cleanup_names_ struct names names;
  int count = 0, result = names_open(&names, folder, ".");
  if (result < 0)
    return result;
  for (const char *name; (name = names_next(&names));) {
    result = ++count > MASK_LIMIT ? -E2BIG : cover(holders, folder, name);
    if (result < 0)
      return result;
  }
  return names.got < 0 ? -EIO : 0;
}

/* ".." crosses mounts as well. Whatever has a cover has covers above it; above the top is the
 * cellar. */
static int cover_above(const struct holders *holders, int folder) {
  _cleanup_close_ int at = fcntl(folder, F_DUPFD_CLOEXEC, 3);
  for (int depth = 0; depth < DEPTH_LIMIT; depth++) {
    struct statx status;
    int above = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (above < 0)
      return -errno;
    close(at);
    at = above;
    int result = look(at, "", &status);
    if (result < 0 || is_mask(holders, &status) || device_of(&status) == holders->cellar_device)
      return result;
    result = cover(holders, at, "");
    if (result < 0)
      return result;
  }
  return -ELOOP;
}

/* ---- folders that are held ---- */

static bool is_known(const struct holders *holders, const struct statx *status) {
  for (size_t i = 0; i < holders->count; i++) {
    const struct held_folder *folder = &holders->folders[i];
    if (folder->mount == status->stx_mnt_id && folder->inode == status->stx_ino)
      return true;
  }
  return false;
}

/* By a name that only our own namespace has. */
static int watch(struct holders *holders, int folder) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
  int result = powers_go(holders->powers, IN_OWN);
  if (result < 0)
    return result;
  if (holders->changes < 0)
    holders->changes = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
  int descriptor = inotify_add_watch(holders->changes, name, OF_NAMES | IN_ONLYDIR);
  int failed = descriptor < 0 ? -errno : 0;
  result = powers_go(holders->powers, IN_SESSION);
  return result < 0 ? result : failed < 0 ? failed : descriptor;
}

/* Watched first, so that nothing is missed. Takes the descriptor over, if there is room. */
static int remember(struct holders *holders, int *folder, const struct statx *status) {
  if (holders->count == HOLDERS_LIMIT)
    return -E2BIG;
  int descriptor = watch(holders, *folder);
  holders->folders[holders->count++] = (struct held_folder){
      .fd = *folder, .watch = descriptor, .mount = status->stx_mnt_id, .inode = status->stx_ino};
  *folder = -1;
  return descriptor < 0 ? descriptor : 0;
}

static void close_folder(struct closing *closing, int *folder) {
  struct holders *holders = closing->holders;
  struct statx status;
  int fd = *folder;
  if (look(fd, "", &status) < 0 || !S_ISDIR(status.stx_mode) || is_mask(holders, &status) ||
      is_known(holders, &status))
    return;
  closing->found = true;
  int watched = remember(holders, folder, &status);
  int covered = cover_names(holders, fd), above = cover_above(holders, fd);
  int result = watched < 0 ? watched : covered < 0 ? covered : above;
  if (result < 0)
    closing->result = result;
}

static void on_event(void *context, const struct inotify_event *event, const char *name) {
  struct holders *holders = context;
  bool lost = event->mask & IN_Q_OVERFLOW;
  for (size_t i = 0; i < holders->count; i++) {
    const struct held_folder *folder = &holders->folders[i];
    if (lost)
      (void)cover_names(holders, folder->fd);
    else if (folder->watch == event->wd && event->len > 0)
      (void)cover(holders, folder->fd, name);
  }
}

void holders_renew(struct holders *holders) {
  static _Alignas(struct inotify_event) char buffer[16 << 10];
  if (powers_go(holders->powers, IN_SESSION) < 0)
    return;
  inotify_read(holders->changes, buffer, sizeof buffer, on_event, holders);
}

/* ---- finding ---- */

static bool is_refusal(int result) {
  return result == -EACCES || result == -EPERM;
}

/* By the name that the kernel has for it: nothing is opened that lies elsewhere. */
static void try_link(struct closing *closing, int folder, const char *name) {
  char text[PATH_MAX];
  ssize_t got = readlinkat(folder, name, text, sizeof text - 1);
  text[got < 0 ? 0 : got] = '\0';
  closing->blind |= got < 0 && is_refusal(-errno);
  if (!cellar_has(text))
    return;
  _cleanup_close_ int held = openat(folder, name, O_PATH | O_CLOEXEC);
  if (held >= 0)
    close_folder(closing, &held);
}

static void look_at_thread(struct closing *closing, int threads, const char *number) {
  char name[NAME_MAX + 8];
  _cleanup_names_ struct names descriptors;
  snprintf(name, sizeof name, "%s/cwd", number);
  try_link(closing, threads, name);
  snprintf(name, sizeof name, "%s/fd", number);
  int result = names_open(&descriptors, threads, name);
  closing->blind |= is_refusal(result);
  if (result < 0)
    return;
  for (const char *descriptor; (descriptor = names_next(&descriptors));)
    try_link(closing, descriptors.fd, descriptor);
}

static void look_at_process(struct closing *closing, int processes, const char *number) {
  char name[NAME_MAX + 8];
  _cleanup_names_ struct names threads;
  snprintf(name, sizeof name, "%s/task", number);
  if (names_open(&threads, processes, name) < 0)
    return;
  for (const char *thread; (thread = names_next(&threads));)
    look_at_thread(closing, threads.fd, thread);
}

static int look_at_all(struct closing *closing) {
  _cleanup_names_ struct names processes;
  int result = names_open(&processes, AT_FDCWD, "/proc");
  closing->found = closing->blind = false;
  for (const char *name; result == 0 && (name = names_next(&processes));) {
    if (name[0] >= '1' && name[0] <= '9' && strcmp(name, INIT) != 0)
      look_at_process(closing, processes.fd, name);
  }
  /* In a container the outer /proc may have stayed, and shows others' processes. We are in none
   * that is the session's own. */
  if (access("/proc/self", F_OK) == 0)
    closing->blind = false;
  return result;
}

/* In the session's namespace. */
static int prepare(struct holders *holders) {
  struct statx masks, cellar;
  int result = look(holders->masks, "", &masks);
  if (result == 0)
    result = look(AT_FDCWD, CELLAR_PLACE, &cellar);
  if (result < 0)
    return result;
  holders->masks_device = device_of(&masks);
  holders->cellar_device = device_of(&cellar);
  holders->looks = 0;
  holders->looks_again = true;
  return 0;
}

int holders_close(struct holders *holders) {
  struct closing closing = {.holders = holders};
  int result = prepare(holders);
  for (int pass = 0, clean = 0; result == 0 && pass < PASS_LIMIT; pass++) {
    result = look_at_all(&closing);
    if (result < 0 || closing.result < 0)
      return result < 0 ? result : closing.result;
    clean = closing.found ? 0 : clean + 1;
    if (clean == PASS_ENOUGH)
      return closing.blind ? -EACCES : 0;
  }
  return result < 0 ? result : -EBUSY;
}

static const int pauses[] = {10, 100, 1000, 5000};

int holders_timeout(const struct holders *holders) {
  return holders->looks_again ? pauses[holders->looks] : -1;
}

void holders_look(struct holders *holders) {
  struct closing closing = {.holders = holders};
  if (holders->looks < ARRAY_SIZE(pauses) - 1)
    holders->looks++;
  if (powers_go(holders->powers, IN_SESSION) == 0)
    (void)look_at_all(&closing);
}
