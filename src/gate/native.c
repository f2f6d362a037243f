/* The short way; see native.h. Nothing is protected here: who is let go on by mistake meets the
 * empty root. A mistake would be that nobody is asked, so whatever is not sure is no. */
#include "gate/native.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/path.h"
#include "gate/automount.h"
#include "plan/distant.h"

/* Linux 6.8; younger than the headers of most distributions. */
#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000U
#endif

/* ---- by one look ----
 *
 * We look from the caller's folder on, but as ourselves: links that begin with "/", "/proc/self"
 * and
 * ".." above the root lead elsewhere than they lead the caller. There is no mount of the session
 * where they lead us, so that the mount that was come to tells. No mount is learnt where a look at
 * the host could make it mount something. */

enum { FOLLOWED = 0, NOT_FOLLOWED = AT_SYMLINK_NOFOLLOW };

static int look(int from, const char *path, int links, struct statx *ret_status) {
  return statx(from, path, links | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
               STATX_TYPE | STATX_MNT_ID_UNIQUE, ret_status) < 0
             ? -errno
             : 0;
}

static bool is_known(const struct native_mounts *mounts, const struct statx *status) {
  if (!(status->stx_mask & STATX_MNT_ID_UNIQUE))
    return false;
  for (size_t i = 0; i < ARRAY_SIZE(mounts->known) && i < mounts->count; i++) {
    if (mounts->known[i] == status->stx_mnt_id)
      return true;
  }
  return false;
}

/* The last component alone is missing, in a folder that is there. Shortens the path. */
static bool has_known_folder(const struct native_mounts *mounts, int from, char *path) {
  struct statx status;
  char *name = path + (path_base(path) - path);
  if (name == path || !name[0])
    return false;
  *name = '\0';
  return look(from, path, FOLLOWED, &status) == 0 && S_ISDIR(status.stx_mode) &&
         is_known(mounts, &status);
}

static bool is_known_by_look(const struct native_mounts *mounts, int from, char *path,
                             bool follow) {
  struct statx status;
  int result = look(from, path, NOT_FOLLOWED, &status);
  if (result == 0 && follow && S_ISLNK(status.stx_mode))
    result = look(from, path, FOLLOWED, &status);
  else if (result == -ENOENT)
    return has_known_folder(mounts, from, path);
  return result == 0 && is_known(mounts, &status);
}

/* ---- by walking, in the caller's root ---- */

/* A missing name in a mounted folder: the last component alone is asked for, and it is no link. */
static bool is_missing(const struct walker *walker, int base, const char *path, unsigned resolve) {
  char parent[PATH_MAX];
  const char *name = path_base(path);
  struct stat status;
  if (!name[0] || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
    return false;
  size_t length = (size_t)(name - path);
  memcpy(parent, path, length);
  parent[length] = '\0';
  _cleanup_close_ int folder = walk_open_with(base, length ? parent : ".", O_DIRECTORY, resolve);
  return folder >= 0 && !walk_is_empty(walker, folder) &&
         fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

/* Only what is there by its name in the session: a folder of the host's may have been handed in. */
static void learn(const struct walker *walker, struct native_mounts *mounts, int fd) {
  char name[64], path[PATH_MAX];
  struct statx status, there;
  if (automount_exists() || look(fd, "", AT_EMPTY_PATH, &status) < 0 ||
      !(status.stx_mask & STATX_MNT_ID_UNIQUE) || is_known(mounts, &status))
    return;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(name, path, sizeof path);
  if (length < 0 || length >= PATH_MAX)
    return;
  path[length] = '\0';
  _cleanup_close_ int same = walk_open(walker->root, path);
  if (same >= 0 && look(same, "", AT_EMPTY_PATH, &there) == 0 &&
      there.stx_mnt_id == status.stx_mnt_id)
    mounts->known[mounts->count++ % ARRAY_SIZE(mounts->known)] = status.stx_mnt_id;
}

static bool is_native_by_walk(const struct walker *walker, struct native_mounts *mounts, int base,
                              const char *path, bool follow) {
  bool absolute = path[0] == '/';
  unsigned resolve = RESOLVE_NO_MAGICLINKS | (absolute ? RESOLVE_IN_ROOT : RESOLVE_BENEATH);
  int from = absolute ? walker->root : base;
  _cleanup_close_ int fd = walk_open_with(from, path, follow ? 0 : O_NOFOLLOW, resolve);
  if (fd < 0)
    return fd == -ENOENT && is_missing(walker, from, path, resolve);
  if (walk_is_empty(walker, fd))
    return false;
  learn(walker, mounts, fd);
  return true;
}

/* ---- both ---- */

bool native_call(const struct walker *walker, struct native_mounts *mounts, const struct call *call,
                 const char *path) {
  _cleanup_close_ int base = -1;
  char name[PATH_MAX];
  int from = walker->root;
  if (distant_exists()) /* whose server may not answer: it is walked with care */
    return false;
  bool fits = path[0] == '/' ? snprintf(name, sizeof name, "%s", path + strspn(path, "/")) > 0
                             : target_name(&call->target, call_base(call, 0), path, name);
  if (mounts->count > 0 && fits && is_known_by_look(mounts, from, name, call->follow))
    return true;
  if (path[0] != '/') {
    base = target_open_folder(&call->target, call_base(call, 0));
    if (base < 0)
      return false;
  }
  return is_native_by_walk(walker, mounts, base, path, call->follow);
}
