/* The seccomp-notify trigger, for machines without a usable /dev/fuse. The workload's root is an
 * empty tmpfs; what is allowed is mounted in it, so the kernel itself refuses everything else. The
 * filter makes the calls that take a path wait here. We look where the path leads; if that is
 * something that only the host has, the decision is asked for, the broker mounts it, and the call
 * goes on.
 *
 * "Goes on" (CONTINUE) means that the kernel reads the path again, and a second thread may have
 * changed it meanwhile. It does not matter: it then meets the same mounts. Nothing here protects
 * anything; it only finds out what to ask for. What is allowed for one call alone is
 * in notify-once.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "engine/cellar.h"
#include "gate/notify.h"

/* Linux 6.6; younger than the headers of most distributions. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define SYNC_WAKE_UP 1UL /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, an enum in newer headers */

#define TURN_LIMIT 64            /* calls served before the monitor looks at its other business */
#define TURN_NS    (10ull << 20) /* nor does a turn last longer: paths can be made long */
#define HELD_LIMIT 256           /* each holds two descriptors of ours */

/* ---- answers ---- */

static void respond_with(struct notify *notify, const struct seccomp_notif_resp *response) {
  memset(notify->response, 0, notify->response_size);
  *notify->response = *response;
  (void)ioctl(notify->listener, SECCOMP_IOCTL_NOTIF_SEND, notify->response); /* or it is gone */
}

static void respond(struct notify *notify, uint64_t id, int errnum, unsigned flags) {
  const struct seccomp_notif_resp response = {.id = id, .error = -errnum, .flags = flags};
  respond_with(notify, &response);
}

/* A read-only mount does not keep anybody from a socket, so no connect(2) goes on by itself. */
static bool connects_elsewhere(const struct notify *notify, const struct call *call) {
  const struct gate_services *services = &notify->gate->config.services;
  struct connect_call made = {.id = call->id, .thread = call->target.thread};
  memcpy(made.arguments, call->arguments, sizeof made.arguments);
  return call_connects(call) && services->connect(services->context, notify->listener, &made);
}

