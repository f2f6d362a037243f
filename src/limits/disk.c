/* The disk watch; see disk.h. It walks folders that a hostile process changes at the same time:
 * no symbolic link is followed and nothing but metadata is read. */
#include "limits/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/folder.h"
#include "limits/limits.h"

/* More folders waiting than this, or a path longer than any call accepts, cannot be watched. */
enum { WAITING_MAX = 1 << 18, URGENT_FACTOR = 10 };
#define UNWATCHABLE_BYTES (UINT64_C(1) << 60)

struct totals {
  uint64_t bytes, files;
  bool unwatchable;
};

struct root {
  char *path;
  int fd;
  uint64_t free_at_pass; /* bytes free when the last pass began */
};

struct waiting {
  size_t root;
  char *path; /* below the root; "." for itself */
};

struct disk_watch {
  struct root *roots;
  size_t root_count;
  struct waiting *waiting; /* a stack */
  size_t waiting_count;
  uint64_t start_ns;
  bool has_baseline;
  struct totals baseline, running, last;
};

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t free_bytes(int fd) {
  struct statvfs status;
  return fstatvfs(fd, &status) < 0 ? 0 : (uint64_t)status.f_bavail * status.f_frsize;
}

static void wait_for(struct disk_watch *watch, size_t root, char *path) {
  if (watch->waiting_count == WAITING_MAX) {
    watch->running.unwatchable = true;
    free(path);
    return;
  }
  ARRAY_GROW(watch->waiting, watch->waiting_count);
  watch->waiting[watch->waiting_count++] = (struct waiting){.root = root, .path = path};
}

static void begin_pass(struct disk_watch *watch) {
  watch->running = (struct totals){0};
  for (size_t i = 0; i < watch->root_count; i++) {
    watch->roots[i].free_at_pass = free_bytes(watch->roots[i].fd);
    wait_for(watch, i, xstrdup("."));
  }
}

struct disk_watch *disk_watch_new(const struct strv *folders, uint64_t start_ns) {
  struct disk_watch *watch = xcalloc(1, sizeof *watch);
  watch->start_ns = start_ns;
  STRV_FOREACH (folder, folders) {
    int fd = open(*folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
      continue; /* a single file: RLIMIT_FSIZE bounds it */
    ARRAY_GROW(watch->roots, watch->root_count);
    watch->roots[watch->root_count++] = (struct root){.path = xstrdup(*folder), .fd = fd};
  }
  begin_pass(watch);
  return watch;
}

void disk_watch_free(struct disk_watch *watch) {
  if (!watch)
    return;
  for (size_t i = 0; i < watch->root_count; i++) {
    close(watch->roots[i].fd);
    free(watch->roots[i].path);
  }
  for (size_t i = 0; i < watch->waiting_count; i++)
    free(watch->waiting[i].path);
  free(watch->roots);
  free(watch->waiting);
  free(watch);
}

/* ---- walking ---- */

static int open_folder(int root, const char *path) {
  struct open_how how = {
      .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK,
      .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
  if (fd >= 0 || errno != ENOSYS)
    return fd;
  return openat(root, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* A name shares the space of its file with the file's other names, which are writable places of
 * the session, too, if the session made them. */
static void count(struct disk_watch *watch, const struct statx *status) {
  uint64_t links = S_ISDIR(status->stx_mode) || status->stx_nlink == 0 ? 1 : status->stx_nlink;
  uint64_t bytes = status->stx_blocks * 512 / links;
  watch->running.bytes += bytes;
  watch->running.files++;
  uint64_t born = (uint64_t)status->stx_btime.tv_sec * 1000000000 + status->stx_btime.tv_nsec;
  bool is_new = status->stx_mask & STATX_BTIME && born >= watch->start_ns;
  if (!watch->has_baseline && !is_new) {
    watch->baseline.bytes += bytes;
    watch->baseline.files++;
  }
}

static void visit(struct disk_watch *watch, const struct waiting *at, int folder,
                  const char *name) {
  struct statx status;
  if (statx(folder, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT,
            STATX_BLOCKS | STATX_NLINK | STATX_TYPE | STATX_BTIME, &status) < 0)
    return; /* gone meanwhile */
  count(watch, &status);
  if (S_ISDIR(status.stx_mode))
    wait_for(watch, at->root,
             strcmp(at->path, ".") == 0 ? xstrdup(name) : xasprintf("%s/%s", at->path, name));
}

static void walk(struct disk_watch *watch, const struct waiting *at) {
  int fd = open_folder(watch->roots[at->root].fd, at->path);
  if (fd < 0 && errno == ENAMETOOLONG)
    watch->running.unwatchable = true;
  _cleanup_stream_ DIR *folder = folder_stream(fd);
  if (!folder)
    return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      visit(watch, at, fd, entry->d_name);
  }
}

static void end_pass(struct disk_watch *watch) {
  if (!watch->has_baseline)
    watch->baseline.unwatchable = watch->running.unwatchable;
  watch->has_baseline = true;
  watch->last = watch->running;
  begin_pass(watch);
}

/* Has free space fallen by more than a quarter since the pass began, or by a gigabyte? Somebody
 * is filling it, perhaps us. */
static bool is_urgent(const struct disk_watch *watch) {
  for (size_t i = 0; i < watch->root_count; i++) {
    const struct root *root = &watch->roots[i];
    uint64_t now = free_bytes(root->fd);
    uint64_t fallen = now < root->free_at_pass ? root->free_at_pass - now : 0;
    if (fallen > root->free_at_pass / 4 || fallen > UINT64_C(1) << 30)
      return true;
  }
  return false;
}

void disk_watch_step(struct disk_watch *watch, uint64_t budget_ns) {
  uint64_t end =
      now_ns(CLOCK_MONOTONIC) + (is_urgent(watch) ? budget_ns * URGENT_FACTOR : budget_ns);
  while (watch->waiting_count > 0) {
    struct waiting at = watch->waiting[--watch->waiting_count];
    walk(watch, &at);
    free(at.path);
    if (now_ns(CLOCK_MONOTONIC) >= end)
      break;
  }
  if (watch->waiting_count == 0)
    end_pass(watch);
}

static uint64_t growth(uint64_t now, uint64_t before) {
  return now > before ? now - before : 0;
}

void disk_watch_growth(const struct disk_watch *watch, uint64_t *ret_bytes, uint64_t *ret_files) {
  *ret_bytes = *ret_files = USAGE_UNKNOWN;
  if (!watch->has_baseline)
    return;
  *ret_bytes = growth(watch->last.bytes, watch->baseline.bytes);
  *ret_files = growth(watch->last.files, watch->baseline.files);
  /* A tree made so that nobody can look into it is no tree that anybody needs. */
  if (watch->last.unwatchable && !watch->baseline.unwatchable)
    *ret_bytes = UNWATCHABLE_BYTES;
}
