/* The folders behind a session's overlays; see overlays.h. */
#include "session/overlays.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

char *overlays_folder(const struct host_context *host, const char *session_id) {
  if (!host->state_home)
    return xasprintf("%s/overlays-%s", host->runtime_folder, session_id);
  return xasprintf("%s/sandbox/overlays/%s", host->state_home, session_id);
}

static int make_pair(const struct operation *operation, struct sb_error *error) {
  static const char *const names[] = {"upper", "work"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = path_join(operation->upper, names[i]);
    int result = file_make_folders(path, 0700);
    if (result < 0) {
      _cleanup_free_ char *shown = escape_string(path);
      sb_fail(error, SB_CODE_SYSTEM, -result, "making the overlay's folder '%s'", shown);
      return sb_hint(error, "make $XDG_STATE_HOME a writable folder");
    }
  }
  /* The root of the overlay looks like its upper folder: same mode as the original. */
  struct stat status;
  _cleanup_free_ char *upper = path_join(operation->upper, "upper");
  if (stat(operation->path, &status) == 0)
    chmod(upper, status.st_mode & 0777);
  return 0;
}

int overlays_create(const struct plan *plan, struct sb_error *error) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind == OPERATION_OVERLAY && make_pair(&plan->operations[i], error) < 0)
      return -1;
  }
  return 0;
}

/* The workload chose the names and modes below; links are removed, never followed. */
static void remove_tree(int parent, const char *name) {
  if (unlinkat(parent, name, 0) == 0 || (errno != EISDIR && errno != EPERM))
    return;
  if (fchmodat(parent, name, 0700, 0) < 0)
    return;
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      remove_tree(dirfd(folder), entry->d_name);
  }
  if (folder)
    closedir(folder);
  unlinkat(parent, name, AT_REMOVEDIR);
}

void overlays_remove(const char *folder) {
  remove_tree(AT_FDCWD, folder);
}
