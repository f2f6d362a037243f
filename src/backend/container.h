/* What podman and docker have in common: from a plan to the words of one `run`. Looks at the host
 * (what exists, file or folder), changes nothing; the two files of the tools find out the rest. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "backend/backend.h"
#include "plan/mounts.h"

/* Who the command is inside, so that its files belong to the caller outside. */
enum container_identity {
  CONTAINER_SAME_IDS, /* the daemon is the real root: the same numbers inside and outside */
  CONTAINER_KEEP_ID,  /* rootless podman: its user namespace maps the caller to himself */
  CONTAINER_AS_ROOT,  /* rootless docker: root inside is the caller outside */
  CONTAINER_CREATE,   /* a user made in the image at the start, by the image's own tools */
};

/* What the tool and the machine are like. Strings are borrowed. */
struct container_setup {
  const char *program; /* "podman" */
  const char *image, *runtime;
  enum container_identity identity;
  bool is_podman;
  bool has_init;    /* a small init for the container is installed */
  const char *init; /* which one; NULL: the engine knows */
  bool is_labelled; /* SELinux enforces: mounts would be unreadable */
  bool has_proxies; /* docker's configuration names some */
  bool is_remapped; /* the daemon has a user namespace, and must not use it */
  unsigned long long open_files, own_processes; /* limits of the caller to pass on, or 0 */
  const char *scratch;                          /* for files of this run; NULL: none are made */
  const struct mount_table *mounts;             /* of the host; may be NULL */
  const struct strv *control_sockets;           /* that exist here; may be NULL */
};

/* Which limits the engine holds, given what it was found not to; as `limits_held`. */
unsigned container_held_limits(uint64_t lost);

/* The whole: argv, end_argv and the files. */
int container_wrap(const struct container_setup *setup, const struct backend_request *request,
                   struct wrapped *ret, struct sb_error *error);

/* ---- what is mounted ---- */

enum container_mount_kind {
  CONTAINER_BIND,
  CONTAINER_BIND_READONLY,
  CONTAINER_OVERLAY,
  CONTAINER_MASK,
  CONTAINER_HOME, /* an empty, writable folder in memory */
};

struct container_mount {
  enum container_mount_kind kind;
  char *path;   /* on the host and, translated, in the container */
  char *source; /* NULL: the same */
  char *upper;  /* OVERLAY: holds the folders "upper" and "work" */
  bool folder;
};

struct container_mounts {
  struct container_mount *items; /* parents first */
  size_t count;
};
void container_mounts_clear(struct container_mounts *mounts);
#define _cleanup_container_mounts_ __attribute__((cleanup(container_mounts_clear)))

/* What of the plan, and of the paths the policy lets it read, appears in the container. A host's
 * control socket that policy lists is an error; one that lies below a mount is masked. */
int container_mounts_collect(const struct container_setup *setup,
                             const struct backend_request *request,
                             struct container_mounts *ret_mounts, struct sb_error *error);

/* ---- words (pure) ---- */

/* Where a host path is in the container: the same, except that "C:\a\b" becomes "/c/a/b". NULL for
 * a Windows path that has no place there (a network share, "C:a"). New string. */
char *container_path(const char *host_path);

/* One field of a --mount option, quoted where a comma or a quote would split it. New string. */
char *container_field(const char *key, const char *value);

/* True if a path is, by its name, a socket that commands a container engine. */
bool container_is_control_socket(const char *path);

/* A value that every reader of environment files takes literally. */
bool container_plain_value(const char *entry);

/* ---- the machine (container-host.c) ---- */

#define CONTAINER_DEFAULT_IMAGE "ubuntu:22.04"

/* What both can enforce. The root is the image's, so the host's own tree is not there. */
#define CONTAINER_FEATURES                                                                         \
  (FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) | FEATURE(RESERVE) |               \
   FEATURE(READONLY_IN_WRITABLE) | FEATURE(OVERLAY) | FEATURE(NETWORK_NONE) |                      \
   FEATURE(NETWORK_FULL) | FEATURE(PUBLISH) | FEATURE(UNIX_SOCKETS) | FEATURE(LIMIT_MEMORY) |      \
   FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_FILES) | FEATURE(LIMIT_TIME) |    \
   FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |                   \
   FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA))

/* The image that the policy or the option names, or the default. */
const char *container_image(const struct policy *policy);

/* Removes containers of sessions whose processes were all killed, and runs this one. */
int container_run(const struct backend *backend, const struct backend_request *request,
                  struct session_result *ret_result, struct sb_error *error);

bool container_has_image(const char *program, const char *image);
void container_image_missing(struct backend_status *status, const char *tool, const char *image);

/* The policy names a runtime that the engine does not know; `where` says how it learns of one. */
void container_runtime_missing(struct backend_status *status, const char *tool, const char *runtime,
                               const char *where);

/* What would leave files behind that only another user can remove, for this caller. */
uint64_t container_unclean_features(void);

/* What a tool said first, without its "Error:", escaped. New string. */
char *container_first_line(const char *output);

/* Fills in what both tools share, and wraps. */
int container_wrap_here(struct container_setup *setup, const struct backend_request *request,
                        struct wrapped *ret, struct sb_error *error);
