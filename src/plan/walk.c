/* One walk for any number of globs; see walk.h. Reads with getdents64 into one large buffer: on
 * big trees the calls are what costs. */
#include "plan/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/text.h"

/* What the kernel writes for getdents64(2). */
struct entry64 {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
};

struct walk {
  walk_visit *visit;
  void *context;
  size_t max_depth;
  struct text path;   /* of the entry being looked at, relative */
  struct text queued; /* names of folders still to enter, per level, NUL-separated */
};

static bool is_dots(const char *name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static void visit_entry(struct walk *walk, const struct entry64 *entry, bool may_descend) {
  size_t length = walk->path.length;
  text_append(&walk->path, entry->name);
  struct walk_entry shown = {.path = walk->path.data,
                             .name = walk->path.data + length,
                             .type = entry->type,
                             .inode = (ino_t)entry->inode};
  bool wanted = walk->visit(walk->context, &shown);
  /* Some file systems do not tell the type; opening with O_DIRECTORY will. */
  if (wanted && may_descend && (entry->type == DT_DIR || entry->type == DT_UNKNOWN))
    text_append_bytes(&walk->queued, entry->name, strlen(entry->name) + 1);
  walk->path.length = length;
}

static void read_folder(struct walk *walk, int fd, bool may_descend) {
  static _Thread_local char buffer[64 * 1024] __attribute__((aligned(8)));
  for (long got; (got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0;) {
    for (long at = 0; at < got;) {
      const struct entry64 *entry = (const void *)(buffer + at);
      if (!is_dots(entry->name))
        visit_entry(walk, entry, may_descend);
      at += entry->length;
    }
  }
}

static void walk_level(struct walk *walk, int fd, size_t depth) {
  size_t first = walk->queued.length, prefix = walk->path.length;
  read_folder(walk, fd, walk->max_depth == 0 || depth < walk->max_depth);
  size_t last = walk->queued.length;
  for (size_t at = first; at < last; at += strlen(walk->queued.data + at) + 1) {
    const char *name = walk->queued.data + at;
    _cleanup_close_ int child =
        openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (child < 0)
      continue;
    text_append(&walk->path, name);
    text_append_char(&walk->path, '/');
    walk_level(walk, child, depth + 1);
    walk->path.length = prefix;
  }
  walk->queued.length = first;
}

void walk_folder(const char *folder, size_t max_depth, walk_visit *visit, void *context) {
  struct walk walk = {.visit = visit, .context = context, .max_depth = max_depth};
  _cleanup_close_ int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0)
    walk_level(&walk, fd, 1);
  text_clear(&walk.path);
  text_clear(&walk.queued);
}
