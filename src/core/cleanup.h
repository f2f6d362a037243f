/* Ownership by attribute: what a scope owns is released when the scope ends. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_free_pointer(void *pointer) {
  free(*(void **)pointer);
}

static inline void cleanup_close_fd(int *fd) {
  if (*fd >= 0)
    close(*fd);
}

static inline void cleanup_close_file(FILE **file) {
  if (*file)
    fclose(*file);
}

#define _cleanup_free_  __attribute__((cleanup(cleanup_free_pointer)))
#define _cleanup_close_ __attribute__((cleanup(cleanup_close_fd)))
#define _cleanup_file_  __attribute__((cleanup(cleanup_close_file)))

/* Takes ownership away from a _cleanup_close_ variable. */
static inline int steal_fd(int *fd) {
  int stolen = *fd;
  *fd = -1;
  return stolen;
}

/* Takes ownership away from a _cleanup_free_ variable. */
#define steal_pointer(pointer)                                                                     \
  ({                                                                                               \
    typeof(pointer) *place_ = &(pointer);                                                          \
    typeof(pointer) stolen_ = *place_;                                                             \
    *place_ = NULL;                                                                                \
    stolen_;                                                                                       \
  })

#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
