/* "Once" is one use of an object by one process: programs look at a file, then open it, and nobody
 * wants to be asked about both. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#define ONCE_COUNT 64 /* as many as may wait for one answer */

struct once {
  pid_t process; /* as we see it; 0: nothing here */
  int pidfd;     /* tells that it ended: its number may be another's then */
  dev_t device;
  ino_t inode;
  struct timespec changed;
  uint64_t until_ns;
  bool used[3];      /* by enum once_use */
  unsigned again[3]; /* how many of them did not come about */
};

struct once_list {
  struct once items[ONCE_COUNT];
  size_t next;
};

/* Looking may be repeated; opening and executing each happens once. */
enum once_use { ONCE_LOOK, ONCE_OPEN, ONCE_EXECUTE };

/* Is this part of a use that was allowed a moment ago? */
bool once_may_use(struct once_list *list, pid_t process, const struct stat *object,
                  enum once_use use);

/* The process still waits for its call to be answered. */
void once_remember(struct once_list *list, pid_t process, const struct stat *object,
                   enum once_use use);

/* The use did not come about: may it be made again? */
bool once_give_back(struct once_list *list, pid_t process, const struct stat *object,
                    enum once_use use);

void once_clear(struct once_list *list);
