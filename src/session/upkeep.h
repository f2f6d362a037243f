/* The monitor's side of the keeper (engine/keeper.h): when it is started, and what becomes of what
 * it tells. If a mask or protection cannot be kept, or nobody is left to keep it, the session ends:
 * it must never go on with less than it was started with. */
#pragma once

#include <poll.h>
#include <stdint.h>

#include "engine/keeper.h"

struct monitor;

struct upkeep {
  struct keeper keeper;
  uint64_t start_at_ns; /* 0: not to be started */
  size_t hidden_count;  /* late secrets that were told of */
  struct plan grown;    /* what folders need that were granted: protections, masks */
  struct strv prepared; /* those folders */
  struct strv granted, granted_writable;
  bool held; /* something was taken back that somebody can still read; told with the next answer */
};
#define UPKEEP_NONE ((struct upkeep){.keeper = KEEPER_NONE})

/* For the gate. A folder is about to be granted for writing: the protected names in it are found,
 * and placeholders made. NULL if that cannot be done: then it must not be granted. */
const struct plan *upkeep_prepare(void *monitor, const char *folder);

/* Something in a tree that is about to be granted was denied. NULL if it cannot be kept from the
 * command there: then the tree must not be granted. */
const struct plan *upkeep_deny(void *monitor, const struct denied_name *denied);

/* Nothing at the path is denied any more. False if nothing was kept there for that. */
bool upkeep_allow(struct monitor *monitor, const char *path);

/* A tree has become visible, or is about to be taken away again. */
void upkeep_granted(void *monitor, const char *path, bool writable);
void upkeep_taken(void *monitor, const char *path);
void upkeep_held(void *monitor, const char *path);

/* The command runs: the keeper comes if it goes on for a while. */
void upkeep_schedule(struct monitor *monitor);

/* In the monitor's loop. */
struct pollfd upkeep_watch(const struct upkeep *upkeep);
void upkeep_step(struct monitor *monitor, uint64_t now, const struct pollfd *watched);

/* Ends the session, since something of it could not be kept; `path` may be NULL. */
void upkeep_give_up(struct monitor *monitor, const char *path, const char *sentence);

/* Before placeholders are removed: the keeper would make them again. */
void upkeep_end(struct monitor *monitor);
