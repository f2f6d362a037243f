/* The namespaces that init enters besides those it was born in, and how it leaves the old root.
 * A network namespace takes the kernel 0.5 ms, a tenth of a start, and for an unmounted root it
 * waits 0.1 ms: a process beside init, the maker, does both. Raw system calls, no allocation. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "engine/report.h"

/* Both the maker's and init's. */
struct namespaces {
  pid_t maker;              /* 0: nobody */
  int maker_fd;             /* readable when the maker has ended */
  int made, asked_to_leave; /* eventfds: to init, to the maker */
  int network;              /* -1: entered, or not made yet */
  bool joined;
  enum step failed; /* STEP_NONE: all is well */
  int errnum;
};

/* Enters the quick ones, and begins to make the others. All return 0 or a negative errno noted in
 * the report. */
int namespaces_enter(struct namespaces *namespaces, struct start_report *report);

/* After pivot_root: detaches the old root, which lies on top of the new one. Perhaps only begins
 * to. */
int namespaces_leave_root(struct namespaces *namespaces, struct start_report *report);

/* Enters what is not entered yet. May be called again. */
int namespaces_join(struct namespaces *namespaces, struct start_report *report);

/* Waits until nothing of the old root is in reach. The maker ends soon after, as a child of the
 * caller's; `wholly`: it has ended then. */
int namespaces_finish(struct namespaces *namespaces, bool wholly, struct start_report *report);
