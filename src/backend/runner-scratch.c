/* The files that a tool needs besides its arguments, in a folder of the session's own. What was
 * left by sessions that were killed goes when the next one makes its own. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backend/runner-private.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/path.h"
#include "overlay/remove.h"

static char *temporary_folder(void) {
  const char *named = getenv("TMPDIR");
  char *resolved = NULL;
  return named && named[0] == '/' && file_resolve(named, &resolved) == 0 ? resolved
                                                                         : xstrdup("/tmp");
}

/* Names in /tmp can be taken by others first: then the session has a folder of its own there. */
char *backend_scratch_path(const char *session_id) {
  _cleanup_free_ char *folder = temporary_folder();
  _cleanup_free_ char *parent = xasprintf("%s/sandbox-%u", folder, (unsigned)geteuid());
  struct stat status;
  bool taken = lstat(parent, &status) == 0 &&
               (!S_ISDIR(status.st_mode) || status.st_uid != geteuid() || status.st_mode & 077);
  return taken ? xasprintf("%s-%s", parent, session_id) : path_join(parent, session_id);
}

/* ---- what the dead have left ---- */

struct sweep {
  int parent;
  struct strv dead;
};

/* Nobody holds its lock: runner and guard were killed, both. */
static bool find_dead(void *context, const struct folder_entry *entry) {
  struct sweep *sweep = context;
  _cleanup_close_ int fd = folder_open(sweep->parent, entry->name);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
    strv_add(&sweep->dead, entry->name);
  return true;
}

static void sweep_scratch(int parent) {
  struct sweep sweep = {.parent = parent};
  (void)folder_read(parent, find_dead, &sweep);
  STRV_FOREACH (name, &sweep.dead)
    (void)tree_remove(parent, *name, NULL);
  strv_clear(&sweep.dead);
}

/* ---- making ---- */

static int make_scratch(struct runner *runner, struct sb_error *error) {
  _cleanup_free_ char *parent = path_parent(runner->request->scratch);
  _cleanup_free_ char *shown = escape_string(runner->request->scratch);
  _cleanup_free_ char *temporary = temporary_folder();
  bool shared = strcmp(parent, temporary) == 0;
  int result = shared ? 0 : file_private_folder(parent);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making the folder for '%s'", shown);
  _cleanup_close_ int folder = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  /* Held until ours is locked, or another session's sweep would take it for a dead one. */
  if (folder >= 0 && !shared && flock(folder, LOCK_EX) == 0)
    sweep_scratch(folder);
  if (folder < 0 || mkdirat(folder, path_base(runner->request->scratch), 0700) < 0)
    return sb_fail_errno(error, "making the folder '%s'", shown);
  runner->scratch = xstrdup(runner->request->scratch);
  runner->scratch_lock = folder_open(folder, path_base(runner->scratch));
  if (runner->scratch_lock >= 0)
    (void)flock(runner->scratch_lock, LOCK_SH);
  return 0;
}

static int make_file(const struct wrapped_file *file, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file->path);
  if (file->folder) {
    int made = file_make_folders(file->path, 0700);
    return made < 0 ? sb_fail(error, SB_CODE_SYSTEM, -made, "making the folder '%s'", shown) : 0;
  }
  _cleanup_close_ int fd =
      open(file->path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  int result = fd < 0 ? -errno : file_write_all(fd, file->content, file->size);
  if (result == 0 && file->unreadable && fchmod(fd, 0) < 0)
    result = -errno;
  return result < 0 ? sb_fail(error, SB_CODE_SYSTEM, -result, "writing '%s'", shown) : 0;
}

int runner_make_files(struct runner *runner, struct sb_error *error) {
  for (size_t i = 0; i < runner->wrapped.file_count; i++) {
    const struct wrapped_file *file = &runner->wrapped.files[i];
    if (!file->path)
      continue;
    if ((!runner->scratch && make_scratch(runner, error) < 0) || make_file(file, error) < 0)
      return -1;
  }
  return 0;
}
