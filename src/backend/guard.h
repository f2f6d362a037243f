/* Private to src/backend: the process between the runner and the tool. It is the parent of all that
 * the tool leaves behind (a subreaper), outlives the runner by exactly the time of cleaning up, and
 * so leaves nothing after a kill -9 of the runner either. */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "backend/backend.h"
#include "limits/limits.h"

enum guard_request {
  GUARD_SIGNAL,       /* for the workload's first process */
  GUARD_SIGNAL_GROUP, /* for its process group, as a terminal does it */
  GUARD_SIGNAL_ALL,   /* for every process of the workload */
  GUARD_END,          /* kill everything now */
  GUARD_PREPARED,     /* first of all, with an entrance: `prepare` has ended; for the tool itself */
};

struct guard_message {
  enum guard_request request;
  int signal; /* GUARD_PREPARED: what it returned */
};

/* What became of it; sent once, before the guard ends. */
struct guard_report {
  int errnum;         /* the tool could not be started; 0: it was */
  char doing[64];     /* …what failed */
  int wait_status;    /* of the tool */
  struct rusage used; /* by the tool and all that it waited for */
};

struct guard_input {
  const struct backend *backend;
  const struct wrapped *wrapped;
  const struct limit_group *limits;
  const char *scratch; /* removed at the end; NULL: none was made */
  int channel;         /* SEQPACKET, the guard's end */
  int runner_channel;  /* the runner's, open in the guard by the fork only */
  pid_t runner;
  int descriptors[3]; /* for the tool; -1: as they are */
  int terminal;       /* its controlling terminal, or -1 */
  int status;         /* the pipe for wrapped->status_fd, or -1 */
  int begun;          /* what the entrance began; or a negative errno */
  sigset_t mask;      /* to be given back to the tool */
};

/* Forks the guard. Returns its pid or a negative errno. */
pid_t guard_start(const struct guard_input *input);

/* Removes a scratch folder and what is in it. */
void guard_remove_scratch(const char *path);
