/* What a session changed in writable places. At the start a snapshot of names is taken (no stat
 * per file), at the end the places are walked once more and compared. Both are bounded in time and
 * memory, and say so when they had to stop. Never prints. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "changes/judge.h"
#include "core/arena.h"

struct changes_limits {
  unsigned milliseconds; /* for one walk over all places */
  size_t names;          /* kept in a snapshot */
  size_t items;          /* kept in a report; dangerous ones may add as many again */
};
extern const struct changes_limits changes_default_limits;

/* ---- the beginning ---- */

struct snapshot;

/* Remembers the names below some folders, and the time. Places inside another place are part of
 * it. Call it before anything of the session exists in the places (also our own placeholders). */
struct snapshot *changes_snapshot_begin(char *const *places, size_t count,
                                        const struct changes_limits *limits);
void snapshot_free(struct snapshot *snapshot);

size_t snapshot_name_count(const struct snapshot *snapshot);

/* ---- the time of a start, comparable with the stamps of files ---- */

struct change_clock {
  struct timespec start;
  int64_t offset_ns; /* wall clock minus time since boot: shows whether somebody set the clock */
};

/* File stamps come from the kernel's coarse clock, which lags behind the fine one by up to a tick:
 * with the fine one, the first milliseconds of a session would look older than its start. */
struct change_clock change_clock_now(void);

/* The same of a moment in which that clock has just gone on: whatever was changed before has an
 * older stamp, also a moment before. Waits for it, a few milliseconds at most. */
struct timespec change_clock_tick(void);

/* The start as the clock of now would have shown it, if it was set back meanwhile. */
struct timespec change_clock_start(const struct change_clock *clock);

/* True if a stamp is not older than the start. */
bool stamp_is_since(struct timespec stamp, struct timespec start);

/* ---- the end ---- */

struct change {
  enum change_kind kind;
  const char *place; /* absolute */
  const char *path;  /* relative to the place */
  mode_t mode;       /* type and permissions; only the type is known if it was deleted */
  bool contents;     /* modified: not only its mode, owner or links */
  unsigned flags;    /* enum change_flag */
  const char *reason;
};

struct changes {
  struct change *items; /* sorted by place and path */
  size_t count;
  size_t totals[CHANGE_KIND_COUNT]; /* all, also those that are not in items */
  size_t dangerous;                 /* all that have a dangerous flag */
  size_t left_out;                  /* counted, but not in items */
  size_t unreadable;                /* folders that could not be read */
  bool complete;                    /* both walks came to their end */
  unsigned milliseconds;            /* what the last walk took */
  struct arena strings;
};

/* Compares the places with the snapshot. */
struct changes *changes_report(const struct snapshot *snapshot, const char *home,
                               const struct changes_limits *limits);

/* For other sources of changes, such as an overlay's layer: an empty report, one more change (the
 * strings are copied, the flags are judged), and the final order. */
struct changes *changes_new(void);
void changes_add(struct changes *changes, const struct judged *judged, bool contents,
                 const struct changes_limits *limits);
void changes_sort(struct changes *changes);
void changes_free(struct changes *changes);

static inline void cleanup_snapshot(struct snapshot **snapshot) {
  snapshot_free(*snapshot);
}
static inline void cleanup_changes(struct changes **changes) {
  changes_free(*changes);
}
#define _cleanup_snapshot_ __attribute__((cleanup(cleanup_snapshot)))
#define _cleanup_changes_  __attribute__((cleanup(cleanup_changes)))

/* ---- showing ---- */

/* {"created":N,"modified":N,"deleted":N,"dangerous":N,"complete":true,...,"items":[...]} */
json_t *changes_to_json(const struct changes *changes);

/* What deserves a look first, then the rest, at most `lines` lines each; every name is escaped. A
 * new folder stands for what is in it. "" if nothing changed. New string. */
char *changes_to_text(const struct changes *changes, size_t lines);

/* The same from what changes_to_json made, for `sandbox report`. New string. */
char *changes_json_to_text(const json_t *json, size_t lines);
