/* Reads "#!" and PT_INTERP; see interpreter.h. The file is the workload's, or at least it may have
 * written it: every number in it is checked, and all it can gain is a question about a path. */
#include "gate/interpreter.h"

#include <elf.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"

#define HEADER_SIZE   4096
#define SCRIPT_SIZE   256 /* the kernel looks at no more of a script */
#define SEGMENT_LIMIT 64
#define LINUX_BLANK   " \t"

/* A FIFO would keep us waiting, and a device do something. */
static int open_to_read(int fd) {
  struct stat status;
  char name[64];
  if (fstat(fd, &status) < 0 || !S_ISREG(status.st_mode))
    return -1;
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  return open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

static bool script_interpreter(const char *header, size_t size, char ret_path[PATH_MAX]) {
  char line[SCRIPT_SIZE + 1];
  size_t length = size < SCRIPT_SIZE ? size : SCRIPT_SIZE;
  memcpy(line, header, length);
  line[length] = '\0';
  line[strcspn(line, "\n")] = '\0';
  char *from = line + 2 + strspn(line + 2, LINUX_BLANK);
  from[strcspn(from, LINUX_BLANK)] = '\0';
  snprintf(ret_path, PATH_MAX, "%s", from);
  return from[0] != '\0';
}

struct segment {
  uint32_t type;
  uint64_t offset, size;
};

static bool read_segment(const char *header, size_t size, bool wide, uint64_t at,
                         struct segment *ret_segment) {
  if (wide) {
    Elf64_Phdr segment;
    if (at > size || size - at < sizeof segment)
      return false;
    memcpy(&segment, header + at, sizeof segment);
    *ret_segment = (struct segment){segment.p_type, segment.p_offset, segment.p_filesz};
  } else {
    Elf32_Phdr segment;
    if (at > size || size - at < sizeof segment)
      return false;
    memcpy(&segment, header + at, sizeof segment);
    *ret_segment = (struct segment){segment.p_type, segment.p_offset, segment.p_filesz};
  }
  return true;
}

static bool read_name(int fd, const struct segment *segment, char ret_path[PATH_MAX]) {
  if (segment->size < 2 || segment->size > PATH_MAX || segment->offset > INT64_MAX)
    return false;
  ssize_t got = pread(fd, ret_path, segment->size, (off_t)segment->offset);
  return got == (ssize_t)segment->size && ret_path[got - 1] == '\0' && ret_path[0] != '\0';
}

static bool elf_interpreter(int fd, const char *header, size_t size, char ret_path[PATH_MAX]) {
  bool wide = header[EI_CLASS] == ELFCLASS64;
  Elf64_Ehdr wide_header;
  Elf32_Ehdr narrow_header;
  if (size < sizeof wide_header)
    return false;
  memcpy(&wide_header, header, sizeof wide_header);
  memcpy(&narrow_header, header, sizeof narrow_header);
  uint64_t table = wide ? wide_header.e_phoff : narrow_header.e_phoff;
  unsigned count = wide ? wide_header.e_phnum : narrow_header.e_phnum;
  size_t step = wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr);
  for (unsigned i = 0; i < count && i < SEGMENT_LIMIT && table < HEADER_SIZE; i++) {
    struct segment segment;
    if (!read_segment(header, size, wide, table + i * step, &segment))
      return false;
    if (segment.type == PT_INTERP)
      return read_name(fd, &segment, ret_path);
  }
  return false;
}

bool interpreter_of(int fd, char ret_path[PATH_MAX]) {
  char header[HEADER_SIZE];
  _cleanup_close_ int file = open_to_read(fd);
  ssize_t got = file < 0 ? -1 : pread(file, header, sizeof header, 0);
  if (got > 2 && memcmp(header, "#!", 2) == 0)
    return script_interpreter(header, (size_t)got, ret_path);
  if (got > SELFMAG && memcmp(header, ELFMAG, SELFMAG) == 0)
    return elf_interpreter(file, header, (size_t)got, ret_path);
  return false;
}
