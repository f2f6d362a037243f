/* Calls that look a name up and then use it without asking its file system: nothing would wait for
 * a decision. What a thread is doing is read from outside while its look-up waits for us. Nothing
 * is protected by it: whoever is not recognised here uses the gate's own object, which holds
 * nothing. */
#pragma once

#include <sys/stat.h>

#include "gate/access.h"
#include "gate/stand-in.h"

enum quiet {
  QUIET_NOT,    /* another call, or it only passes */
  QUIET_ASKED,  /* it follows links, so it can be made to wait */
  QUIET_REFUSED /* it cannot, and would seem to work */
};

struct quiet_use {
  enum want want;
  struct stand_in_call call; /* as who makes it in its place must know it */
};

/* Is the thread in such a call, and is the object (at this canonical path) what it is about? */
enum quiet quiet_call(const struct target *target, const char *path, const struct stat *object,
                      struct quiet_use *ret_use);

/* Is it looking at a descriptor that it has, and not at a path that could be walked again? */
bool quiet_has_descriptor(const struct target *target);

/* Does it change an owner? The kernel then looks at the attributes by itself. */
bool quiet_changes_owner(const struct target *target);
