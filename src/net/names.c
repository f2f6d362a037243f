/* Synthetic addresses; see names.h. A table of names by number, and a hash table of numbers. */
#include "net/names.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

#define BUCKETS (NAMES_LIMIT * 2) /* a power of two */
#define NOTHING UINT16_MAX

static const struct address v4_range = {.family = 4, .bytes = {198, 18}};
static const struct address v6_range = {.family = 6,
                                        .bytes = {0xfd, 's', 'a', 'n', 'd', 'b', 'o', 'x'}};

struct names {
  char *by_number[NAMES_LIMIT];
  uint16_t next[NAMES_LIMIT]; /* in the same bucket */
  uint16_t buckets[BUCKETS];
  unsigned taken, oldest;
};

struct names *names_new(void) {
  struct names *names = xcalloc(1, sizeof *names);
  memset(names->buckets, 0xff, sizeof names->buckets);
  return names;
}

void names_free(struct names *names) {
  for (size_t i = 0; names && i < NAMES_LIMIT; i++)
    free(names->by_number[i]);
  free(names);
}

static uint32_t bucket_of(const char *name) {
  uint32_t hash = 2166136261u; /* FNV-1a */
  for (; *name; name++)
    hash = (hash ^ (uint8_t)*name) * 16777619u;
  return hash & (BUCKETS - 1);
}

static void forget(struct names *names, unsigned number) {
  uint16_t *link = &names->buckets[bucket_of(names->by_number[number])];
  while (*link != number)
    link = &names->next[*link];
  *link = names->next[number];
  free(names->by_number[number]);
}

static unsigned free_number(struct names *names) {
  if (names->taken < NAMES_LIMIT)
    return names->taken++;
  unsigned number = names->oldest;
  names->oldest = (names->oldest + 1) % NAMES_LIMIT;
  forget(names, number);
  return number;
}

unsigned names_add(struct names *names, const char *name) {
  uint32_t bucket = bucket_of(name);
  for (uint16_t at = names->buckets[bucket]; at != NOTHING; at = names->next[at]) {
    if (strcmp(names->by_number[at], name) == 0)
      return at;
  }
  unsigned number = free_number(names);
  names->by_number[number] = xstrdup(name);
  names->next[number] = names->buckets[bucket];
  names->buckets[bucket] = (uint16_t)number;
  return number;
}

/* 0 is the network's own address, and x.x.x.255 looks like a broadcast to some programs. */
static unsigned to_host_part(unsigned number) {
  return (number / 254) * 256 + number % 254 + 1;
}

struct address names_v4(unsigned number) {
  struct address address = v4_range;
  unsigned part = to_host_part(number);
  address.bytes[1] = (uint8_t)(v4_range.bytes[1] | part >> 16);
  address.bytes[2] = (uint8_t)(part >> 8);
  address.bytes[3] = (uint8_t)part;
  return address;
}

struct address names_v6(unsigned number) {
  struct address address = v6_range;
  unsigned part = to_host_part(number);
  address.bytes[13] = (uint8_t)(part >> 16);
  address.bytes[14] = (uint8_t)(part >> 8);
  address.bytes[15] = (uint8_t)part;
  return address;
}

bool names_is_synthetic(const struct address *address) {
  return address_within(address, &v4_range, 15) || address_within(address, &v6_range, 64);
}

const char *names_find(const struct names *names, const struct address *address) {
  if (!names_is_synthetic(address))
    return NULL;
  const uint8_t *low = address->bytes + (address->family == 6 ? 13 : 1);
  unsigned part =
      (unsigned)(address->family == 6 ? low[0] : low[0] & 1) << 16 | (unsigned)low[1] << 8 | low[2];
  if (part % 256 == 0 || part % 256 == 255)
    return NULL;
  unsigned number = (part / 256) * 254 + part % 256 - 1;
  if (number >= names->taken)
    return NULL;
  struct address exact = address->family == 6 ? names_v6(number) : names_v4(number);
  return address_equal(&exact, address) ? names->by_number[number] : NULL;
}
