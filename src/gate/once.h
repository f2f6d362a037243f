/* "Once" is one use of an object by one process: programs look at a file, then open it, and nobody
 * wants to be asked about both. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#define ONCE_COUNT 16

struct once {
  pid_t process; /* as we see it; 0: nothing here */
  int pidfd;     /* tells that it ended: its number may be another's then */
  dev_t device;
  ino_t inode;
  uint64_t until_ns;
  bool opened;
};

struct once_list {
  struct once items[ONCE_COUNT];
  size_t next;
};

/* Is this part of a use that was allowed a moment ago? Opening is what ends it. */
bool once_use(struct once_list *list, pid_t process, const struct stat *object, bool opens);

/* The process still waits for its call to be answered. */
void once_remember(struct once_list *list, pid_t process, const struct stat *object, bool opens);

void once_clear(struct once_list *list);
