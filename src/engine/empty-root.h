/* The root of a session in dynamic mode is a tmpfs, read-only for everybody inside. What is made in
 * it later is made here: by the broker, in the session's mount namespace, through a writable mount
 * of its own. No link is followed, and nothing is allocated. All give 0 or a negative errno. */
#pragma once

#include <stdbool.h>

#include "engine/mounts.h"

enum made { MADE_FOLDER, MADE_FILE, MADE_LINK };

/* Makes an entry, and the folders on the way to it. `target` is a link's text. */
int empty_root_make(const char *path, enum made made, const char *target);

/* Takes a link away again, if it is still the same. */
int empty_root_forget(const char *path, const char *target);

/* All that the FUSE gate serves; fd -1: none. */
struct root_gate {
  int fd;
  bool attached;
};

/* The name `path` in "/" becomes what the host has there now: a part of the gate, a link or
 * nothing. What is mounted there by others stays: -EBUSY. Leaves us in either namespace. */
int empty_root_follow(struct powers *powers, struct root_gate *gate, const char *path);
