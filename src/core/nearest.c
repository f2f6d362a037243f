/* Nearest word by edit distance; see nearest.h. */
#include "core/nearest.h"

#include <stdint.h>
#include <string.h>

enum { NEAREST_MAX = 64 };

static size_t least(size_t a, size_t b) {
  return a < b ? a : b;
}

size_t edit_distance(const char *first, const char *second) {
  size_t rows = strlen(first), columns = strlen(second);
  if (rows >= NEAREST_MAX || columns >= NEAREST_MAX)
    return SIZE_MAX;

  uint8_t cost[NEAREST_MAX][NEAREST_MAX];
  for (size_t i = 0; i <= rows; i++)
    for (size_t j = 0; j <= columns; j++) {
      if (i == 0 || j == 0) {
        cost[i][j] = (uint8_t)(i + j);
        continue;
      }
      size_t best = cost[i - 1][j - 1] + (first[i - 1] != second[j - 1]);
      best = least(best, least(cost[i - 1][j], cost[i][j - 1]) + 1u);
      if (i > 1 && j > 1 && first[i - 1] == second[j - 2] && first[i - 2] == second[j - 1])
        best = least(best, cost[i - 2][j - 2] + 1u);
      cost[i][j] = (uint8_t)best;
    }
  return cost[rows][columns];
}

const char *nearest_word(const char *word, const char *const *candidates) {
  const char *nearest = NULL;
  /* A third of the letters may be wrong; beyond that a guess would mislead. */
  size_t best = strlen(word) / 3 + 1;
  for (; *candidates; candidates++) {
    size_t distance = edit_distance(word, *candidates);
    if (distance <= best && (!nearest || distance < best)) {
      nearest = *candidates;
      best = distance;
    }
  }
  return nearest;
}
