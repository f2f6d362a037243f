/* Private to src/gate: what the triggers and the grant path share. A trigger makes a `waiting` for
 * each call that it holds; the gate tells it once what becomes of the call. */
#pragma once

#include "core/strv.h"
#include "engine/broker.h"
#include "gate/gate.h"

enum outcome {
  OUTCOME_RETRY,  /* the object is mounted where the call looks for it: walk the path again */
  OUTCOME_SERVE,  /* allowed, without a mount: for this call only, or the mount cannot be met */
  OUTCOME_REFUSE, /* EACCES */
};

struct waiting {
  struct access_request request; /* its path belongs to the waiting */
  uint64_t ticket;               /* > 0 while a decision is awaited */
  struct grant_job *job;         /* while a grant is under way */
  struct waiting *next_in_job;
  struct gate *gate;
  bool holds_lock;   /* the call holds a lock that mounting needs: it must go before the mount */
  bool needs_mount;  /* serving it would not do: it is about the object itself */
  bool lasts;        /* OUTCOME_SERVE: not only this once */
  const char *below; /* the call starts from this folder: a mount must be below it; or NULL */
  int opened;        /* gate_open: the descriptor, if it worked; the trigger's to close */
  void (*done)(struct waiting *waiting, enum outcome outcome); /* frees it */
};

/* A mount to be made, and who waits for it. */
struct grant_job {
  struct grant_job *next;
  struct broker_request request;
  char *path;
  struct strv kept, masks;
  struct waiting *waiting;
  struct access_request *away; /* who was sent away for it, each with a path of its own */
  size_t away_count;
  unsigned attempts;
  bool sent, ready;  /* ready: only the mounting is left */
  bool announced;    /* it was ready once, perhaps by a broker that died: who walks there waits */
  uint64_t since_ns; /* it is sent, or ready, or whoever was in the way had to go */
  bool revoked;      /* since it was asked for: what it mounts is taken away again */
};

struct trigger {
  int (*open)(struct gate *gate, int fd, struct sb_error *error);
  /* `ready`: what poll(2) said of gate->watched_fd. */
  void (*serve)(struct gate *gate, short ready);
  /* Serves what gate->events_fd stands for; NULL: there is no such. */
  void (*serve_events)(struct gate *gate);
  /* Looks again at calls that a signal reached (gate->signalled); may be NULL. */
  void (*look)(struct gate *gate);
  /* The broker has walked to this path for too long: whoever holds the lock of a folder on the way
   * must let go of it. May be NULL. */
  void (*walking)(struct gate *gate, const char *path);
  /* The broker is about to mount: whoever holds a lock that this needs must let go of it. NULL: it
   * has waited for too long, and everybody must. May be NULL. */
  void (*mounting)(struct gate *gate, const char *path);
  /* The grant of a path is over. If it is a mount point now, what the kernel knows of it must stay
   * as it is. */
  void (*granted)(struct gate *gate, const char *path, bool mounted);
  /* It is one no longer: the host replaced or removed what is there, or it was taken back. */
  void (*refresh)(struct gate *gate, const char *path);
  void (*close)(struct gate *gate);
};
extern const struct trigger fuse_trigger;
extern const struct trigger notify_trigger;

struct gate {
  struct gate_config config;
  const struct trigger *trigger;
  void *trigger_state;
  bool signalled;      /* a call got a signal that did not end it; the next one is not told */
  int watched_fd;      /* readable when the trigger has something to serve; -1: nothing will come */
  int events_fd;       /* readable when something else has happened that it waits for; or -1 */
  struct strv mounts;  /* every native mount of the view, from the start and granted */
  struct strv granted; /* those that were granted */
  struct strv granted_writable;
  bool taken_back;         /* something that was granted has been revoked */
  const struct plan *kept; /* protected names in what was granted for writing; NULL: nothing was */
  struct strv
      served; /* FUSE with ask_writes: readable trees that are not mounted, see gate-grant.c */
  struct strv touched[2]; /* readable, writable: granted when first touched; resolved on demand */
  bool touched_known;
  struct strv made;      /* folders above those that the session has made */
  struct strv too_large; /* folders of which it cannot be known, or told the broker, what has to
                            stay covered in them */
  struct broker broker;
  struct grant_job *jobs;
  struct {
    pid_t inside, outer; /* outer 0: none */
    int pidfd;
  } last_asked; /* see pid.c */
  int changes;  /* inotify: files that were granted and that the host may replace */
  struct replaced *watched;
};

