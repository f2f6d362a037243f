/* What FUSE alone cannot do for a call, and a process that holds the caller can; see hand-back.h.
 *
 * What is allowed once and needs the object itself: to speak to a socket, to watch a file. A
 * stand-in makes the call on the caller's descriptor; the caller's own fails in its walk, and is
 * handed the result. Nothing of the object is to be seen in the session.
 *
 * A write that was granted, to a folder right below "/". It holds a lock that mounting needs, so it
 * must be over before; but no look-up comes to us in which its second walk could wait for the
 * mount. So it fails, waits outside of the kernel, and begins anew. So does a write by who stands
 * in the folder, or has it by a descriptor: from there he would never meet the mount, so he is led
 * into it. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/doing.h"
#include "gate/fuse.h"
#include "gate/hand-back.h"

/* Each is a process outside of the session, and of its limits. */
#define STANDING_LIMIT 256

/* Of one thread, before it has to have been led elsewhere for the next. */
#define TRIES_LIMIT 4

struct standing {
  struct standing *next;
  struct fuse_gate *fuse;
  struct stand_in stand_in;
  struct held *held; /* NULL: it is answered, and the result is being handed in */
  char *mounted;     /* begins anew when this is mounted; else NULL */
  bool refused;      /* it will not be mounted */
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
  free(standing->mounted);
  free(standing);
  if (fuse->standing)
    return;
  fuse->gate->watched_fd = fuse->gate->config.trigger;
  close(steal_fd(&fuse->events));
}

/* ---- the calls ---- */

static int find_call(const struct held *held, struct stand_in_call *ret_call) {
  struct doing doing;
  struct target caller = fuse_caller(held->request);
  if (doing_read(&caller, &doing) < 0)
    return -EACCES;
  const struct trap *trap = doing_trap(&doing);
  *ret_call = (struct stand_in_call){.target.thread = caller.thread,
                                     .trap = trap ? trap : doing_trap_of_descriptor(&doing)};
  memcpy(ret_call->arguments, doing.arguments, sizeof doing.arguments);
  stand_in_note_start(ret_call);
  return 0;
}

/* Where it is, or is about to be, mounted. */
static const char *mount_for(const struct held *held) {
  const struct gate *gate = held->fuse->gate;
  const char *path = held->waiting.request.path, *mounted = gate_writable_mount(gate, path);
  if (mounted)
    return mounted;
  return gate->jobs && path_is_under(path, gate->jobs->path) ? gate->jobs->path : path;
}

bool fuse_starts_below(const struct held *held) {
  struct stand_in_call call;
  if (held->waiting.request.want != WANT_WRITE || find_call(held, &call) < 0)
    return false;
  call.mounted = mount_for(held);
  return stand_in_starts_below(&call);
}

bool fuse_must_begin_anew(const struct held *held) {
  const struct node *above = held->node->parent;
  return held->waiting.holds_lock && !fuse_is_listing(held) && above &&
         (!above->parent || fuse_starts_below(held));
}

/* Another thread may have led all of them elsewhere after this one had begun to walk: then it only
 * has to walk again. But there are ways to us that no errand changes (a path by way of a descriptor
 * in /proc), and those must not be walked for ever. */
static bool has_tried_enough(struct fuse_gate *fuse, pid_t thread) {
  size_t slot = (size_t)thread % ARRAY_SIZE(fuse->again);
  if (fuse->again[slot].thread != thread)
    fuse->again[slot].count = 0;
  fuse->again[slot].thread = thread;
  return ++fuse->again[slot].count > TRIES_LIMIT;
}

static int repeat(struct held *held, struct standing *standing) {
  struct stand_in_call call;
  if (find_call(held, &call) < 0)
    return -EACCES;
  standing->mounted = xstrdup(mount_for(held));
  call.mounted = standing->mounted;
  if (held->granted_before && has_tried_enough(held->fuse, call.target.thread))
    call.unmoved_error = EROFS;
  int result = stand_in_repeat(&standing->stand_in, &call);
  if (result == 0 && gate_writable_mount(held->fuse->gate, held->waiting.request.path))
    stand_in_go_on(&standing->stand_in);
  return result;
}

/* Who cannot be held walks again as others do, and may find that it was too early. */
static int error_of(const struct held *held, int result) {
  return fuse_must_begin_anew(held) ? ESTALE : -result;
}

static int replace(struct held *held, struct standing *standing) {
  struct fuse_gate *fuse = held->fuse;
  int object = nodes_fd(fuse->nodes, held->node);
  if (object < 0)
    return object == -ETIMEDOUT ? object : -ENOENT;
  _cleanup_close_ int process = pidfd_open(held->waiting.request.pid, 0);
  if (process < 0)
    return -EACCES;
  return stand_in_start(&standing->stand_in, &held->in_its_place, process, object,
                        STAND_IN_HANDS_BACK);
}

static size_t count_standing(const struct fuse_gate *fuse) {
  size_t count = 0;
  for (const struct standing *standing = fuse->standing; standing; standing = standing->next)
    count++;
  return count;
}

static int start(struct held *held, int (*begin)(struct held *held, struct standing *standing)) {
  struct fuse_gate *fuse = held->fuse;
  if (count_standing(fuse) >= STANDING_LIMIT || need_events(fuse) < 0)
    return -EACCES;
  struct standing *standing = xcalloc(1, sizeof *standing);
  *standing = (struct standing){
      .next = fuse->standing, .fuse = fuse, .stand_in = STAND_IN_NONE, .held = held};
  fuse->standing = held->standing = standing;
  int result = begin(held, standing);
  return result < 0 ? result : add_event(fuse, standing->stand_in.result);
}

void fuse_stand_in(struct held *held) {
  int result = start(held, fuse_stands_in(held) ? replace : repeat);
  if (result < 0) {
    fuse_reply_err(held->request, error_of(held, result));
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
  fuse_reply_err(held->request, result < 0 ? error_of(held, (int)result) : HAND_BACK_ERROR);
  if (result >= 0 && !standing->refused) {
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

/* Whoever waits for it may go on, or has to live with the error. */
void fuse_mounted(struct fuse_gate *fuse, const char *path, bool mounted) {
  for (struct standing *standing = fuse->standing, *next; standing; standing = next) {
    next = standing->next;
    if (!standing->mounted || strcmp(standing->mounted, path) != 0)
      continue;
    standing->refused = !mounted;
    if (mounted)
      stand_in_go_on(&standing->stand_in);
    else if (!standing->held)
      standing_free(standing);
  }
}

void fuse_end_stand_ins(struct fuse_gate *fuse) {
  while (fuse->standing)
    standing_free(fuse->standing);
}
