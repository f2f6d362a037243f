/* One change of a layer in git's patch format, ready for `git apply` and `patch -p1`. */
#pragma once

#include "core/text.h"
#include "overlay/layer.h"

struct patch {
  struct text text;
  size_t added, removed; /* lines */
  bool binary;           /* or too large to be shown */
};

/* What is not in git's format (folders, special files, modes git does not keep) becomes a line
 * that starts with "# ", which both programs skip. */
struct patch patch_make(const struct layer *layer, const struct layer_change *change);
void patch_clear(struct patch *patch);
#define _cleanup_patch_ __attribute__((cleanup(patch_clear)))

/* A name as git writes it: in quotes and with octal escapes unless it is plain ASCII. */
void patch_append_name(struct text *text, const char *prefix, const char *path);

/* A patch for a terminal: coloured if asked for, and whatever would move the cursor, hide or
 * reorder made visible. The result can no longer be applied. */
void patch_append_for_terminal(struct text *text, const struct text *patch, bool colour);
