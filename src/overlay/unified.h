/* A unified diff of two texts, as diff -u writes its hunks. Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/text.h"

struct unified {
  struct text hunks; /* "@@ -1,3 +1,4 @@" and so on; empty if nothing differs */
  size_t added, removed;
  bool too_long; /* more lines than are worth comparing; nothing else is filled in */
};

struct unified unified_diff(const char *old, size_t old_length, const char *new, size_t new_length);
void unified_clear(struct unified *unified);
#define _cleanup_unified_ __attribute__((cleanup(unified_clear)))

/* git's rule: a NUL among the first 8000 bytes. */
bool looks_binary(const char *data, size_t length);
