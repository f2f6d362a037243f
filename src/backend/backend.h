/* One policy, many engines. A back end says whether it can run here, what of a policy it can
 * enforce, and turns a request into a command line; most run by that command line alone. Nothing
 * here prints. A new one: its file, a line in registry.c, a section in docs/BACKENDS.md. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/strv.h"
#include "limits/limits.h"
#include "plan/plan.h"
#include "policy/policy.h"
#include "session/session.h"

/* What a policy can ask for, and a back end can enforce or not. One row each in features.c. */
enum backend_feature {
  FEATURE_READ_ALL, /* the host's own tools and files where they always are */
  FEATURE_ASK,      /* dynamic mode */
  FEATURE_HIDE,     /* secrets and hidden paths outside of writable places */
  FEATURE_HIDE_IN_WRITABLE,
  FEATURE_PROTECT,       /* protected names that exist */
  FEATURE_PROTECT_LINKS, /* protected names that are symbolic links, kept as links */
  FEATURE_RESERVE,       /* protected names that do not exist yet */
  FEATURE_READONLY_IN_WRITABLE,
  FEATURE_OVERLAY,
  FEATURE_NETWORK_NONE,
  FEATURE_NETWORK_FILTERED,
  FEATURE_NETWORK_FULL,
  FEATURE_NETWORK_DRIVER, /* a plain IP stack */
  FEATURE_PUBLISH,
  FEATURE_UNIX_SOCKETS,
  FEATURE_NO_LISTENING,
  FEATURE_LIMIT_MEMORY,
  FEATURE_LIMIT_CPU,
  FEATURE_LIMIT_PROCESSES,
  FEATURE_LIMIT_DISK, /* also inodes */
  FEATURE_LIMIT_IO,
  FEATURE_LIMIT_FILES, /* open files, file size */
  FEATURE_LIMIT_TIME,
  FEATURE_NO_DEBUG,
  FEATURE_TIME_OFFSET,
  FEATURE_CONTAINERS, /* containers inside */
  FEATURE_VIRTUAL_MACHINES,
  FEATURE_SYSCALL_FILTER,
  FEATURE_PRIVATE_TMP,
  FEATURE_PROCESS_ISOLATION, /* own pid namespace, or a kernel of its own */
  FEATURE_SIGNAL_ISOLATION,  /* processes outside cannot be signalled */
  FEATURE_METADATA,          /* modes, owners and times outside of writable places stay */
  FEATURE_COUNT,
};
#define FEATURE(name) (UINT64_C(1) << FEATURE_##name)

/* "network-none", for JSON and tables. */
const char *backend_feature_name(enum backend_feature feature);

/* What the policy asks for in words: mode, network, limits. Before the mode is set to static for a
 * back end that cannot ask. Pure. */
uint64_t backend_policy_features(const struct policy *policy, const struct limit_set *limits);

/* What the compiled plan needs on top: masks, protections, overlays. Pure. */
uint64_t backend_plan_features(const struct plan *plan);

/* What every session of the native engine has without being asked: the difference is a warning for
 * a back end that was named, and a reason to pass over one that was not. */
uint64_t backend_base_features(void);

/* The features of a set in words, one each. */
void backend_describe_features(uint64_t features, struct strv *ret_words);

struct backend_status {
  bool quick; /* for the probe: it was asked for by name and runs next, which shows the rest */
  bool available;
  uint64_t features; /* what it can enforce here: a kernel or a version may lack something */
  char *why;         /* why not, or which version; one line */
  char *fix;         /* what would make it available; NULL if it is */
};
void backend_status_clear(struct backend_status *status);
#define _cleanup_backend_status_ __attribute__((cleanup(backend_status_clear)))

