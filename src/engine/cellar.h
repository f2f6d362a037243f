/* Where a granted folder goes when it is taken back and somebody still holds a part of it.
 *
 * Unmounting it lazily would free it of the masks and protections below it: the kernel takes a tree
 * apart when it is detached, and whoever holds a folder of it would then read what was hidden. So
 * it is moved, with all that is mounted in it, to a place that nobody can walk to, and stays there
 * until the session ends. */
#pragma once

#include <stdbool.h>

#define CELLAR_PLACE "/dev" /* a sealed tmpfs of the session's own, in every session */

/* In the session's mount namespace. Takes the mount at the path away. Returns 0 if nothing is left
 * of it, 1 if it is kept, or a negative errno. */
int cellar_take(const char *path);

/* Attaches a mount there that nobody is to find. 0 or a negative errno. */
int cellar_put(int mount);

/* Is this, as the kernel names it, in a folder that was taken back? */
bool cellar_has(const char *path);
