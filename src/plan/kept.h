/* What has to stay as the plan made it while a session runs. A mask or protection is a mount on an
 * object; when the host puts another object in its place, the mount is gone. This lists the names
 * at which that would matter, those of secrets that do not exist yet among them, and the folders in
 * which a pattern may find one later. The engine's keeper watches them. Data only: looks at the
 * file system, changes nothing. */
#pragma once

#include <stdint.h>

#include "plan/plan.h"

enum kept_kind {
  KEPT_PIN,   /* a mount point, so that it cannot be renamed */
  KEPT_SEAL,  /* read-only */
  KEPT_MASK,  /* unreadable */
  KEPT_PLACE, /* writable, or changes kept apart: unreadable rather than anything else */
};

struct kept_name {
  enum kept_kind kind;
  char *path;    /* canonical, as the workload sees it */
  char *content; /* of the file that takes its place, or NULL: empty */
  bool held;     /* must not be created inside: when it vanishes, a placeholder takes its place */
  bool folder;   /* the placeholder is one */
  bool holes;    /* a mask that some of what is below may be seen through */
  bool dirty;    /* the keeper's: to be looked at */
  bool watched;  /* the keeper's: changes are reported by the kernel */
  uint64_t writer_until_ns; /* the keeper's: until then somebody may have it open for writing */
};

/* How many folders are watched for names that patterns hide, for one session. */
#define KEPT_FOLDER_LIMIT 4096

/* Patterns that begin in one folder, and where a name that they match may appear. */
struct kept_tree {
  char *folder;
  struct glob_set *patterns;
  size_t max_depth; /* 0: no limit */
  bool only_builtin;
};

struct kept_list {
  struct kept_name *names; /* in the order in which they are to be made */
  size_t name_count;
  struct kept_tree *trees;
  size_t tree_count;
};

struct kept_request {
  const struct plan *plan;
  const struct policy *policy; /* NULL: only what the plan names */
  const struct host_context *host;
  const struct plan *grown;            /* of places that were granted later; may be NULL */
  const struct strv *granted;          /* trees that became visible later; may be NULL */
  const struct strv *granted_writable; /* those of them that may be written to */
};

void kept_list_fill(const struct kept_request *request, struct kept_list *ret_list);
void kept_list_clear(struct kept_list *list);

/* Adds what a granted tree needs: the names of `grown` below it, secrets in it, and, if an answer
 * allowed it, the names that secrets have. */
void kept_list_add_tree(const struct kept_request *request, struct kept_list *list,
                        const char *tree);

/* Forgets a tree that was taken away again, and the names below it. */
void kept_list_drop_tree(struct kept_list *list, const char *tree);

/* Is the object of a path on the host what the workload finds there, unless it is masked? */
bool kept_is_shown(const struct kept_request *request, const char *path);

/* A name that appeared: is it hidden by one of the trees' patterns? Folders are left alone by the
 * built-in ones, which speak of files: a virtual environment may well be called ".env". */
bool kept_hides(const struct kept_request *request, const struct kept_list *list, const char *path,
                bool is_folder);

/* Cheap: false if no tree's pattern can match a name that ends so. */
bool kept_may_hide(const struct kept_list *list, const char *path);

/* Walks a tree: for each folder in which its patterns may match something, `enter` is called
 * before the folder is read (false: stay out), then `found` for each name that they match. */
struct kept_visitor {
  bool (*enter)(void *context, const char *folder);
  void (*found)(void *context, const char *path, bool is_folder);
  void *context;
};
void kept_walk(const struct kept_tree *tree, size_t max_depth, const struct kept_visitor *visitor);

/* The same where the plan has looked already: a folder whose change time is older than that is only
 * entered, for what was in it is known. */
void kept_walk_again(const struct kept_tree *tree, const struct walked *walked,
                     const struct kept_visitor *visitor);

/* Where patterns of the policy begin; for kept_list_fill, by the part that knows globs. */
void kept_add_trees(const struct kept_request *request, struct kept_list *list);
