/* A few pages shared between the monitor and the processes it starts. The child notes here how far
 * it came; when it fails, the monitor makes the sentence. Pointers are into the plan, which both
 * have at the same address, or into constant text. The workload loses the page with its exec. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

/* Points in time of a start, for --timing; in the order in which they normally happen. */
enum phase {
  PHASE_BEGIN,        /* the command's main() */
  PHASE_PLANNED,      /* policy loaded, plan compiled */
  PHASE_CLONED,       /* user, pid and mount namespaces exist */
  PHASE_IDENTITY,     /* ids mapped (parent) */
  PHASE_BASE,         /* what does not depend on the policy is mounted (child) */
  PHASE_PLACEHOLDERS, /* missing protected names have placeholders (parent) */
  PHASE_NAMESPACES,   /* the other namespaces exist (child) */
  PHASE_VIEW,         /* file system view complete (child) */
  PHASE_SPAWNED,      /* the workload's exec succeeded or failed (init) */
  PHASE_EXITED,       /* the workload ended (init) */
  PHASE_FINISHED,     /* everything is cleaned up (monitor) */
  PHASE_COUNT
};

/* What the child was doing; index into the table of sentences in start.c. */
enum step {
  STEP_NONE,
  STEP_LIMITS,
  STEP_NAMESPACES,
  STEP_LOOPBACK,
  STEP_NETWORK,
  STEP_HOSTNAME,
  STEP_PRIVATE,
  STEP_OPERATION,
  STEP_PIVOT,
  STEP_TIME,
  STEP_TERMINAL,
  STEP_FORK,
  STEP_KEYRING,
  STEP_WORKING_FOLDER,
  STEP_RLIMIT,
  STEP_CAPABILITIES,
  STEP_LANDLOCK,
  STEP_SECCOMP,
  STEP_LISTENER,
  STEP_EXEC,
  STEP_COUNT
};

/* How the start of a command failed. */
struct command_failure {
  volatile enum step step; /* STEP_NONE: it did not */
  volatile int errnum;
};

/* The path that a process of ours, which nobody can look into, is about to use. The gate by seccomp
 * notify sees its calls, but only the address of the path. */
struct announced_path {
  volatile uint64_t address;
  char path[PATH_MAX];
};

struct start_report {
  volatile enum step failed; /* STEP_NONE while all is well */
  volatile int errnum;
  volatile size_t operation;   /* STEP_OPERATION: index into the plan */
  const char *volatile detail; /* STEP_LANDLOCK: the path */
  volatile bool weaker_proc;   /* a fresh /proc was refused: nested mode */
  volatile bool weaker_sysfs;
  volatile bool weaker_sockets; /* connect(2) could not be made to wait for the connector */
  volatile pid_t command;       /* pid inside of the workload's first process */
  struct command_failure spawn; /* of the command being started */
  volatile pid_t spawned;
  struct announced_path announced;
  volatile pid_t connecting; /* the thread for which the connector looks a name up; 0: none */
  volatile bool workload_done;
  volatile int wait_status;
  struct timespec phases[PHASE_COUNT];
};

static inline void report_phase(struct start_report *report, enum phase phase) {
  clock_gettime(CLOCK_MONOTONIC, &report->phases[phase]);
}

/* Notes the failure of a step; returns its negative errno. */
static inline int report_failure(struct start_report *report, enum step step, int negative_errno) {
  report->errnum = -negative_errno;
  report->failed = step;
  return negative_errno;
}
