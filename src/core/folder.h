/* Reading one open folder quickly: names, types and inode numbers, no stat per entry. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

struct folder_entry {
  const char *name;
  unsigned char type; /* DT_*; DT_UNKNOWN on file systems that do not tell */
  uint64_t inode;
};

/* Called for each entry but "." and ".."; false ends the reading. */
typedef bool folder_visit(void *context, const struct folder_entry *entry);

/* Reads from where the descriptor stands to the end. The visitor must not read another folder.
 * Returns 0, or a negative errno. */
int folder_read(int fd, folder_visit *visit, void *context);

/* Opens a folder below another one for reading, never through a symbolic link and never waiting
 * for a FIFO. Returns the descriptor or a negative errno. */
int folder_open(int parent, const char *name);

/* For who opens other folders while he reads one: readdir(3). Takes the descriptor, also if that
 * fails; NULL then, and for a negative descriptor. */
DIR *folder_stream(int fd);

static inline void cleanup_close_stream(DIR **folder) {
  if (*folder)
    closedir(*folder);
}
#define _cleanup_stream_ __attribute__((cleanup(cleanup_close_stream)))
