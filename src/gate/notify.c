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
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "engine/cellar.h"
#include "gate/interpreter.h"
#include "gate/notify.h"

/* Linux 6.6; younger than the headers of most distributions. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define SYNC_WAKE_UP 1UL /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, an enum in newer headers */

#define TURN_LIMIT        64  /* calls served before the monitor looks at its other business */
#define HELD_LIMIT        256 /* each holds two descriptors of ours */
#define INTERPRETER_LIMIT 5   /* the kernel's */

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

static void let_go_on(struct notify *notify, uint64_t id) {
  respond(notify, id, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE);
}

/* Was what we read of the process really its own? If it died, its number may be another's. */
static bool still_waits(const struct notify *notify, uint64_t id) {
  return ioctl(notify->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

bool notify_still_waits(const struct held *held) {
  return still_waits(held->notify, held->call.id);
}

void notify_forget(struct held *held) {
  struct notify *notify = held->notify;
  notify_release_lent(held);
  if (held->previous)
    held->previous->next = held->next;
  else
    notify->held = held->next;
  if (held->next)
    held->next->previous = held->previous;
  notify->held_count--;
  /* Closing alone would not do while a process that we just forked has a copy. */
  if (held->stand_in.result >= 0)
    epoll_ctl(notify->events, EPOLL_CTL_DEL, held->stand_in.result, NULL);
  stand_in_end(&held->stand_in);
  if (held->pidfd >= 0) {
    epoll_ctl(notify->events, EPOLL_CTL_DEL, held->pidfd, NULL);
    close(held->pidfd);
  }
  found_clear(&held->found);
  free((char *)held->waiting.request.path);
  free(held);
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

static void go_on(struct held *held) {
  let_go_on(held->notify, held->call.id);
  notify_forget(held);
}

/* ---- where the path leads ---- */

enum start { START_KNOWN, START_FOREIGN };

/* The folder of a relative path. One that is not where its name says is none of ours (removed, or
 * handed in from outside), or it lies below a mount that came later. */
static int find_start(struct held *held, enum start *ret_start) {
  const struct walker *walker = &held->notify->walker;
  _cleanup_close_ int folder = -1;
  struct stat status, named;
  bool is_path = held->interpreters == 0;
  int base = is_path ? call_base(&held->call, held->index) : AT_FDCWD;
  int result = target_folder(&held->call.target, base, &folder, held->folder);
  *ret_start = START_FOREIGN;
  held->covered = false;
  if (result < 0 || fstat(folder, &status) < 0)
    return result == -EACCES || result == -EPERM ? -EACCES : 0; /* no such descriptor: kernel */
  _cleanup_close_ int there = walk_open(walker->root, held->folder);
  bool same = there >= 0 && fstat(there, &named) == 0 && named.st_dev == status.st_dev &&
              named.st_ino == status.st_ino;
  held->covered = !same && status.st_dev == walker->empty;
  if (same || held->covered)
    *ret_start = START_KNOWN;
  if (status.st_dev == walker->empty)
    held->waiting.below = held->folder;
  return 0;
}

/* Returns 0 with the result in `found`, or a negative errno. */
static int resolve(struct held *held) {
  const struct call *call = &held->call;
  struct walk_request request = {.target = &call->target,
                                 .start = "/",
                                 .top = "/",
                                 .path = held->path,
                                 .follow = call->follow || held->interpreters > 0};
  bool in_root = held->interpreters == 0 && call->resolve & RESOLVE_IN_ROOT;
  held->waiting.below = NULL;
  held->covered = false;
  found_clear(&held->found);
  if (held->path[0] != '/' || in_root) {
    enum start start;
    int result = find_start(held, &start);
    if (result < 0)
      return result;
    if (start == START_FOREIGN) {
      held->found.place = PLACE_NATIVE; /* the kernel knows where that is */
      return 0;
    }
    request.start = held->folder;
    request.top = in_root ? held->folder : "/";
  }
  int result = walk_path(&held->notify->walker, &request, &held->found);
  if (!still_waits(held->notify, call->id))
    return -ESRCH;
  return result;
}

/* ---- what the call wants there ---- */

static void proceed(struct held *held);

/* Is this a folder in which allowed things lie since the start? Its empty likeness shows those. */
static bool leads_to_base(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->mounts) {
    if (path_is_under(*mount, path) && !strv_contains(&gate->granted, *mount))
      return true;
  }
  return false;
}

/* The next path of the call, or the next file that the kernel opens to execute it. */
void notify_next(struct held *held) {
  const struct call *call = &held->call;
  int result = 0;
  if (held->interpreters == 0 && ++held->index < call_path_count(call)) {
    result = call_path(call, held->index, held->path);
  } else if (call->trap->kind == TRAP_EXECUTE && held->found.fd >= 0 &&
             held->interpreters++ < INTERPRETER_LIMIT) {
    if (!interpreter_of(held->found.fd, held->path)) {
      go_on(held);
      return;
    }
  } else {
    go_on(held);
    return;
  }
  if (result < 0 || !still_waits(held->notify, call->id))
    notify_fail(held, result < 0 ? -result : ESRCH);
  else
    proceed(held);
}

static void after_answer(struct held *held, enum outcome outcome);

/* Tells us if the process dies while somebody thinks about it. */
static int watch_process(struct held *held) {
  struct notify *notify = held->notify;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = held};
  pid_t process = target_process(&held->call.target);
  if (held->pidfd < 0)
    held->pidfd = process > 0 ? pidfd_open(process, 0) : -1;
  if (held->pidfd < 0 || !still_waits(notify, held->call.id))
    return -1;
  held->waiting.request.pid = process;
  notify->gate->signalled = true; /* see trigger_look */
  return epoll_ctl(notify->events, EPOLL_CTL_ADD, held->pidfd, &event) < 0 && errno != EEXIST ? -1
                                                                                              : 0;
}

static void set_request(struct held *held, enum want want, const char *path,
                        const struct stat *status) {
  free((char *)held->waiting.request.path);
  held->waiting.request = (struct access_request){
      .subject = SUBJECT_FILE,
      .want = want,
      .path = xstrdup(path),
      .device = status->st_dev,
      .inode = status->st_ino,
      .folder = S_ISDIR(status->st_mode),
      .socket = S_ISSOCK(status->st_mode),
  };
}

static void ask(struct held *held, enum want want, const char *path, const struct stat *status) {
  set_request(held, want, path, status);
  if (watch_process(held) < 0) {
    notify_fail(held, EACCES);
    return;
  }
  if (notify_goes_on_once(held, want, status)) {
    notify_serve_once(held);
    return;
  }
  held->then = after_answer;
  gate_ask(held->notify->gate, &held->waiting);
}

/* A write to a gated place: refused and noted, unless writes are asked for like reads. */
static void write_to(struct held *held, const char *path, const struct stat *status) {
  struct gate *gate = held->notify->gate;
  bool may_ask = gate->config.plan->ask_writes || gate_is_writable(gate, path);
  if (may_ask && strcmp(path, "/") != 0) {
    ask(held, WANT_WRITE, path, status);
    return;
  }
  set_request(held, WANT_WRITE, held->found.path, status);
  held->waiting.request.pid = target_process(&held->call.target);
  decisions_note_refused(gate->config.decisions, &held->waiting.request, "not a writable place");
  notify_fail(held, EROFS);
}

static void write_to_folder(struct held *held) {
  _cleanup_free_ char *folder = path_parent(held->found.path);
  _cleanup_close_ int fd = walk_open(held->notify->walker.host, folder);
  struct stat status = {0};
  if (fd < 0 || fstat(fd, &status) < 0)
    notify_fail(held, EACCES);
  else
    write_to(held, folder, &status);
}

static void act(struct held *held) {
  struct found *found = &held->found;
  switch (held->judged.verdict) {
  case CALL_FREE:
    notify_next(held);
    return;
  case CALL_ASK:
    if (held->judged.want == WANT_LIST &&
        (strcmp(found->path, "/") == 0 || leads_to_base(held->notify->gate, found->path)))
      notify_next(held);
    else
      ask(held, held->judged.want, found->path, &found->status);
    return;
  case CALL_WRITE:
    write_to(held, found->path, &found->status);
    return;
  case CALL_WRITE_FOLDER:
    write_to_folder(held);
    return;
  case CALL_ERROR:
    notify_fail(held, held->judged.errnum);
    return;
  }
}

/* Folders and links on the way that only the host has, one by one. */
static void repeat(struct held *held, enum outcome outcome) {
  const struct strv *repeats = &held->found.repeats;
  if (outcome != OUTCOME_RETRY) {
    notify_fail(held, EACCES);
    return;
  }
  if (held->repeated >= repeats->count) {
    act(held);
    return;
  }
  const char *path = repeats->items[held->repeated], *text = repeats->items[held->repeated + 1];
  held->repeated += 2;
  held->then = repeat;
  gate_repeat(held->notify->gate, &held->waiting, path, text[0] ? text : NULL);
}

/* Neither its kind nor its links nor what is in it is anybody's business. */
static void refuse_hidden(struct held *held) {
  set_request(held, WANT_READ, held->found.path, &held->found.status);
  held->waiting.request.pid = target_process(&held->call.target);
  gate_note_hidden(held->notify->gate, &held->waiting.request);
  notify_fail(held, EACCES);
}

/* The way there may have changed while somebody thought: a link of the command's own, a name of the
 * host's. What was shown is what is served. */
static bool is_what_was_shown(const struct held *held) {
  const struct access_request *request = &held->waiting.request;
  return held->found.status.st_dev == request->device &&
         held->found.status.st_ino == request->inode &&
         strcmp(held->found.path, request->path) == 0;
}

/* Allowed, but not by a mount that was made for it: perhaps one that another call asked for. */
static void serve(struct held *held) {
  if (held->waiting.request.want == WANT_WRITE) {
    notify_fail(held, EROFS);
    return;
  }
  int result = resolve(held);
  if (result < 0)
    notify_fail(held, -result);
  else if (held->found.place == PLACE_HIDDEN)
    refuse_hidden(held);
  else if (held->found.place == PLACE_GATED && is_what_was_shown(held))
    notify_begin_once(held);
  else if (held->found.place == PLACE_GATED)
    notify_fail(held, EACCES);
  else if (held->found.place == PLACE_FOLDER && call_only_reads(&held->call) &&
           is_what_was_shown(held))
    notify_serve_once(held);
  else
    notify_next(held);
}

static void after_answer(struct held *held, enum outcome outcome) {
  if (outcome == OUTCOME_REFUSE) {
    notify_fail(held, EACCES);
  } else if (outcome == OUTCOME_SERVE) {
    /* Not here: decisions may be calling, and serving it may lead to the next question. */
    held->again = true;
    eventfd_write(held->notify->wake, 1);
  } else {
    notify_next(held);
  }
}

static void look_again(struct notify *notify) {
  eventfd_t count;
  struct held *following;
  eventfd_read(notify->wake, &count);
  for (struct held *held = notify->held; held; held = following) {
    following = held->next;
    bool again = held->again;
    held->again = false;
    if (again)
      serve(held);
  }
}

static void on_done(struct waiting *waiting, enum outcome outcome) {
  struct held *held = (struct held *)waiting;
  held->then(held, outcome);
}

/* The folder that the call starts from lies below a mount that came later, so the kernel would look
 * in the wrong one. What it means is allowed already: it can be seen from "/". */
static void serve_covered(struct held *held) {
  _cleanup_close_ int fd = walk_open(held->notify->walker.host, held->found.path);
  struct stat status;
  bool same = fd >= 0 && held->found.fd >= 0 && fstat(fd, &status) == 0 &&
              status.st_dev == held->found.status.st_dev &&
              status.st_ino == held->found.status.st_ino;
  if (!same) {
    go_on(held);
    return;
  }
  set_request(held, WANT_READ, held->found.path, &status);
  notify_serve_once(held);
}

/* Something mounted is the kernel's business, but a mount that was granted for reading may be
 * granted for writing as well, if that is asked for. */
static struct judged judge_native(const struct held *held) {
  const struct judged free = {.verdict = CALL_FREE};
  struct found as_gated = held->found;
  const char *name = strrchr(held->path, '/'), *found_name = strrchr(held->found.path, '/');
  bool missing = held->found.fd < 0;
  if (!call_may_write(&held->call) || held->interpreters > 0 ||
      !gate_may_become_writable(held->notify->gate, held->found.path))
    return free;
  if (missing && strcmp(name ? name + 1 : held->path, found_name + 1) != 0)
    return free; /* its folder is missing, too */
  as_gated.place = missing                               ? PLACE_MISSING
                   : S_ISDIR(held->found.status.st_mode) ? PLACE_FOLDER
                                                         : PLACE_GATED;
  struct judged judged = call_judge(&held->call, held->index, &as_gated);
  return judged.verdict == CALL_WRITE || judged.verdict == CALL_WRITE_FOLDER ? judged : free;
}

static void proceed(struct held *held) {
  int result = held->path[0] ? resolve(held) : 0;
  if (result < 0) {
    notify_fail(held, -result);
    return;
  }
  if (!held->path[0]) {
    go_on(held);
  } else if (held->found.place == PLACE_HIDDEN) {
    refuse_hidden(held);
  } else if (held->found.place == PLACE_NATIVE && held->covered) {
    serve_covered(held);
  } else {
    held->judged =
        held->found.place == PLACE_NATIVE
            ? judge_native(held)
            : call_judge(&held->call, held->interpreters > 0 ? 0 : held->index, &held->found);
    bool missing = held->found.place == PLACE_MISSING || held->found.place == PLACE_NOWHERE;
    held->repeated = missing && held->judged.verdict == CALL_FREE ? held->found.repeats.count : 0;
    repeat(held, OUTCOME_RETRY);
  }
}

/* ---- the listener ---- */

static struct held *held_new(struct notify *notify, const struct call *call, const char *path) {
  struct held *held = xcalloc(1, sizeof *held);
  *held = (struct held){.notify = notify,
                        .call = *call,
                        .pidfd = -1,
                        .stand_in = STAND_IN_NONE,
                        .found = FOUND_NONE,
                        .waiting = {.done = on_done, .opened = -1, .gate = notify->gate}};
  memcpy(held->path, path, strlen(path) + 1);
  held->next = notify->held;
  if (notify->held)
    notify->held->previous = held;
  notify->held = held;
  notify->held_count++;
  return held;
}

/* What nearly every call is: about something that is mounted. */
static bool is_native(const struct notify *notify, const struct call *call, const char *path) {
  _cleanup_close_ int base = -1;
  char unused[PATH_MAX];
  if (call->trap->kind == TRAP_EXECUTE || call_path_count(call) > 1 ||
      call->resolve & RESOLVE_IN_ROOT)
    return false;
  if (path[0] != '/' && target_folder(&call->target, call_base(call, 0), &base, unused) < 0)
    return false;
  return walk_is_native(&notify->walker, base, path, call->follow);
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

/* Could it be asked about although it is about something mounted? */
static bool may_ask_to_write(const struct notify *notify, const struct call *call) {
  const struct gate *gate = notify->gate;
  return gate->config.plan->ask_writes && gate->granted.count > 0 && call_may_write(call);
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

static void serve_call(struct notify *notify, const struct seccomp_notif *notification) {
  struct call call;
  char path[PATH_MAX];
  const struct trap *trap = seccomp_trap(notification->data.arch, notification->data.nr);
  /* 0: a process of another pid namespace, of which we know nothing. */
  if (!trap || notification->pid == 0) {
    respond(notify, notification->id, trap ? EACCES : ENOSYS, 0);
    return;
  }
  int result = call_begin(&call, trap, notification);
  if (result == 0)
    result = call_path(&call, 0, path);
  if (result == -EPERM && target_is_ours(&call.target)) {
    result = 0;
    if (!read_announced(notify, &call, path))
      path[0] = '\0';
  }
  if (result == 0 && path[0] && starts_in_taken(notify, &call, path))
    result = -EACCES;
  bool native = result == 0 &&
                (!path[0] || (!may_ask_to_write(notify, &call) && is_native(notify, &call, path)));
  if (!still_waits(notify, call.id))
    return;
  if (result == -EPERM)
    decisions_note_unreadable(notify->gate->config.decisions, call.target.thread);
  if (result < 0)
    respond(notify, call.id, result == -EPERM ? EACCES : -result, 0);
  else if (native)
    let_go_on(notify, call.id);
  else if (notify->held_count >= HELD_LIMIT)
    respond(notify, call.id, EACCES, 0);
  else
    proceed(held_new(notify, &call, path));
}

/* Only called when one waits, so it does not block; one that died meanwhile is ENOENT. */
static void receive(struct notify *notify) {
  memset(notify->notification, 0, notify->notification_size); /* the kernel insists */
  if (ioctl(notify->listener, SECCOMP_IOCTL_NOTIF_RECV, notify->notification) == 0)
    serve_call(notify, notify->notification);
}

static void trigger_serve(struct gate *gate) {
  struct notify *notify = gate->trigger_state;
  struct epoll_event event;
  for (int i = 0; i < TURN_LIMIT && epoll_wait(notify->events, &event, 1, 0) == 1; i++) {
    struct held *held = (struct held *)(uintptr_t)(event.data.u64 & ~NOTIFY_STAND_IN);
    if (event.data.ptr == &notify->wake) {
      look_again(notify);
    } else if (event.data.u64 & NOTIFY_STAND_IN) {
      notify_stand_in_done(held);
    } else if (held) {
      gate_withdraw(gate, &held->waiting);
      notify_forget(held);
    } else if (event.events & EPOLLIN) {
      receive(notify);
    } else {
      /* Nobody is left who could call. */
      epoll_ctl(notify->events, EPOLL_CTL_DEL, notify->listener, NULL);
    }
  }
}

/* The kernel waits killably and does not tell us of signals; and a deadly one that comes after one
 * with a handler does not even kill. So whoever is asked about is looked at now and then. */
static void trigger_look(struct gate *gate) {
  struct notify *notify = gate->trigger_state;
  notify_take_lent(notify);
  gate->signalled = notify_has_lent(notify);
  for (struct held *held = notify->held, *next; held; held = next) {
    next = held->next;
    if (held->waiting.ticket == 0 && held->stand_in.result < 0)
      continue;
    if (!gate_must_end(held->waiting.request.pid)) {
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
  struct epoll_event event = {.events = EPOLLIN}, again = {EPOLLIN, {.ptr = &notify->wake}};
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
      epoll_ctl(notify->events, EPOLL_CTL_ADD, fd, &event) < 0 ||
      epoll_ctl(notify->events, EPOLL_CTL_ADD, notify->wake, &again) < 0)
    return sb_fail_errno(error, "listening to the session's file accesses");
  notify->walker.empty = status.st_dev;
  gate->watched_fd = notify->events;
  /* Linux 6.6: the caller goes on where we are, which halves the cost. Else it works all the same.
   */
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
    .look = trigger_look,
    .granted = trigger_granted,
    .refresh = trigger_refresh,
    .close = trigger_close,
};
