/* Private to src/plan: the compiler's working state and its parts, in the order they run. */
#pragma once

#include "plan/listing.h"
#include "plan/mounts.h"
#include "plan/plan.h"
#include "plan/walk.h"

/* An object that exists and that a rule speaks of. */
struct found {
  char *path; /* canonical */
  const struct rule *rule;
  const char *why; /* NULL: the rule says it */
};

struct found_list {
  struct found *items;
  size_t count;
};

struct compiler {
  const struct plan_request *request;
  const struct policy *policy;
  const struct host_context *host;
  struct plan *plan;
  struct found_list hidden;  /* what hide rules name and what exists */
  struct found_list globbed; /* what globs of other kinds match */
  struct found_list sockets; /* where other programs listen */
  struct mount_table mounts; /* the machine's */
  bool dynamic;              /* only what is bound is visible */
  bool unprotects;           /* there is any `unprotect` rule: most policies have none */
  struct strv writable;      /* canonical paths that are writable host objects, parents first */
  struct strv caches;        /* those of them that only builds fill: nobody works there */
  struct strv overlaid;      /* canonical paths under overlays */
  struct strv shown;         /* canonical paths bound read-only */
  struct strv repositories;  /* folders below the project that hold a `.git` of their own */
  struct strv sealed;        /* canonical paths that are protected as a whole */
  struct strv masked;        /* canonical paths that are masked */
  struct strv holes;         /* canonical paths allowed below a mask */
  char *last_point;          /* the mount point in a private place that was added last */
  struct strv fixed;         /* canonical paths that are mount points (pins and protections) */
  struct listings names;     /* which exist, of those that were asked for */
};

void found_add(struct found_list *list, char *path, const struct rule *rule, const char *why);

/* The canonical name of an existing object, or NULL (errno set). */
char *compile_resolve(const char *path);

/* Which private folder covers a path ("/tmp", "/run", …): its name in the private tmpfs and the
 * path it appears at; false if none. */
bool compile_private_place(const char *path, const char **ret_source, const char **ret_place);

/* Makes sure that a mount point for `path` exists if the path lies in a private place. */
void compile_mount_point(struct compiler *compiler, const char *path, bool folder);

/* An empty folder or file in the private tmpfs. */
void compile_private_object(struct compiler *compiler, const char *source, bool folder,
                            unsigned mode);

/* "write ~/x (FILE:LINE:COLUMN)": why an operation is there. New string. */
char *compile_reason(const struct rule *rule);

/* True if an `unprotect` covers the path. */
bool compile_unprotected(const struct compiler *compiler, const char *path);

/* True if the path is one of the list or below one. */
bool compile_covered(const struct strv *list, const char *path);

/* The parts. */
void compile_base(struct compiler *compiler);
void compile_kernel_files(struct compiler *compiler);
int compile_hidden(struct compiler *compiler, struct sb_error *error);
int compile_globs(struct compiler *compiler, struct sb_error *error);
int compile_places(struct compiler *compiler, struct sb_error *error);
int compile_git(struct compiler *compiler, struct sb_error *error);
int compile_protections(struct compiler *compiler, struct sb_error *error);
int compile_network(struct compiler *compiler, struct sb_error *error);
void compile_proxy_variables(struct compiler *compiler);
void compile_sockets(struct compiler *compiler);
void compile_masks(struct compiler *compiler);
int compile_command(struct compiler *compiler, struct sb_error *error);

/* Adds a writable place that no rule names (git's common folder of a worktree). */
void compile_writable(struct compiler *compiler, const char *path, bool folder, const char *why);

/* Fixes a folder in its place, with all folders between it and the writable place it is in. */
void compile_pin(struct compiler *compiler, const char *folder);

/* Fixes a symbolic link in its place without touching what it points to. */
void compile_fix_link(struct compiler *compiler, const char *path, const char *why);

/* Protects what a link leads to, where that is writable; reserves it if it does not exist. */
int compile_protect_target(struct compiler *compiler, const char *link, const char *why,
                           struct sb_error *error);

/* Protects one existing name (or reserves a missing one) inside a writable place, with all folders
 * between them fixed. `content`: what a placeholder file must hold, NULL for a folder. */
/* Fails if one of the closed folders can be written to inside: if its mode is changed there, it has
 * hidden from us what has to be protected in it. */
int compile_check_closed(const struct compiler *compiler, const struct walk_closed *closed,
                         struct sb_error *error);

int compile_protect(struct compiler *compiler, const char *path, bool reserve, const char *content,
                    const char *why, struct sb_error *error);
