/* A session without a network: has its command tried to reach one? Programs say "temporary failure
 * in name resolution", some of them after minutes, and nobody thinks of the sandbox. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct monitor;

struct offline {
  int counters[2]; /* of the session's network: IPv4, IPv6; they keep it alive */
  bool opened;
};
#define OFFLINE_NONE ((struct offline){.counters = {-1, -1}})

/* In the monitor's loop. Nothing is spent on commands that are over at once. */
void offline_step(struct monitor *monitor, uint64_t now);

/* Did it try? Lets go of the network. */
bool offline_end(struct monitor *monitor);
