/* How many links a thread has followed through the gate in the call that it is in. The kernel
 * allows 40 in all, and counts on when we send a call to walk its path again. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINKS_KEPT  32 /* threads */
#define LINKS_AGAIN 13 /* with so many it can walk three times */

struct links {
  struct {
    pid_t thread;
    unsigned count;
    uint64_t at_ns;
  } items[LINKS_KEPT];
  size_t next;
};

void links_add(struct links *links, pid_t thread);

/* The walk has come to its end. */
unsigned links_take(struct links *links, pid_t thread);
