/* Answers a trapped call in the kernel's place: one that only looks at an object need not be let to
 * it. */
#pragma once

#include <sys/statfs.h>

#include "gate/call.h"

/* The kernel's stat64, statfs and statfs64 of 32-bit programs. */
#if defined(__x86_64__)
#define SMALL_ALIGNED 1
#else
#define SMALL_ALIGNED 2 /* words: no number of 64 bits begins at an odd one */
#endif

struct __attribute__((packed)) small_status {
  uint64_t device;
  uint32_t none, short_inode, mode, links, user, group;
  uint64_t special;
  uint32_t none_either[SMALL_ALIGNED];
  uint64_t size;
  uint32_t block_size[SMALL_ALIGNED];
  uint64_t blocks;
  uint32_t times[6];
  uint64_t inode;
};

struct small_space {
  uint32_t type, block_size, blocks[3], files[2];
  int id[2];
  uint32_t name_length, fragment_size, flags, none[4];
};

struct __attribute__((packed)) middle_space {
  uint32_t type, block_size;
  uint64_t blocks[3], files[2];
  int id[2];
  uint32_t name_length, fragment_size, flags, none[4];
};

struct told {
  long value;       /* what the call returns */
  uint64_t address; /* where the data goes in the caller's memory */
  size_t size;      /* 0: nothing goes there */
  union {
    struct stat status;
    struct statx extended;
    struct statfs space;
    struct small_status small_status;
    struct small_space small_space;
    struct middle_space middle_space;
    char bytes[1 << 16]; /* the longest attribute */
  } data;
};

/* Returns 0, or the negative errno that the call ends with; -ENOTSUP: this one cannot be answered.
 * The object is pinned (O_PATH). */
int tell_call(const struct call *call, int object, struct told *ret_told);

/* What access(2) and its like would say outside: 0, or a negative errno. */
int tell_rights(const struct call *call, int object);

/* Does it ask how much room there is? */
bool tell_is_of_space(const struct call *call);
