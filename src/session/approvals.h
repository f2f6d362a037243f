/* What was decided for the rest of the session: by tree for files, by name and port for the
 * network. Pure. */
#pragma once

#include <stddef.h>

#include "core/strv.h"
#include "gate/access.h"

enum approval_verdict {
  APPROVAL_ALLOW,
  APPROVAL_DENY,
  APPROVAL_ASK, /* revoked: what a stored grant allowed at the start is asked about again */
};

struct approval {
  enum access_subject subject;
  enum approval_verdict verdict;
  bool write;   /* allow: writes, too; deny: writes only */
  bool connect; /* allow: a socket may be spoken to, not only looked at */
  bool names;   /* allow: the names in this very folder, and nothing else */
  enum grant_scope scope;
  char *path;             /* file: with everything below it, unless it is about names */
  uint64_t device, inode; /* file: only this object; 0: whatever has the name */
  char *host;             /* network */
  uint16_t port;
  bool secret; /* allowed although it is a built-in secret: never stored */
};

struct approvals {
  struct approval *items; /* oldest first */
  size_t count;
};

#define APPROVALS_LIMIT 16384 /* beyond it the oldest that allows is forgotten, and asked again */

/* Paths below the tree that are denied by themselves, for reading or for writing only. */
void approvals_denied_below(const struct approvals *approvals, const char *tree, bool writes,
                            struct strv *ret_paths);

/* Copies; replaces one for the same object and kind of access. */
void approvals_add(struct approvals *approvals, const struct approval *approval);

/* The deepest one that covers the request; of equally deep ones the newest. NULL if none does. */
const struct approval *approvals_find(const struct approvals *approvals,
                                      const struct access_request *request);

/* Was a stored grant that covers the request taken back, whatever was answered since? */
bool approvals_is_revoked(const struct approvals *approvals, const struct access_request *request);

/* Was a part of the tree taken back, and not allowed again since? */
bool approvals_revoked_below(const struct approvals *approvals, const char *tree, bool writes);

/* Forgets those for exactly this path or host (also HOST:PORT). Returns how many there were, and
 * whether they only denied something. */
size_t approvals_remove(struct approvals *approvals, enum access_subject subject, const char *name,
                        bool *ret_denials);

/* Forgets that the names in this folder are allowed. Returns false if they were not. */
bool approvals_remove_names(struct approvals *approvals, const char *path);
void approvals_clear(struct approvals *approvals);

/* Reading, listing, looking and running are one class of access: a person who allows one of them
 * expects the others. Writing and connecting are classes of their own. */
enum access_class { CLASS_READ, CLASS_WRITE, CLASS_CONNECT };
enum access_class access_class_of(enum want want);
