/* What is allowed once and needs the object itself: to speak to a socket, to watch a file. A
 * stand-in makes the call on the caller's descriptor; the caller's own fails in its walk, and is
 * handed the result (see hand-back.h). Nothing of the object is to be seen in the session. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "gate/fuse.h"
#include "gate/hand-back.h"

struct standing {
  struct standing *next;
  struct fuse_gate *fuse;
  struct stand_in stand_in;
  struct held *held; /* NULL: it is answered, and the result is being handed in */
};

bool fuse_stands_in(const struct held *held) {
  return held->call == CALL_QUIET && held->waiting.needs_mount &&
         held->in_its_place.kind != STAND_IN_CANNOT;
}

/* ---- what the monitor waits for ---- */

static int add_event(const struct fuse_gate *fuse, int fd) {
  struct epoll_event event = {.events = EPOLLIN};
  return epoll_ctl(fuse->events, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

/* The kernel's questions, and from now on what the stand-ins say. */
static int need_events(struct fuse_gate *fuse) {
  if (fuse->events >= 0)
    return 0;
  fuse->events = epoll_create1(EPOLL_CLOEXEC);
  if (fuse->events < 0)
    return -errno;
  int result = add_event(fuse, fuse->gate->config.trigger);
  if (result == 0)
    fuse->gate->watched_fd = fuse->events;
  else
    close(steal_fd(&fuse->events));
  return result;
}

static void standing_free(struct standing *standing) {
  struct fuse_gate *fuse = standing->fuse;
  struct standing **place = &fuse->standing;
  while (*place != standing)
    place = &(*place)->next;
  *place = standing->next;
  /* Closing alone would not do while a process that we just forked has a copy. */
  if (standing->stand_in.result >= 0)
    epoll_ctl(fuse->events, EPOLL_CTL_DEL, standing->stand_in.result, NULL);
  stand_in_end(&standing->stand_in);
  free(standing);
  if (fuse->standing)
    return;
  fuse->gate->watched_fd = fuse->gate->config.trigger;
  close(steal_fd(&fuse->events));
}

/* ---- the calls ---- */

static int start(struct held *held, struct standing *standing) {
  struct fuse_gate *fuse = held->fuse;
  int object = nodes_fd(fuse->nodes, held->node);
  if (object < 0)
    return -ENOENT;
  _cleanup_close_ int process = pidfd_open(held->waiting.request.pid, 0);
  if (process < 0)
    return -EACCES;
  int result = stand_in_start(&standing->stand_in, &held->in_its_place, process, object,
                              STAND_IN_HANDS_BACK);
  return result < 0 ? result : add_event(fuse, standing->stand_in.result);
}

void fuse_stand_in(struct held *held) {
  struct fuse_gate *fuse = held->fuse;
  struct standing *standing;
  int result = need_events(fuse);
  if (result < 0) {
    fuse_reply_err(held->request, EACCES);
    held_free(held);
    return;
  }
  standing = xcalloc(1, sizeof *standing);
  *standing = (struct standing){fuse->standing, fuse, STAND_IN_NONE, held};
  fuse->standing = held->standing = standing;
  result = start(held, standing);
  if (result < 0) {
    fuse_reply_err(held->request, -result);
    held_free(held);
    return;
  }
  (void)held_mind_signals(held);
}

void fuse_forget_stand_in(struct held *held) {
  if (held->standing)
    standing_free(held->standing);
  held->standing = NULL;
}

/* A failure is told as it is; a success cannot be told by us. */
static void answer(struct standing *standing) {
  struct held *held = standing->held;
  long result = stand_in_result(&standing->stand_in);
  fuse_req_interrupt_func(held->request, NULL, NULL);
  fuse_reply_err(held->request, result < 0 ? (int)-result : HAND_BACK_ERROR);
  if (result >= 0) {
    standing->held = NULL;
    held->standing = NULL;
  }
  held_free(held);
}

void fuse_serve_stand_ins(struct fuse_gate *fuse) {
  for (struct standing *standing = fuse->standing, *next; standing; standing = next) {
    struct pollfd said = {.fd = standing->stand_in.result, .events = POLLIN};
    next = standing->next;
    if (poll(&said, 1, 0) <= 0)
      continue;
    if (standing->held)
      answer(standing);
    else
      standing_free(standing);
  }
}

void fuse_end_stand_ins(struct fuse_gate *fuse) {
  while (fuse->standing)
    standing_free(fuse->standing);
}
