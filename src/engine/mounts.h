/* Mount powers inside a session's user namespace, for the two processes outside that have them: the
 * broker, which makes approved objects visible, and the keeper, which keeps masks and protections
 * in their places. Both stand in a mount namespace of their own (the host's whole view) and step
 * into the session's to work there. No allocation; no name is resolved through a symbolic link. */
#pragma once

#include <stdint.h>

enum where { IN_OWN, IN_SESSION };

struct powers {
  int own_ns, session_ns; /* mount namespaces */
  enum where where;
  int staging; /* a tmpfs in our own namespace that holds what masks are made of; -1: not yet */
};

/* Enters the session's user namespace, with a mount namespace of its own, and keeps what mounting
 * needs and `more` (bits by number), and nothing else. Takes both descriptors over. 0 or a negative
 * errno, as all of these. */
int powers_enter(struct powers *powers, int user_ns, int mount_ns, uint64_t more);

/* Both namespaces' roots are where this leaves us. */
int powers_go(struct powers *powers, enum where where);

/* Prepares what masks are made of. Only in our own namespace, as the next. */
int powers_stage(struct powers *powers);

/* A detached mask that fits the object. */
int powers_new_mask(const struct powers *powers, int target);

/* Opens an absolute path (O_PATH): no link is followed, the last component may be one. */
int mounts_open(const char *path);

/* A detached copy of what is mounted at a place; attributes are added to it, and it becomes
 * private. For the view of a session that starts as well. */
int mounts_clone(int fd, const char *name, unsigned flags);
int mounts_set(int tree, uint64_t attributes, unsigned flags);
int mounts_attach(int tree, int target);
