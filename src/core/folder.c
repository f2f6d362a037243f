/* Reading one folder; see folder.h. Reads with getdents64 into one large buffer: on big trees the
 * calls are what costs. */
#include "core/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the kernel writes for getdents64(2). */
struct entry64 {
  uint64_t inode;
  int64_t offset;
  unsigned short length;
  unsigned char type;
  char name[];
};

static bool is_dots(const char *name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

int folder_read(int fd, folder_visit *visit, void *context) {
  static _Thread_local char buffer[64 * 1024] __attribute__((aligned(8)));
  long got;
  while ((got = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0) {
    for (long at = 0; at < got;) {
      const struct entry64 *entry = (const void *)(buffer + at);
      struct folder_entry shown = {.name = entry->name, .type = entry->type, .inode = entry->inode};
      if (!is_dots(entry->name) && !visit(context, &shown))
        return 0;
      at += entry->length;
    }
  }
  return got < 0 ? -errno : 0;
}

int folder_open(int parent, const char *name) {
  int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

DIR *folder_stream(int fd) {
  DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
  int errnum = errno;
  if (!folder && fd >= 0)
    close(fd);
  errno = errnum;
  return folder;
}
