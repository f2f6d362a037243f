/* Applies the plan's file system operations in the child. New mount API throughout, by descriptor;
 * nothing is created in the host's tree, nothing is allocated, no path is resolved through a
 * symbolic link that the plan did not see. */
#pragma once

#include "engine/report.h"
#include "plan/plan.h"

/* The folder of the place that was mounted last. */
struct near_folder {
  int fd; /* -1: none */
  const char *path;
  size_t length; /* of its name in path, with the slash at the end */
};

struct view {
  const struct plan *plan;
  struct start_report *report;
  int channel; /* to the monitor, who serves the gate */
  int host;    /* the host's root, as the namespace was born with it */
  int private; /* the private tmpfs */
  int root;    /* the root being built */
  int gate;    /* the file system that the monitor serves; -1: none */
  int entered; /* the same, kept for the monitor if the gate is seccomp notify */
  int masks;   /* what masks are cloned from when the old root is gone; -1: none */
  struct near_folder from, to;
  int namespaces[2];   /* mount and pid, for the gate; -1: none */
  bool awaits_network; /* init is not in the session's network namespace yet */
  bool inside;         /* the old root is out of reach */
  bool sealed;         /* the private tmpfs has become read-only; clones of it now are, too */
  mode_t umask;        /* the caller's */
};

/* First stage: the operations of a plan that was begun (plan_begin). Called in the new user and
 * mount namespaces after the ids are mapped. What shows the network comes last if it is awaited;
 * not with a gate, whose root is empty: a /sys of the host's could not be shown any more then.
 * Returns 0 or a negative errno noted in the report. */
int view_begin(struct view *view, const struct plan *base, struct start_report *report, int channel,
               bool awaits_network);

/* Second stage: the rest of the complete plan; then enters the view (pivot_root). The old root lies
 * on top of the new one until the caller detaches it. Returns the same. */
int view_enter(struct view *view, const struct plan *plan);

/* Third stage, in the session's network namespace: what shows the network; then lets go of
 * everything outside. Returns the same. */
int view_finish(struct view *view);

/* The last step of a start whose gate is seccomp notify: the listener, the namespaces and the root
 * go to the monitor, who serves the gate from now on. Nothing of them stays. */
int view_hand_over_listener(struct view *view, int listener);
