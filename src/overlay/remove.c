/* Removing a hostile tree; see remove.h. Folders that lie too deep for our descriptors are moved
 * up to the top, where another round finds them. */
#include "overlay/remove.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/folder.h"
#include "core/strv.h"

enum { REMOVE_DEPTH = 200, REMOVE_ROUNDS = 100000 };

struct removal {
  int top;
  const char *last;
  unsigned moved;
  bool again; /* something was moved up */
};

static bool list_name(void *context, const struct folder_entry *entry) {
  strv_add(context, entry->name);
  return true;
}

static int open_anyway(int parent, const char *name) {
  int fd = folder_open(parent, name);
  if (fd != -EACCES || fchmodat(parent, name, 0700, 0) < 0)
    return fd;
  return folder_open(parent, name);
}

static void move_up(struct removal *removal, int parent, const char *name) {
  char moved[32];
  int result;
  (void)!fchmodat(parent, name, 0700, 0); /* to move a folder is to write its ".." */
  do {
    snprintf(moved, sizeof moved, "moved.%u", removal->moved++);
    result = renameat2(parent, name, removal->top, moved, RENAME_NOREPLACE);
  } while (result < 0 && errno == EEXIST);
  removal->again |= result == 0;
}

static void remove_below(struct removal *removal, int fd, size_t depth) {
  _cleanup_strv_ struct strv names = {0};
  (void)!fchmod(fd, 0700);
  (void)folder_read(fd, list_name, &names);
  STRV_FOREACH (name, &names) {
    if (depth == 0 && removal->last && strcmp(*name, removal->last) == 0)
      continue;
    if (unlinkat(fd, *name, 0) == 0 || (errno != EISDIR && errno != EPERM))
      continue;
    if (depth == REMOVE_DEPTH) {
      move_up(removal, fd, *name);
      continue;
    }
    _cleanup_close_ int child = open_anyway(fd, *name);
    if (child >= 0)
      remove_below(removal, child, depth + 1);
    unlinkat(fd, *name, AT_REMOVEDIR);
  }
}

int tree_remove(int parent, const char *name, const char *last) {
  _cleanup_close_ int top = open_anyway(parent, name);
  if (top < 0)
    return top == -ENOENT ? 0 : top;
  struct removal removal = {.top = top, .last = last, .again = true};
  for (size_t round = 0; removal.again && round < REMOVE_ROUNDS; round++) {
    removal.again = false;
    (void)lseek(top, 0, SEEK_SET);
    remove_below(&removal, top, 0);
  }
  if (last)
    unlinkat(top, last, 0);
  return unlinkat(parent, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}
