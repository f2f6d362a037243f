/* A call by who stands in a folder, or has it by a descriptor, from before it was covered by a
 * mount, or a write from before that could be written to. The mount is not met from there, so he is
 * led into it, and the call begins anew; see stand-in.h. He is held by another process meanwhile,
 * which outlives our answer to the call. */
#include <errno.h>
#include <linux/audit.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include "core/alloc.h"
#include "gate/hand-back.h"
#include "gate/notify.h"

#define MOVING_LIMIT 256

struct moving {
  struct moving *next;
  struct stand_in stand_in;
};

/* A 32-bit program can be sent on no errand; what it may see is told to it instead. */
static bool is_covered(const struct held *held) {
  return held->covered && held->call.trap->architecture & __AUDIT_ARCH_64BIT;
}

static const char *missed_mount(const struct held *held) {
  const struct gate *gate = held->notify->gate;
  if (is_covered(held))
    return gate_granted_mount(gate, held->folder);
  return call_may_write(&held->call) ? gate_writable_mount(gate, held->found.path) : NULL;
}

static bool find_call(const struct held *held, struct stand_in_call *ret_call) {
  *ret_call = (struct stand_in_call){.target = held->call.target, .trap = held->call.trap};
  if (held->interpreters > 0 || held->found.path[0] != '/')
    return false;
  ret_call->mounted = missed_mount(held);
  if (!ret_call->mounted)
    return false;
  ret_call->unmoved_error = call_may_write(&held->call) ? EROFS : EACCES;
  memcpy(ret_call->arguments, held->call.arguments, sizeof ret_call->arguments);
  stand_in_note_start(ret_call);
  return stand_in_misses_mount(ret_call);
}

/* Each is a process and a descriptor of ours, as long as the caller makes it last. */
static bool must_queue(struct held *held) {
  struct notify *notify = held->notify;
  held->queues = notify->moving_count >= MOVING_LIMIT;
  if (held->queues)
    notify->gate->signalled = true; /* see trigger_look */
  return held->queues;
}

static void let_next_begin(struct notify *notify) {
  struct held *held = notify->held;
  while (held && !held->queues)
    held = held->next;
  if (!held)
    return;
  held->queues = false;
  notify_proceed(held);
}

bool notify_begin_elsewhere(struct held *held) {
  struct notify *notify = held->notify;
  struct stand_in_call call;
  struct epoll_event event = {.events = EPOLLIN,
                              .data.u64 = (uint64_t)(uintptr_t)held | NOTIFY_STAND_IN};
  if (!find_call(held, &call) || !notify_still_waits(held))
    return false;
  if (must_queue(held))
    return true;
  if (stand_in_repeat(&held->stand_in, &call) < 0)
    return false;
  held->moves = true;
  held->waiting.request.pid = target_process(&held->call.target);
  if (epoll_ctl(notify->events, EPOLL_CTL_ADD, held->stand_in.result, &event) < 0)
    notify_fail(held, EROFS);
  else
    notify->gate->signalled = true; /* see trigger_look */
  return true;
}

/* A debugger has it. */
static void stay(struct held *held) {
  if (!is_covered(held) || call_may_write(&held->call)) {
    notify_fail(held, EROFS);
    return;
  }
  epoll_ctl(held->notify->events, EPOLL_CTL_DEL, held->stand_in.result, NULL);
  stand_in_end(&held->stand_in);
  held->moves = false;
  notify_serve_covered(held);
}

void notify_lead_elsewhere(struct held *held) {
  struct notify *notify = held->notify;
  if (stand_in_result(&held->stand_in) < 0) {
    stay(held);
    return;
  }
  struct moving *moving = xcalloc(1, sizeof *moving);
  struct epoll_event event = {.events = EPOLLIN,
                              .data.u64 = (uint64_t)(uintptr_t)moving | NOTIFY_MOVING};
  *moving = (struct moving){.next = notify->moving, .stand_in = held->stand_in};
  held->stand_in = STAND_IN_NONE;
  notify->moving = moving;
  notify->moving_count++;
  (void)epoll_ctl(notify->events, EPOLL_CTL_MOD, moving->stand_in.result, &event);
  stand_in_go_on(&moving->stand_in);
  notify_fail(held, HAND_BACK_ERROR);
}

void notify_has_moved(struct notify *notify, struct moving *moving) {
  struct moving **place = &notify->moving;
  while (*place != moving)
    place = &(*place)->next;
  *place = moving->next;
  notify->moving_count--;
  epoll_ctl(notify->events, EPOLL_CTL_DEL, moving->stand_in.result, NULL);
  stand_in_end(&moving->stand_in);
  free(moving);
  let_next_begin(notify);
}

void notify_end_moves(struct notify *notify) {
  while (notify->moving)
    notify_has_moved(notify, notify->moving);
}
