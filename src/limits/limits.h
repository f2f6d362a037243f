/* Limits of a session: what was asked for, what enforces it here, how much is used and which limit
 * was reached. Never prints. Order of calls: limit_set_resolve, limit_group_create, then the clone
 * with limit_group_clone_fd and, in the new process, limit_group_enter; limit_group_watch once its
 * pid is known; limit_group_sample and limit_group_check while it runs; limit_group_remove. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/strv.h"
#include "core/text.h"
#include "policy/policy.h"

enum limit_kind {
  LIMIT_CPU,        /* nanoseconds of processor time per second */
  LIMIT_MEMORY,     /* bytes, tmpfs and shared memory included */
  LIMIT_PROCESSES,  /* processes and threads at a time */
  LIMIT_DISK,       /* bytes written and kept */
  LIMIT_INODES,     /* files created and kept */
  LIMIT_IO,         /* bytes per second and device */
  LIMIT_TIME,       /* nanoseconds of wall time */
  LIMIT_OPEN_FILES, /* per process */
  LIMIT_FILE_SIZE,  /* bytes of one file */
  LIMIT_COUNT
};

enum limit_enforcer {
  ENFORCER_NONE,
  ENFORCER_CGROUP_V2,
  ENFORCER_CGROUP_V1,
  ENFORCER_RLIMIT,
  ENFORCER_WATCH,
  ENFORCER_TMPFS,
  ENFORCER_TIMER,
  ENFORCER_BACKEND, /* another program that runs the command: a container engine, a guest */
  ENFORCER_COUNT
};

/* ---- what was asked for (pure) ---- */

struct limit_set {
  uint64_t value[LIMIT_COUNT]; /* 0: not limited; units as in enum limit_kind */
};

/* From the policy's units to ours. A value that no machine can hold, or with which no command can
 * start, is an error that says what would do. */
int limit_set_resolve(const struct limits *limits, struct limit_set *ret_set,
                      struct sb_error *error);
bool limit_set_is_empty(const struct limit_set *set);

const char *limit_name(enum limit_kind kind);       /* "memory", "open-files": in JSON and logs */
const char *limit_title(enum limit_kind kind);      /* "memory", "open files": in sentences */
const char *limit_policy_key(enum limit_kind kind); /* "limits.memory_mb" */
const char *limit_enforcer_text(enum limit_enforcer enforcer);

/* The value for people: "512 MiB", "150 % of one core". New string. */
char *limit_describe(const struct limit_set *set, enum limit_kind kind);

/* ---- limits that a process sets for itself ---- */

struct limit_rlimits {
  struct {
    int resource;
    rlim_t value;
  } items[8];
  size_t count;
  bool first_to_die; /* if the machine itself runs out of memory */
};

/* Soft and hard, right before exec. Raw: no allocation. Lower hard limits that are inherited stay.
 * Returns 0 or a negative errno. */
int limit_rlimits_apply(const struct limit_rlimits *rlimits);

/* ---- what is used ---- */

#define USAGE_UNKNOWN UINT64_MAX

struct usage {
  uint64_t cpu_ns, throttled_ns;
  uint64_t memory_bytes, memory_peak_bytes;
  uint64_t processes, processes_peak;
  uint64_t io_read_bytes, io_write_bytes;
  uint64_t disk_bytes, disk_files; /* growth since the start; what the watch found last */
  uint64_t memory_kills;           /* by the kernel, because of the memory limit */
  uint64_t refused_forks;          /* by the kernel, because of the process limit */
};

json_t *usage_to_json(const struct usage *usage);

/* Prometheus text format; the session id becomes a label. Several sessions: one call with all of
 * them, since each metric's samples must stand together. */
struct usage_sample {
  const char *session_id;
  struct usage usage;
};
void usage_to_prometheus(const struct usage_sample *samples, size_t count, struct text *text);

/* Once init has been waited for: its wait4 rusage has all its descendants' processor time. */
void usage_add_rusage(struct usage *usage, const struct rusage *rusage);

/* ---- the group of one session ---- */

struct cgroup_place; /* see place.h; only tests need one */
struct disk_watch;

struct limit_request {
  const struct limit_set *set;
  const char *session_id;
  unsigned own_processes;   /* ours inside the session (init …), on top of the workload's */
  unsigned outer_processes; /* ours in its user namespace alone: only RLIMIT_NPROC counts them */
  bool metrics;             /* wanted even if no limit needs a group */
  bool best_effort; /* what nothing can hold is ENFORCER_NONE, not an error: doctor, `preferred` */
  const struct cgroup_place *place; /* NULL: this machine's */
};

/* One folder in one cgroup hierarchy: the session's own. */
struct limit_hierarchy {
  int parent;           /* the folder it was made in */
  int folder;           /* the session's; locked while we live, see limit_groups_recover */
  int tasks;            /* v1: a process that writes "0" here enters; -1 on v2 */
  unsigned controllers; /* mask of enum cgroup_controller */
};

enum { HIERARCHIES_MAX = 6 };

