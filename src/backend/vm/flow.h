/* Bytes on their way from one descriptor to another: never waits, loses nothing, counts. */
#pragma once

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct flow {
  int from, to;
  size_t chunk; /* at most so much is written at once; 0: any */
  bool ended;   /* nothing more will come from `from` */
  bool broken;  /* nobody takes what goes to `to`; bytes are counted and dropped */
  uint64_t taken;
  size_t start, end;
  char buffer[65536];
};

/* What to wait for. A descriptor of -1 is ignored by poll. */
void flow_watch(const struct flow *flow, struct pollfd watched[2]);

/* After poll. */
void flow_move(struct flow *flow, const struct pollfd watched[2]);

/* Everything that came has been passed on. */
static inline bool flow_is_empty(const struct flow *flow) {
  return flow->start == flow->end;
}
static inline bool flow_is_done(const struct flow *flow) {
  return flow->ended && flow_is_empty(flow);
}
