/* Which names exist, cheaply: a folder that many rules name something in is read once instead of
 * being asked for each name. Most of the secrets that rules name do not exist. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct listing {
  char *folder;
  size_t length;
  size_t asked;     /* how often */
  bool read;        /* hashes are valid */
  bool missing;     /* there is no such folder */
  uint64_t *hashes; /* of the names in it */
  size_t count;
};

struct listings {
  struct listing *items;
  size_t count;
  size_t around; /* the folder that was read at once, plus one; 0: none */
};

/* Reads a folder at once, in which many names will be asked for. */
void listings_read(struct listings *listings, const char *folder);

/* False if nothing is there for certain; true if it has to be looked at. */
bool listings_may_exist(struct listings *listings, const char *path);
void listings_clear(struct listings *listings);
