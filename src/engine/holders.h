/* Whoever holds a folder of what was taken back, by a descriptor or by working in it. The kernel
 * asks nobody when a name is opened from there, but it crosses mounts: so every name in such a
 * folder is covered, and every folder above it, and what is left to the holder is a list of names.
 * Such folders are watched as long as the session lasts: the kernel takes a cover away when the
 * host replaces what is below it, and new names have none.
 *
 * It finds what /proc shows while it looks: not a descriptor that is in a message on its way, nor
 * those of a process that nobody may look into; and who opens and closes them fast enough may slip
 * through. So it looks several times, and again and again later. Runs in the broker: no allocation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "engine/mounts.h"

#define HOLDERS_LIMIT 256 /* folders; more than that are held by who means to */

struct held_folder {
  int fd, watch;
  uint64_t mount, inode;
};

struct holders {
  struct powers *powers;
  int masks; /* what masks are made of, in the session's mount namespace; -1: not yet */
  dev_t masks_device, cellar_device;
  int changes; /* inotify; -1: not yet */
  struct held_folder folders[HOLDERS_LIMIT];
  size_t count;
  size_t looks; /* since something was taken back the last time, as far as they are counted */
  bool looks_again;
};

/* For all that is in the cellar. Called in the session's mount namespace, and comes back there. 0,
 * or a negative errno if something that is held could not be covered, or may not have been found.
 */
int holders_close(struct holders *holders);

/* When to look again, in milliseconds; -1: never. */
int holders_timeout(const struct holders *holders);
void holders_look(struct holders *holders);

/* When `changes` is readable. */
void holders_renew(struct holders *holders);
