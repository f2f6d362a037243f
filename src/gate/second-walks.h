/* Calls that were told to walk their path again, and have not come back yet. The kernel does that
 * once for a call: one that comes for the second time has to be answered, whatever others do to the
 * same object meanwhile. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>
#include <sys/types.h>

#define SECOND_WALKS 256 /* as many calls may wait */

struct second_walks {
  struct {
    pid_t thread; /* 0: nobody */
    dev_t device;
    ino_t inode;
  } items[SECOND_WALKS];
  size_t next;
};

void second_walks_add(struct second_walks *walks, pid_t thread, const struct stat *object);

/* Is this one? Then it has come back. */
bool second_walks_take(struct second_walks *walks, pid_t thread, const struct stat *object);

/* Is anybody on his way to it? */
bool second_walks_lead_to(const struct second_walks *walks, const struct stat *object);
