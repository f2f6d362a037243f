/* What is allowed once: for one call, by one process, and nothing of it is to be seen in the
 * session.
 *
 *   to read, or to hold (O_PATH)  a descriptor is handed in; always one to read from, as the kernel
 *                                 hands in no others
 *   to list                       a copy of the names alone is handed in
 *   to look                       we look, and tell
 *   to connect, send, watch       a stand-in makes the call on the caller's descriptor
 *   to execute                    a descriptor is handed in, and where the program is looked for
 *                                 there is for a moment a link to "my own descriptor N", whoever
 *                                 reads it: it leads the caller to the program, others to nothing
 *
 * Descriptors are of regular files only (and such copies), through a read-only mount that is
 * attached nowhere. A folder's would be a way to walk the host; one from the host's own mount could
 * be opened again for writing by way of /proc/self/fd. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "gate/notify.h"
#include "gate/tell.h"

#define LENT_NS     (1000ull * 1000 * 1000) /* from CONTINUE to the end of the kernel's walk */
#define NUMBER_TOP  1024 /* a usual limit: the table of descriptors need not grow for us */
#define NUMBER_LAST 64   /* how many numbers are tried */

/* ---- descriptors ---- */

static int add_descriptor(const struct held *held, struct seccomp_notif_addfd *addition) {
  addition->id = held->call.id;
  if (!notify_still_waits(held))
    return -ESRCH;
  int number = ioctl(held->notify->listener, SECCOMP_IOCTL_NOTIF_ADDFD, addition);
  return number < 0 ? -errno : number;
}

/* The descriptor is all that is given: the file itself stays where the workload cannot see it. */
static void hand_in(struct held *held, enum outcome outcome) {
  _cleanup_close_ int fd = steal_fd(&held->waiting.opened);
  if (outcome != OUTCOME_RETRY || fd < 0) {
    notify_fail(held, EACCES);
    return;
  }
  struct seccomp_notif_addfd addition = {
      .flags = SECCOMP_ADDFD_FLAG_SEND,
      .srcfd = (unsigned)fd,
      .newfd_flags = held->call.flags & O_CLOEXEC ? O_CLOEXEC : 0,
  };
  int result = add_descriptor(held, &addition);
  if (result < 0) /* it still waits: this ends it */
    notify_fail(held, result == -EMFILE ? EMFILE : EACCES);
  else
    notify_forget(held);
}

/* ---- looking ---- */

/* Answers for the kernel. What goes to the caller's memory goes through a descriptor that was its
 * own while it still waited. */
void notify_tell(struct held *held) {
  struct told told;
  _cleanup_close_ int memory = target_open_memory(&held->call.target);
  int result = tell_call(&held->call, held->found.fd, &told);
  if (result == 0 && memory < 0 && told.size > 0)
    result = -EACCES;
  if (result == 0 && !notify_still_waits(held))
    result = -ESRCH;
  if (result == 0 && told.size > 0 &&
      pwrite(memory, &told.data, told.size, (off_t)told.address) != (ssize_t)told.size)
    result = -EFAULT;
  if (result < 0)
    notify_fail(held, result == -ENOTSUP ? EACCES : -result);
  else
    notify_return(held, told.value);
}

/* ---- speaking and watching ---- */

static struct stand_in_call in_its_place(const struct call *call) {
  bool sends = call->trap->kind == TRAP_CONNECT && call->trap->at[0].path > 1;
  struct stand_in_call made = {.kind = call->trap->links == TRAP_WATCH    ? STAND_IN_WATCH
                                       : call->trap->kind != TRAP_CONNECT ? STAND_IN_CANNOT
                                       : sends                            ? STAND_IN_SEND
                                                                          : STAND_IN_CONNECT,
                               .target = call->target};
  memcpy(made.arguments, call->arguments, sizeof made.arguments);
  return made;
}

static void stand_in(struct held *held, const struct stand_in_call *call) {
  struct notify *notify = held->notify;
  struct epoll_event event = {.events = EPOLLIN,
                              .data.u64 = (uint64_t)(uintptr_t)held | NOTIFY_STAND_IN};
  int result = stand_in_start(&held->stand_in, call, held->pidfd, held->found.fd, STAND_IN_TELLS);
  if (result == 0 && (!notify_still_waits(held) ||
                      epoll_ctl(notify->events, EPOLL_CTL_ADD, held->stand_in.result, &event) < 0))
    result = -EACCES;
  if (result < 0)
    notify_fail(held, -result);
  else
    notify->gate->signalled = true; /* see trigger_look */
}

void notify_stand_in_done(struct held *held) {
  if (held->moves) {
    notify_lead_elsewhere(held);
    return;
  }
  epoll_ctl(held->notify->events, EPOLL_CTL_DEL, held->stand_in.result, NULL);
  long result = stand_in_result(&held->stand_in);
  stand_in_end(&held->stand_in);
  if (result < 0)
    notify_fail(held, (int)-result);
  else
    notify_return(held, result);
}

/* ---- executing ---- */

/* A link in the empty root. */
struct lent {
  struct lent *next;
  const struct held *held; /* NULL: the call goes on, or failed */
  uint64_t until_ns;       /* then */
  int number;              /* of the descriptor that it leads to */
  char *path, *text;
};

static bool is_lent_again(const struct notify *notify, const struct lent *lent) {
  for (const struct lent *other = notify->lent; other; other = other->next) {
    if (other != lent && strcmp(other->path, lent->path) == 0)
      return true;
  }
  return false;
}

static void lent_free(struct lent *lent) {
  free(lent->path);
  free(lent->text);
  free(lent);
}