/* Decides, now or later, and tells the waiting's trigger. May finish it before it returns. */
void gate_ask(struct gate *gate, struct waiting *waiting);

/* True if a signal waits for the thread that ends a call, and not only interrupts it. */
bool gate_must_end(pid_t thread);

/* Is this never shown, so that not even its name is walked through? */
bool gate_hides(const struct gate *gate, const char *path);

/* Somebody looked for it all the same. */
void gate_note_hidden(const struct gate *gate, const struct access_request *request);

/* A write that is neither allowed nor asked about: to `place`, the object or the folder that it is
 * to be in. Returns the errno for who tried. */
int gate_refuse_write(const struct gate *gate, const struct access_request *request,
                      const char *place);

/* Is this allowed to be read, without a mount? */
bool gate_is_served(struct gate *gate, const struct access_request *request);

/* May the names in this folder be read, without a mount? What is in it stays a question. */
bool gate_lists_freely(const struct gate *gate, const char *path);

/* Is this in a mount that was granted for reading, and may writing be asked for? */
bool gate_may_become_writable(const struct gate *gate, const char *path);

/* Is a mount of this path under way? */
bool gate_is_granting(const struct gate *gate, const char *path);

/* What is being mounted, so that nobody may hold a lock on it; or NULL. */
const char *gate_mounting(const struct gate *gate);

/* Is this allowed without a question, once something touches it? */
bool gate_is_touchable(struct gate *gate, const char *path);

/* May this be written to without a question? */
bool gate_is_writable(struct gate *gate, const char *path);

/* May something below it be written to without a question, that is there or is made later? Then
 * it is itself never mounted: its parts are. */
bool touched_has_writable_below(const struct gate *gate, const char *path);

/* A folder that may be written to without a question, or that leads to one, is not there yet, and
 * somebody makes it: makes it on the host. Returns false if it is none, or that fails. */
bool touched_make(struct gate *gate, const char *path, mode_t mode);

/* Is there such a name in the folder, but for a home folder? Then it can be written to, as far as
 * that goes; pip uses no cache unless it is told so of the folder above. */
bool touched_makes_in(const struct gate *gate, const char *folder);

/* Repeats a folder of the host (or a link with this text) in the workload's empty root, for a call
 * or, without one, because the host has changed it. */
void gate_repeat(struct gate *gate, struct waiting *waiting, const char *path, const char *target);

/* Takes such a link away again, if it is still the same. */
void gate_forget_link(struct gate *gate, const char *path, const char *target);

/* Opens the waiting's regular file through a read-only clone, or a copy of the names in its folder,
 * for this call alone. */
void gate_open(struct gate *gate, struct waiting *waiting);

/* The call was interrupted or its process died; `done` is not called. */
void gate_withdraw(struct gate *gate, struct waiting *waiting);

/* The host replaced or removed the object of a grant. */
void gate_renew(struct gate *gate, const char *path);

/* How much of a folder is looked at before it is granted: a tenth of a second at most, since the
 * gate serves nobody else meanwhile. */
#define GRANT_ENTRY_LIMIT 50000

/* Is it a native mount, or in one? */
bool gate_is_mounted(const struct gate *gate, const char *path);

/* What was granted and covers the path; or NULL. */
const char *gate_granted_mount(const struct gate *gate, const char *path);

/* Is it in something that was granted? Who comes to FUSE all the same starts from below the mount,
 * and meets none in it, either. */
bool gate_is_below_grant(const struct gate *gate, const char *path);

/* Is the path a native mount, or above one? */
bool gate_leads_to_mount(const struct gate *gate, const char *path);

/* The asking process, or thread, as we see it, from the number that its thread has inside; 0 if it
 * cannot be told. */
pid_t gate_outer_pid(struct gate *gate, pid_t inside);
pid_t gate_outer_thread(struct gate *gate, pid_t inside);

/* Does the kernel tell that (Linux 6.11)? Else it is searched for, and costs milliseconds. */
bool gate_knows_numbers(const struct gate *gate);
void gate_forget_asked(struct gate *gate);
