/* Second names (hard links) of hidden files in a folder that a session is to see. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/strv.h"
#include "plan/mounts.h"

struct second_names {
  const struct strv *hidden;        /* files, and folders of files */
  const struct mount_table *mounts; /* the machine's, as they were read; NULL: as they are now */
  size_t max_depth;                 /* as in walk_folder; 0: also what is mounted in the folder */
  size_t limit;                     /* so many names are looked at; 0: all */
};

/* Adds the names, those that are hidden themselves among them. False if that cannot be known:
 * there are more than the limit. */
bool second_names_find(const struct second_names *request, const char *folder,
                       struct strv *ret_names);
