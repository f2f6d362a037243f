/* The namespaces that init enters besides those it was born in. A network namespace takes the
 * kernel 0.5 ms, a tenth of a start: where nothing needs it before the view is complete, a process
 * beside init makes it, on a processor that the monitor no longer needs. Raw system calls, no
 * allocation. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "engine/report.h"

/* Both the maker's and init's; the maker runs on its own stack. */
struct namespaces {
  pid_t maker; /* 0: nobody; they are entered */
  int network;
  enum step failed; /* STEP_NONE: all is well */
  int errnum;
  _Alignas(16) char stack[16 * 1024];
};

/* Enters the quick ones. The others as well, unless they may come later: then until
 * namespaces_join. Returns 0 or a negative errno noted in the report. */
int namespaces_enter(struct namespaces *namespaces, bool later, struct start_report *report);

/* Enters what is not entered yet. */
int namespaces_join(struct namespaces *namespaces, struct start_report *report);
