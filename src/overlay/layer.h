/* What an overlay's upper layer says, compared with the folder below it: the list that `diff`
 * shows and `apply` carries out. The workload chose every name, type, mode and depth in the layer;
 * reading it follows nothing, waits for nothing and changes nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "changes/changes.h"
#include "core/arena.h"
#include "overlay/store.h"

struct layer_change {
  enum change_kind kind;
  const char *path;      /* relative to the overlaid folder */
  mode_t old_mode, mode; /* 0 if there is or was nothing */
  off_t size;
  ino_t old_inode; /* of the original, to notice a change between reading and applying */
  struct timespec old_stamp;
  bool contents;        /* not only the mode differs */
  bool makes_room;      /* deleted because something of another type takes its place */
  const char *conflict; /* why applying it would lose what somebody else did; or NULL */
  const char *problem;  /* why it can be neither shown nor applied; or NULL */
  unsigned flags;       /* enum change_flag */
  const char *reason;
};

struct layer {
  const struct overlay_layer *place;
  int upper, lower;             /* folders */
  bool at_home;                 /* the place is the home folder */
  struct layer_change *changes; /* in the order of their paths */
  size_t count;
  struct arena strings;
};

/* Reads one layer of an overlay. */
int layer_read(const struct overlay *overlay, size_t index, const char *home,
               struct layer *ret_layer, struct sb_error *error);
void layer_clear(struct layer *layer);
#define _cleanup_layer_ __attribute__((cleanup(layer_clear)))

/* Adds what a layer says to a report of changes. */
void layer_report(const struct layer *layer, struct changes *changes,
                  const struct changes_limits *limits);

/* Opens the folder that holds a path below a root, without passing any symbolic link or mount, and
 * points *ret_name at the path's last component. Negative errno on failure. */
int layer_open_parent(int root, const char *path, const char **ret_name);

/* Opens a regular file below a root for reading, as strictly. Negative errno on failure. */
int layer_open_file(int root, const char *path);

/* The target of a link below a root, or NULL. New string. */
char *layer_read_link(int root, const char *path);
