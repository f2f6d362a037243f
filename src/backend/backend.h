/* One policy, many engines. A back end says whether it can run here, what of a policy it can
 * enforce, and turns a request into a command line; most run by that command line alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "core/error.h"
#include "core/strv.h"
#include "plan/plan.h"
#include "policy/policy.h"

/* What a policy can ask for, and a back end can enforce or not. One name each, in features.c. */
enum backend_feature {
  FEATURE_READ_ALL, /* the whole host tree readable, as in static mode */
  FEATURE_ASK,      /* dynamic mode */
  FEATURE_HIDE,     /* secrets and hidden paths */
  FEATURE_PROTECT,  /* protected names that exist */
  FEATURE_RESERVE,  /* protected names that do not exist yet */
  FEATURE_OVERLAY,
  FEATURE_NETWORK_NONE,
  FEATURE_NETWORK_FILTERED,
  FEATURE_NETWORK_FULL,
  FEATURE_PUBLISH,
  FEATURE_UNIX_SOCKETS,
  FEATURE_LIMIT_MEMORY,
  FEATURE_LIMIT_CPU,
  FEATURE_LIMIT_PROCESSES,
  FEATURE_LIMIT_DISK,
  FEATURE_LIMIT_TIME,
  FEATURE_NO_DEBUG,
  FEATURE_SYSCALL_FILTER,
  FEATURE_PRIVATE_TMP,
  FEATURE_PROCESS_ISOLATION, /* own pid namespace, or a kernel of its own */
  FEATURE_COUNT,
};
#define FEATURE(name) (UINT64_C(1) << FEATURE_##name)

struct backend_status {
  bool available;
  char *why; /* why not, or which version; one line */
  char *fix; /* what would make it available; NULL if it is */
};

struct backend_request {
  const struct host_context *host;
  const struct policy *policy;
  const struct plan *plan; /* compiled for this machine: what the view should be */
  const struct limit_set *limits;
  const char *session_id;
  const char *scratch; /* a private folder for files of this run; NULL in a dry wrap */
  bool has_terminal;
};

/* A file the command needs and that is passed by descriptor (a seccomp program) or by name in the
 * scratch folder (a profile). */
struct wrapped_file {
  char *path; /* NULL: by descriptor */
  int fd;     /* the number the command expects; -1: by name */
  void *content;
  size_t size;
};

/* What would run the request: all that a caller needs to run it without us. */
struct wrapped {
  struct strv argv;
  struct strv environment;
  struct wrapped_file *files;
  size_t file_count;
  struct strv end_argv; /* ends what argv left behind (a container); empty: nothing to do */
};

struct backend {
  const char *name, *summary;
  uint64_t features; /* what it can enforce where it is available */
  void (*probe)(const struct host_context *host, const struct policy *policy,
                struct backend_status *ret_status);
  int (*wrap)(const struct backend_request *request, struct wrapped *ret, struct sb_error *error);
  /* NULL: the generic runner executes what `wrap` gave (signals, time limit, capture, end_argv). */
  int (*run)(const struct backend_request *request, int *ret_exit, struct sb_error *error);
};

/* In the order of preference; ends with NULL. */
extern const struct backend *const backends[];
