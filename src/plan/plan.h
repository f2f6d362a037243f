/* The plan: what policy, flags and the machine compile to. An ordered list of typed operations and
 * the few settings around it; data only. It is printed by --dry-run, and executed by the engine
 * without any further decision. Making a plan looks at the file system but changes nothing. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "core/error.h"
#include "core/strv.h"
#include "engine/landlock.h"
#include "engine/seccomp.h"
#include "net/settings.h"
#include "plan/project.h"
#include "policy/policy.h"

/* Operations on the file system view, in the order in which their phases run. */
enum operation_kind {
  OPERATION_PLACEHOLDER_FOLDER, /* outside: an empty folder where a protected name is missing */
  OPERATION_PLACEHOLDER_FILE,   /* outside, only below .git: a file that git reads as nothing */
  OPERATION_PRIVATE_FOLDER,     /* a folder in the session's private tmpfs */
  OPERATION_PRIVATE_FILE,       /* an empty file there */
  OPERATION_PRIVATE_LINK,       /* a symbolic link there */
  OPERATION_ROOT,               /* the host's whole tree, recursively read-only */
  OPERATION_GATE,           /* the gate in its place: what is not mounted over it is asked for */
  OPERATION_LINK,           /* a symbolic link of the host, in the gate's empty root */
  OPERATION_PRIVATE,        /* a part of the private tmpfs appears at a path, writable */
  OPERATION_PRIVATE_SEALED, /* the same, read-only */
  OPERATION_DEVICE,         /* one device node of the host */
  OPERATION_DEVPTS,         /* a terminal instance of its own */
  OPERATION_PROC,           /* /proc of the session's pid namespace */
  OPERATION_SYSFS,          /* /sys of the session's network namespace, read-only */
  OPERATION_WRITABLE,       /* a host object, writable */
  OPERATION_READONLY,       /* a host object, read-only, inside something writable */
  OPERATION_OVERLAY,        /* a host folder, writable, changes kept apart */
  OPERATION_PIN,            /* a folder becomes a mount point so that it cannot be renamed */
  OPERATION_PROTECT,        /* a protected name, read-only */
  OPERATION_SEAL,           /* a part of the view itself becomes read-only (/proc/sys) */
  OPERATION_MASK,           /* a secret: an empty, unreadable object in its place */
  OPERATION_COUNT
};

/* How the engine treats a target that is not there. */
enum operation_flag {
  OPERATION_OPTIONAL = 1 << 0, /* a missing object is fine (kernel-dependent files of /proc) */
  OPERATION_NOFOLLOW = 1 << 1, /* the last component is a symbolic link and meant as such */
  OPERATION_HOLES = 1 << 2,    /* a mask before the places, some of which are holes in it */
};

struct operation {
  enum operation_kind kind;
  unsigned flags;
  char *path;    /* in the workload's view, absolute and free of symbolic links */
  char *source;  /* host path, name in the private tmpfs, or link text; NULL if it is `path` */
  char *upper;   /* OVERLAY: folder for the changes; `work` lies beside it */
  char *text;    /* PRIVATE_FILE: what it holds, or NULL: nothing */
  unsigned mode; /* PRIVATE_FOLDER */
  char *why;     /* for people: which rule or need put it here */
};

/* A socket as it was before the command could change names. */
struct plan_socket {
  char *path; /* canonical */
  dev_t device;
  ino_t inode;
  bool movable; /* the session can give its name to another */
};

/* The folders that were read for patterns, for who looks at them again: most will not have changed
 * since. */
struct walked_folder {
  char *path;
  ino_t inode;
};
struct walked {
  struct walked_folder *folders; /* NULL: too many, or a file system that does not tell kinds */
  size_t count;
  struct timespec at; /* before the first was read */
  bool failed;
};

/* What makes an access wait for a decision in dynamic mode. */
enum gate_kind { GATE_NONE, GATE_FUSE, GATE_NOTIFY };

enum terminal_mode { TERMINAL_AUTO, TERMINAL_ALWAYS, TERMINAL_NEVER };

struct plan {
  struct operation *operations;
  size_t operation_count;
  size_t base_count; /* the first of them: what every session has; see plan_begin */

  struct strv arguments;        /* the command, argv[0] included */
  struct strv script_arguments; /* the same for the shell, if the file turns out to be a script */
  struct strv executables;      /* where to look for it, in order */
  struct strv environment;      /* NAME=value */
  char *working_folder;
  char *hostname;
  long long time_offset_seconds;
  bool has_time_offset;
  bool weaker_nested; /* without a /proc of its own the session may start all the same */

