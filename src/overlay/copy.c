/* Copying with holes; see copy.h. A sparse file of a terabyte must stay as small as it is. */
#include "overlay/copy.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/file.h"

static int copy_range(int source, int target, off_t from, off_t to) {
  static _Thread_local char buffer[128 * 1024];
  if (lseek(source, from, SEEK_SET) < 0 || lseek(target, from, SEEK_SET) < 0)
    return -errno;
  while (from < to) {
    off_t left = to - from;
    ssize_t got = read(source, buffer, left < (off_t)sizeof buffer ? (size_t)left : sizeof buffer);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      return got < 0 ? -errno : 0;
    int result = file_write_all(target, buffer, (size_t)got);
    if (result < 0)
      return result;
    from += got;
  }
  return 0;
}

int copy_contents(int source, int target) {
  struct stat status;
  if (fstat(source, &status) < 0 || ftruncate(target, status.st_size) < 0)
    return -errno;
  for (off_t at = 0; at < status.st_size;) {
    off_t data = lseek(source, at, SEEK_DATA);
    if (data < 0)
      return errno == ENXIO ? 0 : -errno; /* only a hole is left */
    off_t hole = lseek(source, data, SEEK_HOLE);
    int result = hole < 0 ? -errno : copy_range(source, target, data, hole);
    if (result < 0)
      return result;
    at = hole;
  }
  return 0;
}
