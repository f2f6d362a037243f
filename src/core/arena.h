/* Strings and small objects that live and die together: a few large blocks instead of hundreds of
 * small ones, released at once. Zero-initialise it. */
#pragma once

#include <stddef.h>

struct arena {
  struct arena_block *blocks; /* newest first */
};

/* Zeroed memory, aligned for anything. */
void *arena_alloc(struct arena *arena, size_t size);
char *arena_strndup(struct arena *arena, const char *string, size_t length);
char *arena_strdup(struct arena *arena, const char *string);

/* "first" and "second" put together. */
char *arena_concat(struct arena *arena, const char *first, const char *second);
void arena_clear(struct arena *arena);

#define _cleanup_arena_ __attribute__((cleanup(arena_clear)))
