/* Arena allocation; see arena.h. Must never move what it handed out. */
#include "core/arena.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

enum { ARENA_BLOCK_SIZE = 16384 };

struct arena_block {
  struct arena_block *next;
  size_t used, capacity;
  alignas(max_align_t) char data[];
};

static struct arena_block *block_with_room(struct arena *arena, size_t size) {
  struct arena_block *block = arena->blocks;
  if (block && block->capacity - block->used >= size)
    return block;
  size_t capacity = size > ARENA_BLOCK_SIZE ? size : ARENA_BLOCK_SIZE;
  block = xmalloc(sizeof *block + capacity);
  *block = (struct arena_block){.next = arena->blocks, .capacity = capacity};
  return arena->blocks = block;
}

static char *take(struct arena *arena, size_t size) {
  struct arena_block *block = block_with_room(arena, size);
  char *at = block->data + block->used;
  block->used += size;
  return at;
}

void *arena_alloc(struct arena *arena, size_t size) {
  size_t align = alignof(max_align_t);
  char *at = take(arena, size + align - 1);
  at += -(size_t)at & (align - 1);
  return memset(at, 0, size);
}

char *arena_strndup(struct arena *arena, const char *string, size_t length) {
  char *copy = take(arena, length + 1);
  memcpy(copy, string, length);
  copy[length] = '\0';
  return copy;
}

char *arena_strdup(struct arena *arena, const char *string) {
  return arena_strndup(arena, string, strlen(string));
}

char *arena_concat(struct arena *arena, const char *first, const char *second) {
  size_t first_length = strlen(first), second_length = strlen(second);
  char *joined = take(arena, first_length + second_length + 1);
  memcpy(joined, first, first_length);
  memcpy(joined + first_length, second, second_length + 1);
  return joined;
}

void arena_clear(struct arena *arena) {
  for (struct arena_block *block = arena->blocks, *next; block; block = next) {
    next = block->next;
    free(block);
  }
  arena->blocks = NULL;
}
