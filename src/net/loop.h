/* The relay's event loop: epoll, edge-triggered, one thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct watch {
  int fd; /* -1: not watched; late events are dropped */
  void (*ready)(struct watch *watch, uint32_t events);
};

struct loop {
  int epoll;
  bool over;
};

int loop_open(struct loop *loop);

/* Watches for reading, urgent data, writing and hanging up, each told once until it has been used
 * up. Returns 0 or a negative errno. */
int loop_add(struct loop *loop, struct watch *watch);

/* The same for certain events, told as long as they last. */
int loop_add_level(struct loop *loop, struct watch *watch, uint32_t events);
int loop_change_level(struct loop *loop, struct watch *watch, uint32_t events);

/* Forgets the watch and closes its descriptor. The memory must live until the round is over. */
void loop_close(struct loop *loop, struct watch *watch);
void loop_forget(struct loop *loop, struct watch *watch);

/* Waits once and calls who is ready. */
void loop_round(struct loop *loop, int timeout_ms);

uint64_t loop_now_ms(void);
