/* The machine's mounts, as far as the plan needs them: which paths show the same objects. */
#pragma once

#include <stddef.h>

#include "core/strv.h"

struct mount_entry {
  const char *device; /* its number, as the kernel writes it */
  const char *root;   /* which part of the file system is mounted */
  const char *point;  /* where */
  const char *type;   /* of the file system */
};

struct mount_table {
  struct mount_entry *entries;
  size_t count;
  char *text; /* the entries point into it */
};

int mount_table_load(struct mount_table *ret_table);
void mount_table_clear(struct mount_table *table);
#define _cleanup_mounts_ __attribute__((cleanup(mount_table_clear)))

/* The mount that shows a path: the longest mount point above it, the newest if stacked; or NULL.
 * Pure. */
const struct mount_entry *mount_of(const struct mount_table *table, const char *path);

/* The other paths at which mounts show the object at `path`, or something inside it. Pure. */
void mount_aliases(const struct mount_table *table, const char *path, struct strv *ret_aliases);
