/* The nearest valid word to a mistyped one; see suggest.h. No allocation, no I/O: words come from
 * untrusted files too, so anything longer than a plausible key is simply not near anything. */
#include "core/suggest.h"

#include <stdbool.h>
#include <string.h>

enum { LONGEST_WORD = 63 };

static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Edits between two words: insert, delete, replace, or swap two neighbours (the common slip). */
static size_t edit_distance(const char *a, size_t a_length, const char *b, size_t b_length) {
  size_t rows[3][LONGEST_WORD + 1];
  size_t *before = rows[0], *above = rows[1], *row = rows[2];
  for (size_t j = 0; j <= b_length; j++)
    above[j] = j;
  for (size_t i = 1; i <= a_length; i++) {
    row[0] = i;
    for (size_t j = 1; j <= b_length; j++) {
      size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
      best = smaller(best, smaller(above[j], row[j - 1]) + 1);
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = smaller(best, before[j - 2] + 1);
      row[j] = best;
    }
    size_t *recycled = before;
    before = above, above = row, row = recycled;
  }
  return above[b_length];
}

/* An abbreviation is one slip, however much was left out. */
static size_t distance(const char *word, size_t length, const char *candidate, size_t its_length) {
  if (length >= 2 && length < its_length && strncmp(word, candidate, length) == 0)
    return 1;
  return edit_distance(word, length, candidate, its_length);
}

/* One slip in a short word, one in three letters of a long one; never half of the word. */
static bool is_near(size_t edits, size_t length, size_t its_length) {
  size_t longest = length > its_length ? length : its_length;
  size_t allowed = longest / 3 ? longest / 3 : 1;
  return edits <= allowed && edits < length && edits * 2 < longest;
}

const char *suggest_nearest(const char *word, const char *const *candidates, size_t count) {
  const char *nearest = NULL;
  size_t least = LONGEST_WORD + 1, length = strlen(word);
  if (length > LONGEST_WORD)
    return NULL;
  for (size_t i = 0; i < count; i++) {
    size_t its_length = candidates[i] ? strlen(candidates[i]) : 0;
    if (its_length == 0 || its_length > LONGEST_WORD)
      continue;
    size_t edits = distance(word, length, candidates[i], its_length);
    if (edits < least && is_near(edits, length, its_length)) {
      least = edits;
      nearest = candidates[i];
    }
  }
  return nearest;
}