/* For probes: sets available, or why not and how to get it. */
void backend_available(struct backend_status *status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void backend_missing(struct backend_status *status, const char *fix, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

struct backend_request {
  const struct host_context *host;
  const struct policy *policy;
  const struct plan *plan; /* compiled for this machine: what the view should be */
  const struct limit_set *limits;
  const char *session_id;
  const char *scratch; /* a private folder for files of this run; made by the runner if needed */
  bool has_terminal;   /* stdin or stdout will be a terminal of its own */
  bool only_words;     /* nothing will be run: the words must do without files of ours */
  bool weaken;         /* what cannot be enforced has been accepted: leave it out */
  uint64_t lost;       /* the features that this is about */
  /* For running only. */
  int lifeline; /* the run ends when its other end is closed; 0: none */
  enum terminal_mode terminal;
  bool capture;
  size_t capture_limit;
  struct log *log;
  session_listener *listener;
  void *listener_context;
  struct audit *audit; /* the session's log; set by backend_run */
  pid_t *guard;        /* if not NULL: gets a guard that has done its work and is still to be waited
                          for, which takes the kernel a while; set by backend_run */
};

/* A file the command needs: passed by descriptor (a seccomp program), or made in the scratch
 * folder (a profile), or a folder there. */
struct wrapped_file {
  char *path; /* NULL: by descriptor */
  int fd;     /* the number the command expects; -1: by name */
  bool folder;
  bool unreadable; /* mode 0: something to be mounted over a secret */
  void *content;
  size_t size;
};

/* What would run the request: all that a caller needs to run it without us. */
struct wrapped {
  struct strv argv;
  struct strv environment;
  struct wrapped_file *files;
  size_t file_count;
  struct strv end_argv;   /* ends what argv left behind (a container); empty: nothing to do */
  struct strv enter_argv; /* runs one more command in it, if options, `enter_name` and the command
                             follow; empty: cannot be entered */
  char *enter_name;

  /* How the runner has to treat it. */
  bool signals_inside;  /* signals go to the first command in its pid namespace; else to argv's own
                           process, which passes them on */
  bool shielded;        /* the tool itself ignores SIGINT and SIGQUIT of its terminal, and gives the
                           command the default back */
  int status_fd;        /* the number of a pipe on which the tool reports, or -1 */
  const char *ran_mark; /* found in that report if the command was started at all */
  const char *started_mark; /* found in it from when the command is there for signals */
  bool own_placeholders;    /* missing protected names need something to be mounted on */
  unsigned limits_held;     /* by argv itself, 1 << LIMIT_*: not the runner's business */
  size_t command_index;     /* where the user's command starts in argv */
};
#define WRAPPED_NONE ((struct wrapped){.status_fd = -1})
void wrapped_clear(struct wrapped *wrapped);
#define _cleanup_wrapped_ __attribute__((cleanup(wrapped_clear)))

/* Adds a file that argv refers to; content is copied. Descriptors count from 3. */
int wrapped_add_descriptor(struct wrapped *wrapped, const void *content, size_t size);
void wrapped_add_file(struct wrapped *wrapped, const char *path, const void *content, size_t size);
void wrapped_add_unreadable(struct wrapped *wrapped, const char *path);
void wrapped_add_folder(struct wrapped *wrapped, const char *path);
/* Appends words to argv; ends with NULL. */
void wrapped_words(struct wrapped *wrapped, ...) __attribute__((sentinel));

/* For callers who run it without our runner: adds the placeholders to its files, and to end_argv
 * the removal of all its files. */
void wrapped_complete(struct wrapped *wrapped, const struct backend_request *request);

json_t *wrapped_to_json(const struct wrapped *wrapped);
/* One line for a shell, and what it needs as comments before. New string. */
char *wrapped_to_text(const struct wrapped *wrapped);

/* How the command's process confines itself, to save the exec of a tool. All but `begin` may be
 * called between fork and exec; they return 0 or a negative errno. */
struct backend_entrance {
  int (*begin)(const struct wrapped *wrapped); /* a descriptor that the process inherits */
  /* In the runner, while the process starts: what need not be done by the process itself. */
  int (*prepare)(const struct wrapped *wrapped, int begun);
  /* In the process; before and after `prepare` has ended. */
  int (*enter)(const struct wrapped *wrapped, const char **ret_doing);
  int (*finish)(const struct wrapped *wrapped, int begun, const char **ret_doing);
};

struct backend {
  const char *name, *summary;
  uint64_t features;    /* what it can enforce where it is available */
  bool never_chosen;    /* only by name: it shows another file system, or another machine */
  bool limits_by_group; /* memory, processor, processes, io: by a cgroup of ours around it */
  /* Tries whether it works here; starts from available false and all features of the back end. */
  void (*probe)(const struct host_context *host, const struct policy *policy,
                struct backend_status *status);
  /* NULL: the native engine, which needs no other program. */
  int (*wrap)(const struct backend_request *request, struct wrapped *ret, struct sb_error *error);
  const struct backend_entrance
      *entrance; /* instead of argv up to command_index; NULL: exec argv */
  /* NULL: the generic runner executes what `wrap` gave (signals, time limit, capture, end_argv). */
  int (*run)(const struct backend_request *request, struct session_result *ret_result,
             struct sb_error *error);
  bool keeps_log; /* `run` records start and end in the audit log itself */
};

/* Whether the vm back end has a machine for the processor that this program was built for. */
bool vm_knows_processor(void);

/* In the order of preference; ends with NULL. */
extern const struct backend *const backends[];
extern const struct backend native_backend;

/* By name; the error suggests the nearest one. */
const struct backend *backend_find(const char *name, struct sb_error *error);

/* Runs the probe. `asked` is what the caller wants to know about: some answers cost time. `quick`:
 * see struct backend_status. */
void backend_probe(const struct backend *backend, const struct host_context *host,
                   const struct policy *policy, uint64_t asked, bool quick,
                   struct backend_status *ret_status);

/* What a request needs. */
struct backend_needs {
  uint64_t asked;  /* by the policy: missing is an error */
  bool weaken;     /* …or a warning */
  bool only_words; /* nothing is started: it need not be available */
};

/* A choice, and what is lost by it. */
struct backend_choice {
  const struct backend *backend;
  uint64_t lost;   /* asked for, and not had */
  uint64_t weaker; /* of what the native engine always has */
};

/* Checks one back end that was asked for by name: it must be available and enforce what is needed.
 */
int backend_choose_named(const struct backend *backend, const struct host_context *host,
                         const struct policy *policy, const struct backend_needs *needs,
                         struct backend_choice *ret_choice, struct sb_error *error);

/* Takes the first back end but the native one that is available and enforces all; with `weaken` the
 * one that loses least. Returns false if there is none; *ret_reasons says why, one line each. */
bool backend_choose_other(const struct host_context *host, const struct policy *policy,
                          const struct backend_needs *needs, struct backend_choice *ret_choice,
                          struct strv *ret_reasons);

/* Where files of a run would go; it need not exist. New string. */
char *backend_scratch_path(const char *session_id);

/* Runs a request by the back end's own `run`, or by the generic runner. Exit codes of the result
 * are those of docs/RESULTS.md; nothing of it is left afterwards. */
int backend_run(const struct backend *backend, const struct backend_request *request,
                struct session_result *ret_result, struct sb_error *error);

/* The generic runner itself, for a `run` that only has something to do before. */
int backend_run_wrapped(const struct backend *backend, const struct backend_request *request,
                        struct session_result *ret_result, struct sb_error *error);

/* The matrix: one object per back end. */
json_t *backend_list_to_json(const struct host_context *host, const struct policy *policy);
char *backend_list_to_text(const struct host_context *host, const struct policy *policy);

/* ---- for back ends that are other programs (tool.c) ---- */

/* The absolute path of a program on $PATH, or NULL. New string. */
char *tool_find(const char *name);

/* A program of our own that is not for $PATH, such as sandbox-vm; canonical, or NULL. New string.
 */
char *tool_find_own(const char *name);

struct tool_version {
  int major, minor, patch;
};
/* The first number of the form A.B[.C] in a text; false if there is none. Pure. */
bool tool_parse_version(const char *text, struct tool_version *ret_version);
bool tool_at_least(struct tool_version version, int major, int minor, int patch);

/* Runs a program for at most `seconds`, returns its exit status (or -1) and the first 4 KB that it
 * printed on stdout and stderr together. New string. */
int tool_ask(char *const argv[], int seconds, char **ret_output);

/* The version of an installed program, by `NAME --version`. */
bool tool_version(const char *path, struct tool_version *ret_version);
