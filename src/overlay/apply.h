/* Carries the changes of an overlay over to the original folders.
 *
 * Every object appears by one rename, so a reader sees the old or the new one. The journal is the
 * overlay itself: what is applied no longer differs from the layer, so an interrupted `apply` is
 * continued by reading the layer again; the metadata says that one was going on, and with which
 * choices. Nothing is removed from the layer before all of it is on the disk. */
#pragma once

#include "overlay/layer.h"
#include "overlay/store.h"

enum apply_verdict {
  APPLY_DO,
  APPLY_CONFLICT,   /* somebody else changed the original: everything is refused */
  APPLY_PROTECTED,  /* dangerous or protected: left out unless asked for */
  APPLY_IMPOSSIBLE, /* sockets, devices, what cannot be read: left out */
  APPLY_NOT_CHOSEN,
  APPLY_VERDICT_COUNT
};

struct apply {
  struct overlay *overlay;
  struct layer *layers;
  enum apply_verdict **verdicts; /* per layer, per change */
  size_t totals[APPLY_VERDICT_COUNT];
};

/* Reads all layers and decides about every change; the choices are those of overlay->intent. */
int apply_prepare(struct overlay *overlay, const char *home, struct apply *ret_apply,
                  struct sb_error *error);

/* Does what was decided. On an error the rest can be applied later by the same two calls. When
 * nothing is left in the overlay, it is removed and *ret_removed is set. */
int apply_carry_out(struct apply *apply, bool *ret_removed, struct sb_error *error);

/* Removes the temporary files that an interrupted `apply` may have left in the originals. */
void apply_sweep(struct apply *apply);

void apply_clear(struct apply *apply);
#define _cleanup_apply_ __attribute__((cleanup(apply_clear)))

/* Why a change is not applied, for people; NULL for APPLY_DO and APPLY_NOT_CHOSEN. New string. */
char *apply_why_not(const struct layer_change *change, enum apply_verdict verdict);
