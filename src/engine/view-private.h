/* Private to the files of the view. All return 0, or what they say, or a negative errno. */
#pragma once

#include "engine/view.h"

struct fs_option {
  const char *key, *value; /* value NULL: a flag; key NULL: not set */
};

/* A file system that is attached nowhere yet: a descriptor. */
int view_new_filesystem(const char *type, const struct fs_option *options, size_t count,
                        unsigned attributes);

/* Takes the tree over as the new root, inside the private tmpfs, which is attached for it. */
int view_become_root(struct view *view, int *tree);

/* In view-gate.c: the root and, if the gate serves files, that file system. */
int view_apply_gate(struct view *view, const struct operation *operation);

/* A name of the gate's, put into the root with all that is below it. */
int view_show_gated(struct view *view, const char *name, bool folder);

/* Whatever else is in the host's root, by the gate. */
int view_show_rest(struct view *view);
