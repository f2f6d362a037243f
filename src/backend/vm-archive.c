/* cpio's "newc" format, as the kernel unpacks it for its first file system. Pure. */
#include <string.h>

#include "backend/vm.h"

static void pad(struct text *archive) {
  while (archive->length % 4)
    text_append_char(archive, '\0');
}

void archive_add(struct text *archive, const char *name, unsigned mode, const void *data,
                 size_t size) {
  /* Inode, mode, owner, group, links, time, size, device twice, length of the name, checksum. No
   * two entries are the same object, so an inode number of 0 does for all; files are root's. */
  text_appendf(archive, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 0u, mode, 0u,
               0u, 1u, 0u, (unsigned)size, 0u, 0u, 0u, 0u, (unsigned)strlen(name) + 1, 0u);
  text_append_bytes(archive, name, strlen(name) + 1);
  pad(archive);
  text_append_bytes(archive, data, size);
  pad(archive);
}

void archive_finish(struct text *archive) {
  archive_add(archive, "TRAILER!!!", 0, "", 0);
  while (archive->length % 512)
    text_append_char(archive, '\0');
}