struct limit_group {
  struct limit_set set;
  enum limit_enforcer enforcers[LIMIT_COUNT];
  struct limit_rlimits rlimits; /* for the workload, right before its exec */
  unsigned own_processes, outer_processes;
  bool metrics; /* also count what no limit needs */
  bool unified; /* the hierarchies are cgroup v2 (there is one) */
  char name[64];
  struct limit_hierarchy hierarchies[HIERARCHIES_MAX];
  size_t hierarchy_count;
  bool monitor_moved; /* v2: we left our own group so that it could have children */

  pid_t init;
  int proc; /* a /proc that shows the session, or -1 */
  bool proc_is_host;
  uint64_t pid_namespace;
  int private_files; /* the session's /tmp, if it is a tmpfs of its own, or -1 */
  struct disk_watch *disk;
  uint64_t start_ns; /* by the clock that dates files */
  uint64_t memory_peak_seen, processes_peak_seen;
};

#define LIMIT_GROUP_NONE ((struct limit_group){.init = -1, .proc = -1, .private_files = -1})

/* Makes the group, or arranges for what takes its place. Nothing is made if no limit and no metric
 * needs it. A limit that nothing can hold here is an error with the way to get it. */
int limit_group_create(const struct limit_request *request, struct limit_group *ret_group,
                       struct sb_error *error);

/* For CLONE_INTO_CGROUP, or -1. */
int limit_group_clone_fd(const struct limit_group *group);

/* In the new process, before anything else: enters the v1 groups and closes its copies of our
 * descriptors. Raw: no allocation. Returns 0 or a negative errno.
 *
 * The process does this itself because writing its pid from outside takes a lock that waits for an
 * RCU grace period (15-35 ms measured on 6.18); "0" into `tasks` does not (60 µs for four). */
int limit_group_enter(const struct limit_group *group);

/* Tells the group its first process, and which folders it can write; both for the watch. Called
 * when the session's /proc is there. Folders may be NULL. */
void limit_group_watch(struct limit_group *group, pid_t init, const struct strv *folders);

/* Takes the session's /proc and /tmp (O_PATH) from who can open them; -1 where there is none. False
 * if they are not its own. Without this they are looked for below its first command. */
bool limit_group_use_folders(struct limit_group *group, int *proc, int *files);

enum limit_enforcer limit_group_enforcer(const struct limit_group *group, enum limit_kind kind);
const char *limit_enforcer_name(const struct limit_group *group, enum limit_kind kind);

/* {"memory": {"limit": "512 MB", "enforced_by": "cgroup v2"}} for each limit that is set. */
json_t *limit_group_to_json(const struct limit_group *group);

/* True if limit_group_check has to be called now and then. */
bool limit_group_needs_watch(const struct limit_group *group);

/* Reads what is used now. What cannot be known is USAGE_UNKNOWN. */
void limit_group_sample(struct limit_group *group, struct usage *ret_usage);

/* One step of the disk watch, at most `budget_ns` long. */
void limit_group_watch_disk(struct limit_group *group, uint64_t budget_ns);

enum limit_verdict {
  LIMIT_FINE,
  LIMIT_REACHED,  /* the kernel refused or killed; the session may go on */
  LIMIT_EXCEEDED, /* only we noticed: end the session */
};

/* Which limit was hit, by the latest sample. The worst verdict wins. Pure. */
enum limit_verdict limit_group_check(const struct limit_group *group, const struct usage *usage,
                                     enum limit_kind *ret_kind);

/* Which limit a process died of, by the signal that ended it (SIGXFSZ …). */
bool limit_group_explains_signal(const struct limit_group *group, int signal,
                                 enum limit_kind *ret_kind);

/* Kills whatever is in the group; the session's init is the caller's. */
void limit_group_kill(const struct limit_group *group);

/* Removes the folders, with what the workload made below them. 0, or a negative errno if a
 * process is still inside after a second. The group is empty afterwards either way. */
int limit_group_remove(struct limit_group *group);

/* Removes the groups of monitors that died, beside this one. Returns how many. */
size_t limit_groups_recover(const struct limit_group *group);

/* ---- pacing (pure) ---- */

/* How long to wait before the next look, if the last one cost that much processor time
 * (CLOCK_THREAD_CPUTIME_ID, or a busy machine would be watched less): at most 2 % of one core,
 * unless that would be longer than the ceiling. */
uint64_t limit_watch_interval(uint64_t cost_ns, uint64_t floor_ns, uint64_t ceiling_ns);

/* ---- wall time (pure) ---- */

enum deadline_state { DEADLINE_RUNNING, DEADLINE_TERMINATING, DEADLINE_KILLED };
enum deadline_action { DEADLINE_NOTHING, DEADLINE_TERM, DEADLINE_KILL };

struct deadline {
  enum deadline_state state;
  uint64_t at_ns; /* when the next step is due; 0: never */
  uint64_t grace_ns;
};

struct deadline deadline_new(uint64_t now_ns, uint64_t limit_ns, uint64_t grace_ns);

/* What is to be done now. Each step is due once. */
enum deadline_action deadline_step(struct deadline *deadline, uint64_t now_ns);

/* Until the next step, for poll: milliseconds, rounded up, or -1. */
int deadline_timeout_ms(const struct deadline *deadline, uint64_t now_ns);
