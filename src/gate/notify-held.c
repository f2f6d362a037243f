/* The course of a call that could not be let go on at once: where its path leads, what it wants
 * there, who has to be asked or what has to be mounted first. It has several paths, or interpreters
 * that the kernel will open: one after the other. Ends in an answer of notify.c. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/interpreter.h"
#include "gate/notify.h"
#include "gate/tell.h"
#include "session/ancestors.h"

#define INTERPRETER_LIMIT 5 /* the kernel's */

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
                                 .follow =
                                     held->interpreters > 0 || call_follows(call, held->index)};
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
  if (!notify_still_waits(held))
    return -ESRCH;
  return result;
}

/* ---- asking ---- */

static void after_answer(struct held *held, enum outcome outcome);

/* Tells us if the process dies while somebody thinks about it. */
static int watch_process(struct held *held) {
  struct notify *notify = held->notify;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = held};
  pid_t process = target_process(&held->call.target);
  if (held->pidfd < 0)
    held->pidfd = process > 0 ? pidfd_open(process, 0) : -1;
  if (held->pidfd < 0 || !notify_still_waits(held))
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
      .names = want == WANT_LIST && call_only_reads(&held->call),
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

/* ---- what the call wants there ---- */

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
  notify_fail(held, gate_refuse_write(gate, &held->waiting.request, path));
}

/* A cache that is used for the first time: its folder is as good as made. */
static bool make_touched(const struct held *held) {
  const struct call *call = &held->call;
  mode_t mode = (mode_t)call->arguments[call->trap->at[0].path + 1];
  return call->trap->kind == TRAP_FOLDER &&
         touched_make(held->notify->gate, held->found.path, mode);
}

static void write_to_folder(struct held *held) {
  if (make_touched(held)) {
    notify_return(held, 0);
    return;
  }
  _cleanup_free_ char *folder = path_parent(held->found.path);
  _cleanup_close_ int fd = walk_open(held->notify->walker.host, folder);
  struct stat status = {0};
  if (fd < 0 || fstat(fd, &status) < 0)
    notify_fail(held, EACCES);
  else
    write_to(held, folder, &status);
}

/* Is this a folder in which allowed things lie since the start? Its empty likeness shows those. */
static bool leads_to_base(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->mounts) {
    if (path_is_under(*mount, path) && !strv_contains(&gate->granted, *mount))
      return true;
  }
  return false;
}

/* Whether it may be written to its likeness cannot tell: that is read-only. */
static bool tests_writable(const struct held *held) {
  struct gate *gate = held->notify->gate;
  const struct found *found = &held->found;
  return held->call.trap->kind == TRAP_TEST && found->place == PLACE_FOLDER &&
         gate_is_writable(gate, found->path) && !leads_to_base(gate, found->path);
}

static bool may_make_in(const struct held *held) {
  return call_tests_writing(&held->call) && held->found.place == PLACE_FOLDER &&
         touched_makes_in(held->notify->gate, held->found.path);
}

bool notify_tests_askable(const struct held *held) {
  const struct gate *gate = held->notify->gate;
  const struct found *found = &held->found;
  if (!call_tests_writing(&held->call) || found->fd < 0 || strcmp(found->path, "/") == 0)
    return false;
  return found->place == PLACE_NATIVE
             ? gate_may_become_writable(gate, found->path)
             : gate->config.plan->ask_writes && !leads_to_base(gate, found->path);
}

/* Nobody can be allowed a home folder as a whole, or what is above it, nor a folder with a cache in
 * it: nothing will be mounted over it that its likeness would miss. One that the session has made
 * is its own. */
static bool enters_likeness(const struct held *held) {
  const struct gate *gate = held->notify->gate;
  const char *path = held->found.path;
  return strv_contains(&gate->made, path) || (held->call.trap->kind == TRAP_ENTER &&
                                              (ancestor_is_too_large(gate->config.context, path) ||
                                               touched_has_writable_below(gate, path)));
}

/* Who only stands in it, or holds it, sees no more than its names. */
static bool holds_listed(const struct held *held) {
  return (call_holds(&held->call) || held->call.trap->kind == TRAP_ENTER) &&
         gate_lists_freely(held->notify->gate, held->found.path);
}

static void serve_names(struct held *held) {
  set_request(held, WANT_LIST, held->found.path, &held->found.status);
  notify_serve_once(held);
}

