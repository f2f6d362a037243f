/* Where a path of the workload leads: through what is mounted in its view and, where that is an
 * empty root, through the host's tree as the kernel would walk it if it were there. Only looks,
 * with descriptors that open nothing (O_PATH); no link is followed by the kernel on our behalf. */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "core/strv.h"
#include "gate/target.h"

enum place {
  PLACE_NATIVE,  /* mounted in the view, or missing there: the kernel answers by itself */
  PLACE_FOLDER,  /* a folder that is not, or only as a folder of the empty root */
  PLACE_LINK,    /* a link (that was not to be followed), likewise */
  PLACE_GATED,   /* anything else of the host */
  PLACE_MISSING, /* nothing, also on the host; its folder is one of the two kinds above */
  PLACE_NOWHERE, /* nothing, and no folder for it */
  PLACE_HIDDEN,  /* policy hides it, or a folder on the way: the walk ends there */
};

struct walker {
  int root;    /* the workload's */
  dev_t empty; /* what its own file system is */
  int host;
  bool (*hides)(const void *context, const char *path);
  const void *context;
};

struct walk_request {
  const struct target *target; /* whose /proc/self */
  const char *start;           /* canonical; where a relative path begins */
  const char *top;             /* the highest folder that can be reached ("/") */
  const char *path;
  bool follow; /* also if the last component is a link */
};

struct found {
  enum place place;
  char path[PATH_MAX]; /* canonical */
  int fd;              /* the object, pinned; -1 if it is missing */
  struct stat status;
  /* Folders and links that the empty root lacks for the kernel to go the same way: pairs of path
   * and text of the link; an empty text: a folder. */
  struct strv repeats;
};
#define FOUND_NONE ((struct found){.fd = -1})
void found_clear(struct found *found);

/* Returns 0 or the negative errno that the path itself earns (ELOOP, EACCES, ENOTDIR …). */
int walk_path(const struct walker *walker, const struct walk_request *request,
              struct found *ret_found);

/* Is the object part of the empty root? */
bool walk_is_empty(const struct walker *walker, int fd);

/* Opens a canonical path in the view or on the host, following nothing; a negative errno if not. */
int walk_open(int root, const char *path);

/* Opens any path from a folder on, to hold it only (O_PATH); or a negative errno. */
int walk_open_with(int base, const char *path, unsigned flags, unsigned resolve);
