/* Copies of resolv.conf and hosts; see name-files.h. */
#include "net/name-files.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include "core/cleanup.h"

#define SIZE_LIMIT ((size_t)64 << 20) /* lists of hosts that nobody shall reach are long */

const char *const name_file_paths[NAME_FILES] = {
    [NAME_FILE_RESOLVER] = "/etc/resolv.conf",
    [NAME_FILE_HOSTS] = "/etc/hosts",
};

static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

bool name_stamp_renew(struct name_stamp *stamp) {
  bool changed = false;
  for (int i = 0; i < NAME_FILES; i++) {
    struct stat current;
    if (stat(name_file_paths[i], &current) < 0 || is_same(&current, &stamp->files[i]))
      continue;
    stamp->files[i] = current;
    changed = true;
  }
  return changed;
}

static int copy(const char *path) {
  _cleanup_close_ int from = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  _cleanup_close_ int to = memfd_create("names", MFD_CLOEXEC);
  if (to < 0)
    return -errno;
  ssize_t got = from < 0 ? 0 : 1; /* without a file it is an empty one */
  for (size_t left = SIZE_LIMIT; got > 0 && left > 0; left -= (size_t)got) {
    got = sendfile(to, from, NULL, left);
    if (got < 0)
      return -errno;
  }
  return steal_fd(&to);
}

static void close_copies(struct name_files *files) {
  for (int i = 0; i < NAME_FILES; i++) {
    if (files->copies[i] >= 0)
      close(files->copies[i]);
    files->copies[i] = -1;
  }
}

int name_files_renew(struct name_files *files) {
  if (!name_stamp_renew(&files->stamp) && files->copies[0] >= 0)
    return 0;
  close_copies(files);
  for (int i = 0; i < NAME_FILES; i++) {
    files->copies[i] = copy(name_file_paths[i]);
    if (files->copies[i] >= 0)
      continue;
    int result = files->copies[i];
    name_files_clear(files);
    return result;
  }
  return 0;
}

void name_files_clear(struct name_files *files) {
  close_copies(files);
  *files = NAME_FILES_NONE;
}