static void act(struct held *held) {
  struct found *found = &held->found;
  switch (held->judged.verdict) {
  case CALL_FREE:
    if (tests_writable(held))
      ask(held, WANT_LIST, found->path, &found->status);
    else if (may_make_in(held))
      notify_return(held, 0);
    else
      notify_next(held);
    return;
  case CALL_ASK:
    if (held->judged.want == WANT_LIST &&
        (strcmp(found->path, "/") == 0 || leads_to_base(held->notify->gate, found->path) ||
         enters_likeness(held)))
      notify_next(held);
    else if (held->judged.want == WANT_LIST && call_only_reads(&held->call) &&
             gate_lists_freely(held->notify->gate, found->path))
      serve_names(held);
    else if (holds_listed(held))
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

/* Brokers died over it. Nobody would know why what needs no question is refused. */
static void fail_repeating(struct held *held) {
  set_request(held, WANT_STAT, held->found.path, &held->found.status);
  held->waiting.request.pid = target_process(&held->call.target);
  decisions_note_failed(held->notify->gate->config.decisions, &held->waiting.request, EIO);
  notify_fail(held, EACCES);
}

/* Folders and links on the way that only the host has, one by one. */
static void repeat(struct held *held, enum outcome outcome) {
  const struct strv *repeats = &held->found.repeats;
  if (outcome != OUTCOME_RETRY) {
    fail_repeating(held);
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

/* What it found, past the session's mounts; or -1. */
static int open_on_host(const struct held *held) {
  _cleanup_close_ int fd = walk_open(held->notify->walker.host, held->found.path);
  struct stat status;
  bool same = fd >= 0 && held->found.fd >= 0 && fstat(fd, &status) == 0 &&
              status.st_dev == held->found.status.st_dev &&
              status.st_ino == held->found.status.st_ino;
  return same ? steal_fd(&fd) : -1;
}

/* The mount that it would meet was not made for writing. */
void notify_tell_rights(struct held *held) {
  _cleanup_close_ int fd = open_on_host(held);
  int result = fd < 0 ? -EROFS : tell_rights(&held->call, fd);
  if (result < 0)
    notify_fail(held, -result);
  else
    notify_return(held, 0);
}

void notify_serve_covered(struct held *held) {
  const struct stat *status = &held->found.status;
  _cleanup_close_ int fd = open_on_host(held);
  if (fd < 0) {
    notify_go_on(held);
    return;
  }
  /* That the folder is allowed does not mean that its sockets may be spoken to. */
  if (held->call.trap->kind == TRAP_CONNECT && S_ISSOCK(status->st_mode)) {
    if (gate_writable_mount(held->notify->gate, held->found.path)) {
      notify_fail(held, EACCES); /* its name may be another's by then */
      return;
    }
    ask(held, WANT_CONNECT, held->found.path, status);
    return;
  }
  set_request(held, WANT_READ, held->found.path, status);
  if (watch_process(held) < 0)
    notify_fail(held, EACCES);
  else
    notify_serve_once(held);
}

/* That something can be written to does not say so of its folder, nor the other way round. */
static bool may_become_writable(const struct held *held, enum call_verdict verdict) {
  const struct gate *gate = held->notify->gate;
  const char *path = held->found.path;
  _cleanup_free_ char *folder = path_parent(path);
  if (verdict != CALL_WRITE_FOLDER)
    return verdict == CALL_WRITE && gate_may_become_writable(gate, path);
  return gate_may_become_writable(gate, folder) ||
         (strv_contains(&gate->granted, path) && !gate_is_mounted(gate, folder));
}

/* Something mounted is the kernel's business, but a mount that was granted for reading may be
 * granted for writing as well, if that is asked for. */
static struct judged judge_native(const struct held *held) {
  const struct judged free = {.verdict = CALL_FREE};
  struct found as_gated = held->found;
  const char *name = strrchr(held->path, '/'), *found_name = strrchr(held->found.path, '/');
  bool missing = held->found.fd < 0;
  if (!held->notify->gate->config.plan->ask_writes || !call_may_write(&held->call) ||
      held->interpreters > 0 || held->found.path[0] != '/')
    return free;
  if (missing && strcmp(name ? name + 1 : held->path, found_name + 1) != 0)
    return free; /* its folder is missing, too */
  as_gated.place = missing                               ? PLACE_MISSING
                   : S_ISDIR(held->found.status.st_mode) ? PLACE_FOLDER
                                                         : PLACE_GATED;
  struct judged judged = call_judge(&held->call, held->index, &as_gated);
  return may_become_writable(held, judged.verdict) ? judged : free;
}

/* What it has open is the kernel's business, but not where else it leads. */
static void proceed_without_path(struct held *held) {
  if (held->index == 0 && call_is_of_descriptor(&held->call))
    held->found.fd = target_open_descriptor(&held->call.target, call_base(&held->call, 0));
  notify_next(held);
}

void notify_proceed(struct held *held) {
  if (!held->path[0]) {
    proceed_without_path(held);
    return;
  }
  int result = resolve(held);
  if (result < 0) {
    notify_fail(held, -result);
  } else if (held->found.place == PLACE_HIDDEN) {
    refuse_hidden(held);
  } else if (held->found.place == PLACE_NATIVE && notify_begin_elsewhere(held)) {
    return;
  } else if (held->found.place == PLACE_NATIVE && held->covered) {
    notify_serve_covered(held);
  } else if (held->found.place == PLACE_FOLDER && tell_is_of_space(&held->call)) {
    notify_tell(held); /* in our root there is next to none */
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

/* 1: there is one more, in held->path; 0: there is none; or a negative errno. */
static int next_path(struct held *held) {
  const struct call *call = &held->call;
  if (held->interpreters == 0 && ++held->index < call_path_count(call)) {
    int result = call_path(call, held->index, held->path);
    return result < 0 ? result : 1;
  }
  if (call->trap->kind == TRAP_EXECUTE && held->found.fd >= 0 &&
      held->interpreters++ < INTERPRETER_LIMIT)
    return interpreter_of(held->found.fd, held->path);
  return 0;
}

void notify_next(struct held *held) {
  int result = next_path(held);
  if (result == 0 && notify_tests_askable(held))
    notify_tell_rights(held);
  else if (result == 0)
    notify_go_on(held);
  else if (result < 0)
    notify_fail(held, -result);
  else if (!notify_still_waits(held))
    notify_fail(held, ESRCH);
  else
    notify_proceed(held);
}

/* ---- after the answer ---- */

/* The way there may have changed while somebody thought: a link of the command's own, a name of the
 * host's. What was shown is what is served. */
static bool is_what_was_shown(const struct held *held) {
  const struct access_request *request = &held->waiting.request;
  return held->found.status.st_dev == request->device &&
         held->found.status.st_ino == request->inode &&
         strcmp(held->found.path, request->path) == 0;
}

/* Of a folder: its names, and what becomes of them. */
static bool takes_folder(const struct call *call) {
  return call_only_reads(call) || call->trap->links == TRAP_WATCH;
}

/* What it was allowed to speak to is not to be found from the folder that it starts from. */
static bool speaks_from_covered(const struct held *held) {
  return held->covered && held->waiting.request.want == WANT_CONNECT;
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
  else if (speaks_from_covered(held) && is_what_was_shown(held))
    notify_serve_once(held);
  else if (held->found.place == PLACE_GATED)
    notify_fail(held, EACCES);
  else if (held->found.place == PLACE_FOLDER && takes_folder(&held->call) &&
           is_what_was_shown(held))
    notify_serve_once(held);
  else if (held->found.place == PLACE_FOLDER && held->call.resolve != 0 && !held->waiting.lasts)
    notify_fail(held, EACCES); /* it would list the folder's empty likeness */
  else
    notify_next(held);
}

static void after_answer(struct held *held, enum outcome outcome) {
  if (outcome == OUTCOME_REFUSE) {
    notify_fail(held, EACCES);
  } else if (outcome == OUTCOME_SERVE || speaks_from_covered(held)) {
    /* Not here: decisions may be calling, and serving it may lead to the next question. */
    held->again = true;
    eventfd_write(held->notify->wake, 1);
  } else if (!notify_begin_elsewhere(held)) {
    notify_next(held);
  }
}

void notify_look_again(struct notify *notify) {
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

/* ---- beginning and end ---- */

static void on_done(struct waiting *waiting, enum outcome outcome) {
  struct held *held = (struct held *)waiting;
  held->then(held, outcome);
}

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

void notify_hold(struct notify *notify, const struct call *call, const char *path) {
  notify_proceed(held_new(notify, call, path));
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
