/* Why the kernel wants an object's attributes. It checks by them whether a caller may use it, and
 * for some calls that is all that it ever asks. */
#pragma once

#include <limits.h>

#include "gate/target.h"

enum purpose {
  PURPOSE_UNKNOWN, /* the caller may hold the object's lock */
  PURPOSE_LOOK,    /* to tell them (stat) */
  PURPOSE_EXECUTE, /* the right to run it is to be seen in them */
  PURPOSE_USE,     /* for a call that asks for more, and can wait then (open, mkdir …) */
  PURPOSE_TEST,    /* access(2), chdir(2): nothing more will be asked for */
  PURPOSE_WATCH,   /* inotify_add_watch(2): nor here */
};

/* `path` is the object's; `ret_mask`: what a TEST is for (R_OK …). A folder may only be on the way
 * of the call; W_OK is told of one where it ends, and not of others. */
enum purpose purpose_of(const struct target *target, const char *path, bool folder, int *ret_mask);

/* Is it about to make a name in this folder, if there is none? */
bool purpose_is_to_make(const struct target *target, const char *folder,
                        char ret_name[NAME_MAX + 1]);
