/* Private to the keeper: its state and its parts. */
#pragma once

#include "engine/keeper.h"
#include "engine/mounts.h"

/* A watched folder. Several paths lead to it if it is mounted at several places. */
struct watch {
  int descriptor;
  struct strv paths;
};

struct known_folder {
  char *folder;
  uint32_t events; /* 0: it is missing */
  unsigned batch;  /* since when */
};

struct keeping {
  struct kept_request request;
  struct kept_list list;
  struct plan grown; /* ours: grows with what the monitor tells */
  struct strv granted, granted_writable;
  struct powers powers;
  int channel;
  int spare[2]; /* masks made in advance: for a file, for a folder */

  int changes; /* inotify, or -1 */
  struct watch *watches;
  size_t watch_count;
  struct known_folder known[1024]; /* in this round */
  unsigned batch;                  /* of names that are looked at, watched and looked at again */
  bool newly;                      /* watched since this batch was looked at */
  uint64_t names[1024]; /* which hashes the components of kept names have: most events are none */
  bool polls;           /* something is not watched */
  size_t folder_count;  /* watched for patterns */
  bool bounded;

  struct strv appeared;   /* paths that patterns hide, still to be looked at */
  struct strv late;       /* those that were hidden so far */
  size_t link_count;      /* what was hidden behind links */
  bool writers;           /* some names are open for writing, and should not be for long */
  bool root_changed;      /* the host's "/" may have names that the session's has not */
  bool lost;              /* the kernel dropped events: look at everything */
  bool walked;            /* every tree was, as a whole */
  uint64_t walk_at_ns;    /* when the trees are walked (again); 0: not at all */
  uint64_t walk_pause_ns; /* how long after the last time, at least */
};

/* ---- telling the monitor ---- */

void keeping_tell(const struct keeping *keeping, enum keeper_kind kind, int errnum,
                  const char *path);

/* ---- watching (keeper-watch.c) ---- */

void watch_open(struct keeping *keeping);

/* There may be new names in the list. */
void watch_know_names(struct keeping *keeping);

/* Watches the folders on the way to a name; those it has watched since the round began are not
 * asked for again. True if some of them were not watched yet when the batch began: a name that was
 * looked at since may have changed unseen. */
void watch_begin_round(struct keeping *keeping);
void watch_begin_batch(struct keeping *keeping);
bool watch_name(struct keeping *keeping, struct kept_name *name);

/* Watches a folder for names that patterns hide; false if it is not one, or too many are. */
bool watch_folder(struct keeping *keeping, const char *folder);

/* Watches the host's "/" for all that appears in it, if the session's follows. */
void watch_root(struct keeping *keeping);

/* Reads what happened and marks what has to be looked at. */
void watch_read(struct keeping *keeping);

/* ---- mounting (keeper-renew.c) ---- */

/* Makes masks in advance. */
int renew_prepare(struct keeping *keeping);

/* Makes sure that a name is covered as it should be. Returns 1 if it had to be done, 0 if it was,
 * or a negative errno. */
int renew_name(struct keeping *keeping, struct kept_name *name);

/* A name that was renewed: 0 if there is no way to write to it (any more): nobody has it open for
 * writing, it has no second name, and nobody holds it or something in it. 1 if there is, -ETXTBSY,
 * -EMLINK or -EBUSY if for too long. */
int renew_check_writers(struct keeping *keeping, struct kept_name *name);

/* The same for a path that a pattern hides. */
int renew_late(struct keeping *keeping, const char *path);

/* ---- who holds it (keeper-held.c) ---- */

/* 1 if somebody in the session holds the path, or something below it, where it can be written, 0 if
 * not, -EAGAIN if something has to be covered first, or another negative errno. */
int held_inside(struct keeping *keeping, const char *path);

/* ---- the root (keeper-root.c) ---- */

/* Is the session's one to which names are added? */
bool root_is_followed(const struct keeping *keeping);

/* The monitor is to look at a name in "/"; or at each that the session's root has not. */
void root_tell(const struct keeping *keeping, const char *name);
void root_compare(struct keeping *keeping);
