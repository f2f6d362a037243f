/* One walk over a folder for any number of globs: names only, no stat per file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct walk_entry {
  const char *path;   /* relative to the folder walked */
  const char *name;   /* its last component */
  unsigned char type; /* DT_* as readdir gives it */
  ino_t inode;
};

/* Called for each entry; for a folder, returning false keeps the walk out of it. */
typedef bool walk_visit(void *context, const struct walk_entry *entry);

/* Walks without crossing symbolic links. max_depth 1: the folder's own entries only; 0: no limit.
 * What cannot be opened is passed over. */
void walk_folder(const char *folder, size_t max_depth, walk_visit *visit, void *context);

/* Folders that could not be looked into although they are ours: their mode can be changed by
 * everybody who is us, so also inside. */
struct walk_closed {
  struct closed_folder {
    char *path;
    int errnum; /* why */
  } * items;
  size_t count;
};
void walk_closed_clear(struct walk_closed *closed);
#define _cleanup_walk_closed_ __attribute__((cleanup(walk_closed_clear)))

/* The same, and what could not be looked into. */
void walk_folder_wholly(const char *folder, size_t max_depth, walk_visit *visit, void *context,
                        struct walk_closed *ret_closed);

/* The same for a part of it: a folder below, whose entries are told with their whole path. */
void walk_part(const char *folder, const char *part, walk_visit *visit, void *context);

/* A folder full of other people's files, in which the built-in patterns do not look. */
bool walk_is_bulk(const char *name);
