/* How a snapshot is kept, for the comparison. One long string of entries, folder after folder:
 * a byte for the type, the inode as a difference to the one before (two or three bytes mostly),
 * the name and its NUL. About 20 bytes per name. */
#pragma once

#include "changes/changes.h"
#include "core/folder.h"
#include "core/strv.h"
#include "core/text.h"

enum { NO_FOLDER = UINT32_MAX, SNAPSHOT_DEPTH = 800 };

struct snapshot_folder {
  size_t offset;        /* of its first entry */
  uint32_t count;       /* of entries */
  uint32_t first_child; /* its folders are numbered in the order of their entries from here */
  bool was_read;
};

struct snapshot {
  struct strv places; /* place number i is folder number i */
  struct text entries;
  struct snapshot_folder *folders;
  size_t folder_count;
  size_t names;
  bool complete;
  struct change_clock clock;
};

/* Decodes the entries of a folder one by one. */
struct snapshot_cursor {
  const struct snapshot *snapshot;
  size_t offset;
  uint32_t left, next_child;
  uint64_t inode;
};

struct snapshot_cursor snapshot_open(const struct snapshot *snapshot, uint32_t folder);

/* The next entry and, for a folder, its number (else NO_FOLDER). False at the end. */
bool snapshot_next(struct snapshot_cursor *cursor, struct folder_entry *ret_entry,
                   uint32_t *ret_folder);

/* A walk's time limit, looked at every now and then. */
struct walk_deadline {
  struct timespec begin;
  unsigned milliseconds, tick;
  bool passed;
};

struct walk_deadline walk_deadline_new(unsigned milliseconds);
bool walk_deadline_passed(struct walk_deadline *deadline);
unsigned deadline_elapsed(const struct walk_deadline *deadline);
