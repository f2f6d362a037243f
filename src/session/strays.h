/* Datagrams that nobody in the session's network takes. In mode filtered that is how the kernel
 * refuses those to other machines, and it counts them. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct strays {
  int tables[2]; /* the kernel's counters of IPv4 and of IPv6, or -1 */
};
#define STRAYS_NONE ((struct strays){.tables = {-1, -1}})

/* Of the network that the process is in, also when it has ended since. */
struct strays strays_open(pid_t pid);
void strays_close(struct strays *strays);

/* How many there were; -1: not known. */
int64_t strays_count(const struct strays *strays);