  struct seccomp_variant seccomp;
  bool no_listening;           /* network.allow_local_binding: false */
  bool guards_sockets;         /* connect(2) is done by the connector (engine/connector.h) */
  bool unix_datagrams;         /* network.unix_datagrams: such sockets may be made all the same */
  struct plan_socket *sockets; /* of the host, which policy allows to connect to */
  size_t socket_count;
  struct landlock_plan landlock;
  struct network_settings network;
  enum terminal_mode terminal;
  unsigned long long private_size_bytes, private_inodes;

  struct strv publish; /* "8080:80" */
  enum gate_kind gate;
  bool ask_writes;
  struct strv touched_read, touched_write; /* granted without a question when first touched */
  struct strv hidden; /* dynamic mode: every object that is never shown, canonical */

  struct walked walked; /* the monitor's: not in the session's copy */
  struct strv warnings; /* for people, before the start; already escaped */
  struct strv notes;    /* what was left out and why; for --dry-run and --verbose */
};

/* What the command line adds to the policy. */
struct plan_request {
  const struct host_context *host;
  const struct policy *policy;
  const char *session_id;
  char *const *command; /* NULL-terminated, at least one word */
  long long time_offset_seconds;
  bool has_time_offset;
  enum terminal_mode terminal;
  enum gate_kind gate;        /* dynamic mode: the trigger to use */
  const char *overlay_folder; /* where overlay uppers of this session live */
  bool outside_files;         /* the command gets files that its caller opened, now or by `exec` */
  bool for_backend;           /* another engine runs it, and has been asked what it can enforce */
};

/* Begins a plan with what does not depend on the policy's rules: the base operations, and the
 * settings that are needed to apply them (sizes, clocks, host name, ABIs). It takes microseconds,
 * so that the engine can build the base while the rest is compiled. */
int plan_begin(const struct plan_request *request, struct plan *ret_plan, struct sb_error *error);

/* Completes it; an empty plan is begun first. The base operations stay as and where they are. A
 * protection that was asked for and cannot be had is an error, and then the plan is empty. */
int plan_compile(const struct plan_request *request, struct plan *plan, struct sb_error *error);

/* The plan for one more folder that becomes writable in a running session: placeholders, pins,
 * protections and masks below it, and nothing else. */
int plan_place(const struct host_context *host, const struct policy *policy, const char *place,
               struct plan *ret_plan, struct sb_error *error);

/* The same for one name below such a folder that somebody denied before. */
struct denied_name {
  const char *path;
  const char *place; /* the folder that it lies in and that becomes writable; NULL: none */
  bool writes;       /* only writing was denied */
};
#define PLAN_DENIED "denied" /* why operations of this kind are there */
int plan_denied(const struct host_context *host, const struct policy *policy,
                const struct denied_name *denied, struct plan *ret_plan, struct sb_error *error);

/* Forgets what covers or reserves a path, because of `why` or for any reason (NULL). Folders above
 * it stay where they are. Returns how many operations there were. */
size_t plan_drop(struct plan *plan, const char *path, const char *why);
void plan_clear(struct plan *plan);
#define _cleanup_plan_ __attribute__((cleanup(plan_clear)))

/* Appends an operation; strings are copied. The result is valid until the next append. */
struct operation *plan_add(struct plan *plan, enum operation_kind kind, const char *path,
                           const char *source, const char *why_format, ...)
    __attribute__((format(printf, 5, 6)));

/* What the caller himself cannot open, the command cannot open either: same ids, same file. It
 * needs no mask. For root, who can, everything is masked. */
bool plan_is_closed(const struct host_context *host, const char *path);

bool plan_has_overlays(const struct plan *plan);

/* Does a folder stand for this name, which is protected and not there? */
bool plan_reserves(const struct plan *plan, const char *path);

/* Whether files that a caller opened outside can only be used as they were opened; see
 * plan_request.outside_files. Without Landlock nothing ever holds them, and that is said. */
bool plan_holds_outside_files(const struct plan *plan);

/* Is it, by its host path, within a writable place, but not writable itself? */
bool plan_guards_file(const struct plan *plan, const char *path);

/* Where a command may be found by the PATH of this environment (or where it says itself). */
void plan_find_executables(const struct strv *environment, const char *command,
                           struct strv *ret_places);

/* Sets NAME=value in an environment, replacing an earlier one. */
void plan_set_variable(struct strv *environment, const char *name, const char *value);

void operation_clear(struct operation *operation);
/* What we were doing, for an error message: "masking the secret" … */
const char *operation_doing(enum operation_kind kind);

json_t *plan_to_json(const struct plan *plan);
char *plan_to_text(const struct plan *plan);
