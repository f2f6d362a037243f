/* Which names exist, cheaply; see listing.h. */
#include "plan/listing.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/folder.h"
#include "core/path.h"

/* Reading costs as much as dozens of questions; a huge folder more than it saves. */
#define ASKED_BEFORE_READING 32
#define NAMES_LIMIT          1024

/* Of one component. */
static uint64_t hash_name(const char *name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const unsigned char *byte = (const unsigned char *)name; *byte && *byte != '/'; byte++)
    hash = (hash ^ *byte) * 0x100000001b3;
  return hash;
}

static bool has_name(const struct listing *listing, const char *name) {
  uint64_t hash = hash_name(name);
  for (size_t i = 0; i < listing->count; i++) {
    if (listing->hashes[i] == hash)
      return true;
  }
  return false;
}

/* Its index: the list may move. In a folder that does not exist nothing has to be looked for. */
static size_t listing_of(struct listings *listings, const char *path, size_t length) {
  for (size_t i = listings->count; i-- > 0;) {
    const struct listing *listing = &listings->items[i];
    if (listing->length == length && memcmp(listing->folder, path, length) == 0)
      return i;
  }
  char *folder = xstrndup(path, length);
  bool missing = !listings_may_exist(listings, folder);
  ARRAY_GROW(listings->items, listings->count);
  listings->items[listings->count] =
      (struct listing){.folder = folder, .length = length, .missing = missing};
  return listings->count++;
}

static bool remember(void *context, const struct folder_entry *entry) {
  struct listing *listing = context;
  if (listing->count >= NAMES_LIMIT)
    return false;
  ARRAY_GROW(listing->hashes, listing->count);
  listing->hashes[listing->count++] = hash_name(entry->name);
  return true;
}

/* Where ".SSH" may be meant by ".ssh", only the kernel knows; so, too, where it does not tell. */
static bool has_exact_names(int fd) {
  unsigned flags = 0;
  return ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 && !(flags & FS_CASEFOLD_FL);
}

static void read_listing(struct listing *listing) {
  _cleanup_close_ int fd = open(listing->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  listing->missing = fd < 0 && (errno == ENOENT || errno == ENOTDIR);
  listing->read = fd >= 0 && has_exact_names(fd) && folder_read(fd, remember, listing) == 0 &&
                  listing->count < NAMES_LIMIT;
}

/* The more often we are asked, the more it is worth. */
static void look_closer(struct listing *listing, size_t asked) {
  if (asked == 2)
    listing->missing = access(listing->folder, F_OK) < 0 && (errno == ENOENT || errno == ENOTDIR);
  else if (asked == ASKED_BEFORE_READING)
    read_listing(listing);
}

void listings_read(struct listings *listings, const char *folder) {
  size_t at = listing_of(listings, folder, strlen(folder));
  listings->items[at].asked = ASKED_BEFORE_READING;
  read_listing(&listings->items[at]);
  listings->around = at + 1;
}

/* Most names begin with one that does not exist in the folder that was read. */
static bool begins_nowhere(const struct listings *listings, const char *path) {
  const struct listing *around = listings->around ? &listings->items[listings->around - 1] : NULL;
  return around && around->read && strncmp(path, around->folder, around->length) == 0 &&
         path[around->length] == '/' && !has_name(around, path + around->length + 1);
}

bool listings_may_exist(struct listings *listings, const char *path) {
  const char *name = path_base(path);
  if (name - path < 2)
    return true;
  if (begins_nowhere(listings, path))
    return false;
  size_t at = listing_of(listings, path, (size_t)(name - path) - 1);
  struct listing *listing = &listings->items[at];
  if (!listing->missing)
    look_closer(listing, ++listing->asked);
  if (listing->missing)
    return false;
  return !listing->read || has_name(listing, name);
}

void listings_clear(struct listings *listings) {
  for (size_t i = 0; i < listings->count; i++) {
    free(listings->items[i].folder);
    free(listings->items[i].hashes);
  }
  free(listings->items);
  *listings = (struct listings){0};
}