void notify_take_lent(struct notify *notify) {
  uint64_t now = monotonic_ns();
  for (struct lent **place = &notify->lent; *place;) {
    struct lent *lent = *place;
    if (lent->held || lent->until_ns > now) {
      place = &lent->next;
      continue;
    }
    if (!is_lent_again(notify, lent))
      gate_forget_link(notify->gate, lent->path, lent->text);
    *place = lent->next;
    lent_free(lent);
  }
}

bool notify_has_lent(const struct notify *notify) {
  return notify->lent;
}

void notify_release_lent(const struct held *held) {
  for (struct lent *lent = held->notify->lent; lent; lent = lent->next) {
    if (lent->held != held)
      continue;
    lent->held = NULL;
    lent->until_ns = monotonic_ns() + LENT_NS;
    held->notify->gate->signalled = true; /* so that we come back */
  }
}

void notify_clear_lent(struct notify *notify) {
  for (struct lent *lent = notify->lent, *next; lent; lent = next) {
    next = lent->next;
    lent_free(lent);
  }
}

/* Several execute the same file at once, and one link leads each to its own descriptor: so they
 * have it by the same number, and no two files have the same, for a script and its interpreter are
 * both with one of them. */
static bool suits(const struct notify *notify, const char *path, int number) {
  for (const struct lent *lent = notify->lent; lent; lent = lent->next) {
    if ((strcmp(lent->path, path) == 0) != (lent->number == number))
      return false;
  }
  return true;
}

static bool is_free(pid_t thread, int number) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", (int)thread, number);
  return faccessat(AT_FDCWD, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0;
}

/* Should none suit, any will do: who then follows the link too late finds nothing. */
static int free_number(const struct held *held) {
  struct rlimit limit;
  pid_t thread = held->call.target.thread;
  if (prlimit(thread, RLIMIT_NOFILE, NULL, &limit) < 0)
    return -EACCES;
  int top = limit.rlim_cur < NUMBER_TOP ? (int)limit.rlim_cur : NUMBER_TOP, any = -EMFILE;
  for (int number = top - 1; number >= 3 && number >= top - NUMBER_LAST; number--) {
    bool suited = suits(held->notify, held->found.path, number);
    if ((!suited && any >= 0) || !is_free(thread, number))
      continue;
    any = number;
    if (suited)
      break;
  }
  return any;
}

static void go_on_lent(struct held *held, enum outcome outcome) {
  if (outcome == OUTCOME_RETRY)
    notify_next(held);
  else
    notify_fail(held, EACCES);
}

static void lend(struct held *held, int number) {
  struct lent *lent = xcalloc(1, sizeof *lent);
  *lent = (struct lent){.next = held->notify->lent,
                        .held = held,
                        .number = number,
                        .path = xstrdup(held->found.path),
                        .text = xasprintf("/proc/thread-self/fd/%d", number)};
  held->notify->lent = lent;
  held->then = go_on_lent;
  gate_repeat(held->notify->gate, &held->waiting, lent->path, lent->text);
}

static void hand_in_program(struct held *held, enum outcome outcome) {
  _cleanup_close_ int fd = steal_fd(&held->waiting.opened);
  int number = outcome == OUTCOME_RETRY && fd >= 0 ? free_number(held) : -EACCES;
  struct seccomp_notif_addfd addition = {
      .flags = SECCOMP_ADDFD_FLAG_SETFD,
      .srcfd = (unsigned)fd,
      .newfd = (unsigned)number,
      .newfd_flags = O_CLOEXEC, /* the program does not get it */
  };
  if (number >= 0)
    number = add_descriptor(held, &addition);
  if (number < 0)
    notify_fail(held, number == -EMFILE ? EMFILE : EACCES);
  else
    lend(held, number);
}

/* ---- which of them ---- */

static void open_and(struct held *held, void (*then)(struct held *held, enum outcome outcome)) {
  held->then = then;
  gate_open(held->notify->gate, &held->waiting);
}

void notify_serve_once(struct held *held) {
  const struct call *call = &held->call;
  mode_t mode = held->found.status.st_mode;
  bool opens = call_only_reads(call) || call_holds(call);
  struct stand_in_call made = in_its_place(call);
  if (notify_tests_askable(held))
    notify_tell_rights(held);
  else if (made.kind != STAND_IN_CANNOT)
    stand_in(held, &made);
  else if (call->trap->kind == TRAP_EXECUTE && S_ISREG(mode))
    open_and(held, hand_in_program);
  else if ((opens && S_ISREG(mode)) || (call_only_reads(call) && S_ISDIR(mode)))
    open_and(held, hand_in);
  else if (!opens)
    notify_tell(held);
  else /* nobody can open a socket */
    notify_fail(held, call_only_reads(call) && S_ISSOCK(mode) ? ENXIO : EACCES);
}

static enum once_use use_of(const struct call *call) {
  return call_only_reads(call)              ? ONCE_OPEN
         : call->trap->kind == TRAP_EXECUTE ? ONCE_EXECUTE
                                            : ONCE_LOOK;
}

void notify_begin_once(struct held *held) {
  once_remember(&held->notify->once, held->waiting.request.pid, &held->found.status,
                use_of(&held->call));
  notify_serve_once(held);
}

bool notify_goes_on_once(struct held *held, enum want want, const struct stat *status) {
  return (want == WANT_READ || want == WANT_STAT || want == WANT_EXECUTE) &&
         once_may_use(&held->notify->once, held->waiting.request.pid, status, use_of(&held->call));
}
