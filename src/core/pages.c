/* Shared pages; see pages.h. Nothing depends on success: an old kernel leaves them as they are. */
#include "core/pages.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"

enum { PAGE_LIMIT = 1024, MAPS_MAX = 64 << 10 };

/* Only pages that are there: the rest of a heap or a buffer need never exist. */
static void own_range(char *from, size_t pages, size_t page_size) {
  unsigned char present[PAGE_LIMIT];
  if (pages > PAGE_LIMIT)
    pages = PAGE_LIMIT;
  if (mincore(from, pages * page_size, present) < 0)
    return;
  for (size_t first = 0, end; first < pages; first = end) {
    for (end = first + 1; end < pages && (present[end] & 1) == (present[first] & 1); end++)
      ;
    if (present[first] & 1)
      (void)madvise(from + first * page_size, (end - first) * page_size, MADV_POPULATE_WRITE);
  }
}

void pages_make_own(void) {
  _cleanup_free_ char *maps = NULL;
  size_t length, page_size = (size_t)sysconf(_SC_PAGESIZE);
  if (file_read_at(AT_FDCWD, "/proc/self/maps", MAPS_MAX, &maps, &length) < 0)
    return;
  for (char *line = maps; line; line = strchr(line, '\n')) {
    uintptr_t from, to;
    line += *line == '\n';
    char access[5] = "";
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s", &from, &to, access) == 3 &&
        strcmp(access, "rw-p") == 0)
      own_range((char *)from, (to - from) / page_size, page_size);
  }
}
