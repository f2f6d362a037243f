/* What the parts of the seccomp-notify trigger share: notify.c (the listener, and the answers),
 * notify-held.c (the course of a call that waits), notify-once.c (what is done for one call alone)
 * and notify-elsewhere.c (calls that have to start from another folder). */
#pragma once

#include <linux/seccomp.h>

#include "gate/call.h"
#include "gate/native.h"
#include "gate/once.h"
#include "gate/stand-in.h"
#include "gate/waiting.h"

struct notify {
  struct gate *gate;
  struct walker walker;
  struct native_mounts mounts;
  int listener, events;
  int wake; /* readable while a held call is to be looked at again */
  struct held *held;
  size_t held_count;
  struct once_list once;
  struct lent *lent;     /* links to programs that were allowed once */
  struct moving *moving; /* those who are led into what was mounted */
  size_t moving_count;
  struct seccomp_notif *notification;
  struct seccomp_notif_resp *response;
  size_t notification_size, response_size; /* the kernel's, which may be larger than ours */
};

/* A call that waits for a decision, a mount or a descriptor. */
struct held {
  struct waiting waiting; /* first: a pointer to it is one to this */
  struct held *previous, *next;
  struct notify *notify;
  struct call call;
  size_t index;          /* which of its paths */
  unsigned interpreters; /* how many files the kernel will open to execute it, so far */
  int pidfd;             /* tells that it died; -1: not asked about yet */
  char path[PATH_MAX];   /* as it was in its memory, or an interpreter's */
  char folder[PATH_MAX]; /* where it starts, if it is relative */
  bool again;            /* it is to be looked at again */
  bool covered;          /* that folder is itself covered by a mount */
  struct found found;
  struct judged judged;
  size_t repeated;
  struct stand_in stand_in;
  bool moves;  /* that is for notify_lead_elsewhere() */
  bool queues; /* too many do: it begins when another has */
  void (*then)(struct held *held, enum outcome outcome);
};

/* ---- notify.c ---- */

/* Which of the descriptors of a call an event is about: this, or its process. Or that of one that
 * was answered. */
#define NOTIFY_STAND_IN 1ull
#define NOTIFY_MOVING   2ull

/* All three answer the call, and free it. */
void notify_fail(struct held *held, int errnum);
void notify_return(struct held *held, long value);
void notify_go_on(struct held *held);

/* Was what we read of the process really its own? If it died, its number may be another's. */
bool notify_still_waits(const struct held *held);

/* ---- notify-held.c ---- */

/* Holds a call until it can be answered; it may be before this returns. */
void notify_hold(struct notify *notify, const struct call *call, const char *path);

/* Goes on with one that queued, from where its path leads on. */
void notify_proceed(struct held *held);

/* Frees it, and says nothing to the kernel. */
void notify_forget(struct held *held);

/* The next path of the call, or the next file that the kernel opens to execute it; then it goes on.
 */
void notify_next(struct held *held);

/* Does it test whether it may write, where that would be asked about? Nobody is asked about the
 * test, so it is told what it would be told outside. */
bool notify_tests_askable(const struct held *held);
void notify_tell_rights(struct held *held);

/* The folder that the call starts from lies below a mount that came later, so the kernel would look
 * in the wrong one, and the caller cannot be led elsewhere. What it means is allowed already: it
 * can be seen from "/". */
void notify_serve_covered(struct held *held);

/* Goes on with those that were allowed while decisions were calling. */
void notify_look_again(struct notify *notify);

/* ---- notify-once.c ---- */

/* Looks in the caller's place, and tells it what is to be seen. */
void notify_tell(struct held *held);

/* Lets the call have the object that it found (held->found), and no other call. */
void notify_serve_once(struct held *held);

/* The same, and the process may go on to use it. */
void notify_begin_once(struct held *held);

/* Is this part of what the process was allowed a moment ago? */
bool notify_goes_on_once(struct held *held, enum want want, const struct stat *status);

/* The stand-in for a call has something to say. */
void notify_stand_in_done(struct held *held);

/* A call is over that was lent programs; and those of which the time is up are taken away. */
void notify_release_lent(const struct held *held);
void notify_take_lent(struct notify *notify);
bool notify_has_lent(const struct notify *notify);
void notify_clear_lent(struct notify *notify);

/* ---- notify-elsewhere.c ---- */

/* True if the call starts where it does not meet what was granted: then it is taken care of. */
bool notify_begin_elsewhere(struct held *held);

/* Its stand-in has something to say; or nothing more. */
void notify_lead_elsewhere(struct held *held);
void notify_has_moved(struct notify *notify, struct moving *moving);
void notify_end_moves(struct notify *notify);
