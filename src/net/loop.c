/* The relay's event loop; see loop.h. */
#include "net/loop.h"

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define ROUND_SIZE 256

uint64_t loop_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int loop_open(struct loop *loop) {
  *loop = (struct loop){.epoll = epoll_create1(EPOLL_CLOEXEC)};
  return loop->epoll < 0 ? -errno : 0;
}

static int control(struct loop *loop, int what, struct watch *watch, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = watch};
  return epoll_ctl(loop->epoll, what, watch->fd, &event) < 0 ? -errno : 0;
}

int loop_add(struct loop *loop, struct watch *watch) {
  return control(loop, EPOLL_CTL_ADD, watch, EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

int loop_add_level(struct loop *loop, struct watch *watch, uint32_t events) {
  return control(loop, EPOLL_CTL_ADD, watch, events);
}

int loop_change_level(struct loop *loop, struct watch *watch, uint32_t events) {
  return control(loop, EPOLL_CTL_MOD, watch, events);
}

void loop_forget(struct loop *loop, struct watch *watch) {
  if (watch->fd >= 0)
    (void)control(loop, EPOLL_CTL_DEL, watch, 0);
  watch->fd = -1;
}

void loop_close(struct loop *loop, struct watch *watch) {
  (void)loop; /* nobody else has the file: closing it takes it out of the set */
  if (watch->fd >= 0)
    close(watch->fd);
  watch->fd = -1;
}

void loop_round(struct loop *loop, int timeout_ms) {
  struct epoll_event events[ROUND_SIZE];
  int count = epoll_wait(loop->epoll, events, ROUND_SIZE, timeout_ms);
  for (int i = 0; i < count; i++) {
    struct watch *watch = events[i].data.ptr;
    if (watch->fd >= 0) /* not closed by an earlier event of this round */
      watch->ready(watch, events[i].events);
  }
}
