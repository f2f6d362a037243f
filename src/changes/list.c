/* The list of changes; see changes.h. Counts everything, keeps what fits. */
#include <stdlib.h>
#include <string.h>

#include "changes/changes.h"
#include "core/alloc.h"

struct changes *changes_new(void) {
  struct changes *changes = xcalloc(1, sizeof *changes);
  changes->complete = true;
  return changes;
}

/* A flood of harmless files must not push the one that matters out of the list. */
static bool has_room(const struct changes *changes, unsigned flags,
                     const struct changes_limits *limits) {
  size_t room = flags & CHANGE_DANGEROUS ? 2 * limits->items : limits->items;
  return changes->count < room;
}

void changes_add(struct changes *changes, const struct judged *judged, bool contents,
                 const struct changes_limits *limits) {
  struct judgement judgement = change_judge(judged);
  changes->totals[judged->kind]++;
  changes->dangerous += (judgement.flags & CHANGE_DANGEROUS) != 0;
  if (!has_room(changes, judgement.flags, limits)) {
    changes->left_out++;
    return;
  }
  ARRAY_GROW(changes->items, changes->count);
  changes->items[changes->count++] = (struct change){
      .kind = judged->kind,
      .place = judged->place,
      .path = arena_strdup(&changes->strings, judged->path),
      .mode = judged->mode,
      .contents = contents,
      .flags = judgement.flags,
      .reason = judgement.reason,
  };
}

static int by_path(const void *first, const void *second) {
  const struct change *one = first, *other = second;
  int order = strcmp(one->place, other->place);
  return order ? order : strcmp(one->path, other->path);
}

void changes_sort(struct changes *changes) {
  if (changes->count)
    qsort(changes->items, changes->count, sizeof *changes->items, by_path);
}

void changes_free(struct changes *changes) {
  if (!changes)
    return;
  free(changes->items);
  arena_clear(&changes->strings);
  free(changes);
}
