/* A stock of unused placeholders; see pool.h. Must never carry off something that somebody has put
 * something into: emptiness is checked before a folder is moved and again after. */
#include "session/pool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/path.h"

#define POOL_LIMIT 64 /* as many as two sessions need at once */

static void list_folders(struct pool *pool) {
  int copy = openat(pool->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  _cleanup_stream_ DIR *entries = folder_stream(copy);
  for (struct dirent *entry; entries && (entry = readdir(entries));) {
    bool other = entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN;
    pool->files += entry->d_name[0] == 'f';
    if (entry->d_name[0] != 'd' || other || pool->count >= POOL_LIMIT)
      continue;
    ARRAY_GROW(pool->names, pool->count);
    pool->names[pool->count++] = xstrdup(entry->d_name);
  }
}

struct pool pool_open(const char *state_folder) {
  struct pool pool = {.fd = -1};
  if (!state_folder)
    return pool;
  _cleanup_free_ char *folder = path_join(state_folder, "sandbox/pool");
  if (file_make_folders(folder, 0700) < 0)
    return pool;
  pool.fd = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (pool.fd >= 0)
    list_folders(&pool);
  return pool;
}

void pool_close(struct pool *pool) {
  for (size_t i = 0; i < pool->count; i++)
    free(pool->names[i]);
  free(pool->names);
  if (pool->fd >= 0)
    close(pool->fd);
  *pool = (struct pool){.fd = -1};
}

bool folder_is_empty(int fd) {
  char buffer[1024] __attribute__((aligned(8)));
  if (lseek(fd, 0, SEEK_SET) < 0)
    return false;
  size_t entries = 0;
  for (long got; (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got; entries++)
      at += *(const unsigned short *)(buffer + at + 16); /* d_reclen */
  }
  return entries == 2; /* "." and ".." */
}

/* A file is known by what it holds, so that one of each content is enough. */
static void file_name(const char *content, char ret_name[24]) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char *byte = (const unsigned char *)content; *byte; byte++)
    hash = (hash ^ *byte) * 0x100000001b3;
  snprintf(ret_name, 24, "f%016llx", (unsigned long long)hash);
}

static bool holds(int folder, const char *name, const char *content) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  return file_read_at(folder, name, 64 * 1024, &data, &length) == 0 && length == strlen(content) &&
         memcmp(data, content, length) == 0;
}

static int move(int from, const char *name, int to, const char *new_name) {
  return renameat2(from, name, to, new_name, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

static int take_folder(struct pool *pool, int parent, const char *name) {
  while (pool->taken < pool->count) {
    int result = move(pool->fd, pool->names[pool->taken], parent, name);
    if (result == 0 || result == -ENOENT)
      pool->taken++; /* used, or another session was faster */
    if (result != -ENOENT)
      return result == 0 || result == -EEXIST ? result : -ENOENT;
  }
  return -ENOENT;
}

int pool_take(struct pool *pool, int parent, const char *name, const char *content) {
  if (pool->fd < 0)
    return -ENOENT;
  if (!content)
    return take_folder(pool, parent, name);
  char stocked[24];
  file_name(content, stocked);
  if (!holds(pool->fd, stocked, content))
    return -ENOENT;
  int result = move(pool->fd, stocked, parent, name);
  return result == 0 || result == -EEXIST ? result : -ENOENT;
}

/* Between looking at a name and moving it, another session may have put something else there. */
static bool is_named(int folder, const char *name, int fd) {
  struct stat held, named;
  return fstat(fd, &held) == 0 && fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         held.st_dev == named.st_dev && held.st_ino == named.st_ino;
}

/* What is not ours after all goes back to where it was; if its place is taken, it is kept. */
static void give_back(struct pool *pool, const char *stocked, int parent, const char *name) {
  if (move(pool->fd, stocked, parent, name) == 0)
    return;
  char kept[80];
  snprintf(kept, sizeof kept, "kept-%s", stocked);
  move(pool->fd, stocked, pool->fd, kept);
}

static int give_folder(struct pool *pool, int parent, const char *name, int fd,
                       const char *session_id) {
  char stocked[64];
  if (pool->count - pool->taken + pool->given >= POOL_LIMIT || !folder_is_empty(fd))
    return -1;
  snprintf(stocked, sizeof stocked, "d%s-%zu", session_id, pool->given);
  if (move(parent, name, pool->fd, stocked) < 0)
    return -1;
  pool->given++;
  if (!is_named(pool->fd, stocked, fd) || !folder_is_empty(fd))
    give_back(pool, stocked, parent, name);
  return 0;
}

int pool_give(struct pool *pool, int parent, const char *name, const char *content, int fd,
              const char *session_id) {
  if (pool->fd < 0)
    return -1;
  if (!content)
    return give_folder(pool, parent, name, fd, session_id);
  char stocked[24];
  file_name(content, stocked);
  if (pool->files >= POOL_LIMIT || !holds(parent, name, content))
    return -1;
  if (move(parent, name, pool->fd, stocked) < 0)
    return -1;
  if (!is_named(pool->fd, stocked, fd))
    give_back(pool, stocked, parent, name);
  return 0;
}