static void let_go_on(struct notify *notify, const struct call *call) {
  if (!connects_elsewhere(notify, call))
    respond(notify, call->id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

/* Was what we read of the process really its own? If it died, its number may be another's. */
static bool still_waits(const struct notify *notify, uint64_t id) {
  return ioctl(notify->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

bool notify_still_waits(const struct held *held) {
  return still_waits(held->notify, held->call.id);
}

void notify_fail(struct held *held, int errnum) {
  respond(held->notify, held->call.id, errnum, 0);
  notify_forget(held);
}

void notify_return(struct held *held, long value) {
  const struct seccomp_notif_resp response = {.id = held->call.id, .val = value};
  respond_with(held->notify, &response);
  notify_forget(held);
}

void notify_go_on(struct held *held) {
  let_go_on(held->notify, &held->call);
  notify_forget(held);
}

/* ---- a call arrives ---- */

/* Could it be asked about although it is about something mounted? */
static bool may_ask_to_write(const struct notify *notify, const struct call *call) {
  const struct gate *gate = notify->gate;
  return gate->config.plan->ask_writes && gate->granted.count > 0 &&
         (call_may_write(call) || call_tests_writing(call));
}

/* What nearly every call is: about something that is mounted, or that it has open. */
static bool is_native(struct notify *notify, const struct call *call, const char *path) {
  if (!path[0])
    return !call_is_of_descriptor(call);
  return !may_ask_to_write(notify, call) && call->trap->kind != TRAP_EXECUTE &&
         call_path_count(call) == 1 && !(call->resolve & RESOLVE_IN_ROOT) &&
         native_call(&notify->walker, &notify->mounts, call, path);
}

/* Of our own processes only what they announced is known; they use nothing that is not mounted. */
static bool read_announced(const struct notify *notify, const struct call *call,
                           char ret_path[PATH_MAX]) {
  const struct announced_path *announced = notify->gate->config.announced;
  if (!announced || announced->address == 0 ||
      announced->address != call->arguments[call->trap->at[0].path])
    return false;
  memcpy(ret_path, announced->path, sizeof announced->path);
  ret_path[PATH_MAX - 1] = '\0';
  return true;
}

/* Who holds a folder that was taken back does not go on from there. That is no protection: another
 * thread may change what the descriptor is before the kernel looks. */
static bool starts_in_taken(const struct notify *notify, const struct call *call,
                            const char *first) {
  char path[PATH_MAX], folder[PATH_MAX];
  for (size_t i = 0; notify->gate->taken_back && i < call_path_count(call); i++) {
    _cleanup_close_ int base = -1;
    if (i > 0 && call_path(call, i, path) < 0)
      return false;
    if ((i == 0 ? first : path)[0] != '/' &&
        target_folder(&call->target, call_base(call, i), &base, folder) == 0 && cellar_has(folder))
      return true;
  }
  return false;
}

/* What it is, and its first path; empty: nothing to look at. */
static int read_call(const struct notify *notify, const struct trap *trap,
                     const struct seccomp_notif *notification, struct call *ret_call,
                     char ret_path[PATH_MAX]) {
  int result = call_begin(ret_call, trap, notification);
  if (result == 0)
    result = call_path(ret_call, 0, ret_path);
  if (result == -EPERM && target_is_ours(&ret_call->target)) {
    result = 0;
    if (!read_announced(notify, ret_call, ret_path))
      ret_path[0] = '\0';
  }
  if (result == 0 && (ret_path[0] || call_is_of_descriptor(ret_call)) &&
      starts_in_taken(notify, ret_call, ret_path))
    result = -EACCES;
  return result;
}

/* NULL: it cannot be read. */
static void hold_or_refuse(struct notify *notify, const struct call *call, const char *path) {
  struct decisions *decisions = notify->gate->config.decisions;
  char name[TARGET_NAME_SIZE];
  if (path && notify->held_count < HELD_LIMIT) {
    notify_hold(notify, call, path);
    return;
  }
  if (path)
    decisions_note_flooded(decisions);
  else if (target_read_name(&call->target, name))
    decisions_note_unreadable(decisions, name, UNREAD_FILES);
  respond(notify, call->id, EACCES, 0);
}

/* What the kernel says by itself, and after what it looks at first: no path, one that is too long.
 * It may even find one, in memory that is closed to everybody else (memfd_secret); but see
 * starts_in_taken. */
static bool is_for_kernel(const struct notify *notify, int result) {
  return !notify->gate->taken_back &&
         (result == -EFAULT || result == -ENAMETOOLONG || result == -EINVAL);
}

static void serve_call(struct notify *notify, const struct seccomp_notif *notification) {
  struct call call;
  char path[PATH_MAX];
  const struct trap *trap = seccomp_trap(notification->data.arch, notification->data.nr);
  /* 0: a process of another pid namespace, of which we know nothing. */
  if (!trap || notification->pid == 0) {
    respond(notify, notification->id, trap ? EACCES : ENOSYS, 0);
    return;
  }
  int result = read_call(notify, trap, notification, &call, path);
  bool native = result == 0 ? is_native(notify, &call, path) : is_for_kernel(notify, result);
  /* An answer to a call that waits no longer is nobody's. */
  if (native)
    let_go_on(notify, &call);
  else if (result < 0 && result != -EPERM)
    respond(notify, call.id, -result, 0);
  else if (still_waits(notify, call.id))
    hold_or_refuse(notify, &call, result == 0 ? path : NULL);
}

/* Only called when one waits, so it does not block; one that died meanwhile is ENOENT. */
static void receive(struct notify *notify) {
  memset(notify->notification, 0, notify->notification_size); /* the kernel insists */
  if (ioctl(notify->listener, SECCOMP_IOCTL_NOTIF_RECV, notify->notification) == 0)
    serve_call(notify, notify->notification);
}

/* ---- the listener ---- */

/* Those that wait, or as many as one turn has. */
static void trigger_serve(struct gate *gate, short ready) {
  struct notify *notify = gate->trigger_state;
  struct pollfd calls = {.fd = notify->listener, .events = POLLIN, .revents = ready};
  uint64_t until = monotonic_ns() + TURN_NS;
  for (int i = 0; i < TURN_LIMIT && calls.revents & POLLIN; i++) {
    receive(notify);
    if (monotonic_ns() > until || poll(&calls, 1, 0) != 1)
      return;
  }
  if (!(calls.revents & POLLIN))
    gate->watched_fd = -1; /* nobody is left who could call */
}

static void trigger_serve_events(struct gate *gate) {
  struct notify *notify = gate->trigger_state;
  struct epoll_event event;
  for (int i = 0; i < TURN_LIMIT && epoll_wait(notify->events, &event, 1, 0) == 1; i++) {
    struct held *held = (struct held *)(uintptr_t)(event.data.u64 & ~NOTIFY_STAND_IN);
    if (event.data.ptr == &notify->wake) {
      notify_look_again(notify);
    } else if (event.data.u64 & NOTIFY_MOVING) {
      notify_has_moved(notify, (struct moving *)(uintptr_t)(event.data.u64 & ~NOTIFY_MOVING));
    } else if (event.data.u64 & NOTIFY_STAND_IN) {
      notify_stand_in_done(held);
    } else {
      gate_withdraw(gate, &held->waiting);
      notify_forget(held);
    }
  }
}

/* The kernel waits killably and does not tell us of signals; and a deadly one that comes after one
 * with a handler does not even kill. Of a thread that ends because another one executes a program
 * nobody tells us, either. So whoever is asked about is looked at now and then. */
static void trigger_look(struct gate *gate) {
  struct notify *notify = gate->trigger_state;
  notify_take_lent(notify);
  gate->signalled = notify_has_lent(notify);
  for (struct held *held = notify->held, *next; held; held = next) {
    next = held->next;
    if (held->waiting.ticket == 0 && held->stand_in.result < 0 && !held->queues)
      continue;
    if (notify_still_waits(held) && !gate_must_end(held->call.target.thread)) {
      gate->signalled = true;
      continue;
    }
    gate_withdraw(gate, &held->waiting);
    notify_fail(held, EINTR);
  }
}

/* ---- beginning and end ---- */

static int make_buffers(struct notify *notify, struct sb_error *error) {
  struct seccomp_notif_sizes sizes;
  if (syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) < 0)
    return sb_fail_errno(error, "asking for the sizes of seccomp notifications");
  notify->notification_size = sizes.seccomp_notif > sizeof *notify->notification
                                  ? sizes.seccomp_notif
                                  : sizeof *notify->notification;
  notify->response_size = sizes.seccomp_notif_resp > sizeof *notify->response
                              ? sizes.seccomp_notif_resp
                              : sizeof *notify->response;
  notify->notification = xcalloc(1, notify->notification_size);
  notify->response = xcalloc(1, notify->response_size);
  return 0;
}

static bool hides(const void *gate, const char *path) {
  return gate_hides(gate, path);
}

static int trigger_open(struct gate *gate, int fd, struct sb_error *error) {
  struct notify *notify = xcalloc(1, sizeof *notify);
  struct epoll_event again = {EPOLLIN, {.ptr = &notify->wake}};
  struct stat status;
  *notify = (struct notify){.gate = gate, .listener = fd};
  gate->trigger_state = notify;
  notify->walker = (struct walker){.root = gate->config.root,
                                   .host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC),
                                   .hides = hides,
                                   .context = gate};
  notify->events = epoll_create1(EPOLL_CLOEXEC);
  notify->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (notify->walker.host < 0 || notify->events < 0 || fstat(gate->config.root, &status) < 0 ||
      epoll_ctl(notify->events, EPOLL_CTL_ADD, notify->wake, &again) < 0)
    return sb_fail_errno(error, "listening to the session's file accesses");
  notify->walker.empty = status.st_dev;
  /* Linux 6.6: the caller goes on where we are, and we where it is, which more than halves the
   * cost, for no other processor has to be woken. That takes poll(2) on the listener itself: epoll
   * wakes whoever waits for it wherever it likes. Else it works all the same. */
  gate->watched_fd = fd;
  gate->events_fd = notify->events;
  (void)ioctl(fd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
  return make_buffers(notify, error);
}

/* The kernel remembers nothing of what it asked us. */
static void trigger_granted(struct gate *gate, const char *path, bool mounted) {
  (void)gate;
  (void)path;
  (void)mounted;
}

/* A link that was repeated leads somewhere else now. */
static void trigger_refresh(struct gate *gate, const char *path) {
  const struct notify *notify = gate->trigger_state;
  char text[PATH_MAX];
  _cleanup_close_ int fd = walk_open(notify->walker.host, path);
  ssize_t length = fd < 0 ? -1 : readlinkat(fd, "", text, sizeof text - 1);
  if (length <= 0)
    return;
  text[length] = '\0';
  gate_repeat(gate, NULL, path, text);
}

static void trigger_close(struct gate *gate) {
  struct notify *notify = gate->trigger_state;
  if (!notify)
    return;
  while (notify->held) {
    gate_withdraw(gate, &notify->held->waiting);
    notify_fail(notify->held, ENOSYS);
  }
  once_clear(&notify->once);
  notify_clear_lent(notify);
  notify_end_moves(notify);
  if (notify->walker.host >= 0)
    close(notify->walker.host);
  if (notify->events >= 0)
    close(notify->events);
  if (notify->wake >= 0)
    close(notify->wake);
  free(notify->notification);
  free(notify->response);
  free(notify);
}

const struct trigger notify_trigger = {
    .open = trigger_open,
    .serve = trigger_serve,
    .serve_events = trigger_serve_events,
    .look = trigger_look,
    .granted = trigger_granted,
    .refresh = trigger_refresh,
    .close = trigger_close,
};
