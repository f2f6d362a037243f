/* The folders behind a session's overlays, and the file that says what they are: all that `diff`,
 * `apply` and `discard` need after the session, its monitor and the machine have gone.
 *
 *   OVERLAYS/SID/overlay.json   the metadata, replaced atomically
 *   OVERLAYS/SID/lock           locked while a session or an `apply` uses it
 *   OVERLAYS/SID/N/upper, work  one pair per overlaid folder, as the kernel wants them */
#pragma once

#include <stdbool.h>
#include <time.h>

#include "core/error.h"
#include "core/strv.h"
#include "plan/plan.h"
#include "session/session.h"

enum overlay_state { OVERLAY_KEPT, OVERLAY_APPLYING, OVERLAY_APPLIED, OVERLAY_STATE_COUNT };

struct overlay_layer {
  char *path;   /* the host's folder */
  char *folder; /* what holds `upper` and `work`, absolute */
};

/* What an `apply` was asked to do, so that the next one can finish it. */
struct overlay_intent {
  bool force, include_protected;
  struct strv only; /* absolute paths; none: everything */
};

struct overlay {
  char id[SESSION_ID_LENGTH + 1];
  char *folder;
  char *project;
  struct strv command;
  struct timespec started; /* by the clock of file stamps; see changes.h */
  enum overlay_state state;
  struct overlay_layer *layers;
  size_t layer_count;
  struct overlay_intent intent;
};

/* Where the overlays of a session live. New string. */
char *overlay_folder(const struct host_context *host, const char *session_id);

/* Makes the folders the plan names, the metadata and the lock, before the session starts. Returns
 * the lock's descriptor, which must stay open as long as the session runs, or -1. */
int overlay_create(const struct host_context *host, const struct plan *plan, const char *session_id,
                   struct sb_error *error);

/* After the session: everything to the disk, so that no power cut takes it. */
void overlay_settle(const char *folder);

/* Reads the metadata of the session whose id starts with `prefix`. Without layers, and as applied,
 * if only its folder is left. */
int overlay_open(const struct host_context *host, const char *prefix, struct overlay *ret_overlay,
                 struct sb_error *error);
void overlay_clear(struct overlay *overlay);
#define _cleanup_overlay_ __attribute__((cleanup(overlay_clear)))

/* The ids of all sessions that have overlays. */
void overlay_list(const struct host_context *host, struct strv *ret_ids);

/* Takes the lock; an error if the session still runs or somebody else is applying. */
int overlay_lock(const struct overlay *overlay, struct sb_error *error);

/* Writes the metadata back with another state. */
int overlay_set_state(struct overlay *overlay, enum overlay_state state, struct sb_error *error);
void overlay_forget_intent(struct overlay *overlay);
const char *overlay_state_name(enum overlay_state state);

/* Removes a session's overlays with all that was written to them. 0 or a negative errno. */
int overlay_remove(const char *folder);
