/* The snapshot at the start; see changes.h and snapshot.h. It is on the way to the workload's
 * start, so it reads folders and nothing else. */
#include "changes/snapshot.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"

const struct changes_limits changes_default_limits = {
    .milliseconds = 2000, .names = 2000000, .items = 5000};

/* ---- time ---- */

struct walk_deadline walk_deadline_new(unsigned milliseconds) {
  struct walk_deadline deadline = {.milliseconds = milliseconds};
  clock_gettime(CLOCK_MONOTONIC, &deadline.begin);
  return deadline;
}

unsigned deadline_elapsed(const struct walk_deadline *deadline) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (unsigned)((now.tv_sec - deadline->begin.tv_sec) * 1000 +
                    (now.tv_nsec - deadline->begin.tv_nsec) / 1000000);
}

bool walk_deadline_passed(struct walk_deadline *deadline) {
  if (!deadline->passed && ++deadline->tick % 64 == 0)
    deadline->passed = deadline_elapsed(deadline) >= deadline->milliseconds;
  return deadline->passed;
}

/* ---- encoding ---- */

static void append_number(struct text *text, uint64_t number) {
  for (; number >= 0x80; number >>= 7)
    text_append_char(text, (char)(0x80 | (number & 0x7f)));
  text_append_char(text, (char)number);
}

static uint64_t take_number(const char *data, size_t *offset) {
  uint64_t number = 0;
  for (unsigned shift = 0;; shift += 7) {
    unsigned char byte = (unsigned char)data[(*offset)++];
    number |= (uint64_t)(byte & 0x7f) << shift;
    if (!(byte & 0x80))
      return number;
  }
}

/* Small differences of either sign become small numbers. */
static uint64_t fold_sign(uint64_t difference) {
  return difference << 1 ^ (0 - (difference >> 63));
}

static uint64_t unfold_sign(uint64_t folded) {
  return folded >> 1 ^ (0 - (folded & 1));
}

/* ---- taking it ---- */

struct taking {
  struct snapshot *snapshot;
  const struct changes_limits *limits;
  struct walk_deadline deadline;
  uint32_t folder;   /* being read */
  uint64_t previous; /* inode */
  struct text queued;
};

static uint32_t add_folder(struct snapshot *snapshot) {
  ARRAY_GROW(snapshot->folders, snapshot->folder_count);
  snapshot->folders[snapshot->folder_count] = (struct snapshot_folder){0};
  return (uint32_t)snapshot->folder_count++;
}

static bool take_entry(void *context, const struct folder_entry *entry) {
  struct taking *taking = context;
  struct snapshot *snapshot = taking->snapshot;
  if (snapshot->names >= taking->limits->names || walk_deadline_passed(&taking->deadline)) {
    snapshot->complete = false;
    return false;
  }
  size_t name_size = strlen(entry->name) + 1;
  text_append_char(&snapshot->entries, (char)entry->type);
  append_number(&snapshot->entries, fold_sign(entry->inode - taking->previous));
  text_append_bytes(&snapshot->entries, entry->name, name_size);
  taking->previous = entry->inode;
  snapshot->names++;
  snapshot->folders[taking->folder].count++;
  if (entry->type == DT_DIR) {
    add_folder(snapshot);
    text_append_bytes(&taking->queued, entry->name, name_size);
  }
  return true;
}

static void take_folder(struct taking *taking, int fd, uint32_t folder, size_t depth) {
  struct snapshot *snapshot = taking->snapshot;
  size_t first = taking->queued.length;
  uint32_t child_folder = (uint32_t)snapshot->folder_count;
  snapshot->folders[folder].offset = snapshot->entries.length;
  snapshot->folders[folder].first_child = child_folder;
  taking->folder = folder;
  taking->previous = 0;
  bool was_read = folder_read(fd, take_entry, taking) == 0 && snapshot->complete;
  snapshot->folders[folder].was_read = was_read;

  size_t last = taking->queued.length;
  for (size_t at = first; at < last && snapshot->complete; child_folder++) {
    _cleanup_close_ int child =
        depth < SNAPSHOT_DEPTH ? folder_open(fd, taking->queued.data + at) : -1;
    at += strlen(taking->queued.data + at) + 1;
    if (child >= 0)
      take_folder(taking, child, child_folder, depth + 1);
  }
  taking->queued.length = first;
}

static bool is_inside_another(char *const *places, size_t count, size_t which) {
  for (size_t i = 0; i < count; i++) {
    bool same = strcmp(places[i], places[which]) == 0;
    if (i != which && path_is_under(places[which], places[i]) && (!same || i < which))
      return true;
  }
  return false;
}

struct snapshot *changes_snapshot_begin(char *const *places, size_t count,
                                        const struct changes_limits *limits) {
  struct snapshot *snapshot = xcalloc(1, sizeof *snapshot);
  struct taking taking = {.snapshot = snapshot, .limits = limits};
  snapshot->complete = true;
  for (size_t i = 0; i < count; i++)
    if (!is_inside_another(places, count, i)) {
      strv_add(&snapshot->places, places[i]);
      add_folder(snapshot);
    }
  taking.deadline = walk_deadline_new(limits->milliseconds);
  for (size_t i = 0; i < snapshot->places.count; i++) {
    _cleanup_close_ int fd = folder_open(AT_FDCWD, snapshot->places.items[i]);
    if (fd >= 0)
      take_folder(&taking, fd, (uint32_t)i, 1);
  }
  text_clear(&taking.queued);
  snapshot->clock = change_clock_now();
  return snapshot;
}

void snapshot_free(struct snapshot *snapshot) {
  if (!snapshot)
    return;
  strv_clear(&snapshot->places);
  text_clear(&snapshot->entries);
  free(snapshot->folders);
  free(snapshot);
}

size_t snapshot_name_count(const struct snapshot *snapshot) {
  return snapshot->names;
}

/* ---- reading it ---- */

struct snapshot_cursor snapshot_open(const struct snapshot *snapshot, uint32_t folder) {
  if (folder == NO_FOLDER)
    return (struct snapshot_cursor){.snapshot = snapshot};
  const struct snapshot_folder *opened = &snapshot->folders[folder];
  return (struct snapshot_cursor){.snapshot = snapshot,
                                  .offset = opened->offset,
                                  .left = opened->count,
                                  .next_child = opened->first_child};
}

bool snapshot_next(struct snapshot_cursor *cursor, struct folder_entry *ret_entry,
                   uint32_t *ret_folder) {
  if (cursor->left == 0)
    return false;
  cursor->left--;
  const char *data = cursor->snapshot->entries.data;
  ret_entry->type = (unsigned char)data[cursor->offset++];
  cursor->inode += unfold_sign(take_number(data, &cursor->offset));
  ret_entry->inode = cursor->inode;
  ret_entry->name = data + cursor->offset;
  cursor->offset += strlen(ret_entry->name) + 1;
  *ret_folder = ret_entry->type == DT_DIR ? cursor->next_child++ : NO_FOLDER;
  return true;
}
