/* Myers, "An O(ND) Difference Algorithm and Its Variations" (1986), the linear-space variation:
 * find a point in the middle of a shortest path by searching from both ends at once, then do both
 * halves. Our own because no library of Debian does it for a static program (xdiff exists only
 * inside git and libgit2), and because diff(1) is neither everywhere nor bounded in time. */
#include "overlay/myers.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

/* After so many steps without meeting, the furthest point is as good a middle as any. */
enum { COST_LIMIT = 512 };

/* A rectangle of the edit graph: old[x_begin..x_end) against new[y_begin..y_end). */
struct box {
  long x_begin, x_end, y_begin, y_end;
};

struct search {
  const unsigned *old, *new;
  bool *old_changed, *new_changed;
  long *forward, *backward; /* furthest x on each diagonal x - y; can be indexed below 0 */
};

/* Diagonals that a search has reached so far. */
struct span {
  long low, high;
};

/* One diagonal more at each end, or one less where the box ends; the sentinel loses every choice.
 */
static void widen(struct span *span, long *furthest, long low_limit, long high_limit,
                  long sentinel) {
  if (span->low > low_limit)
    furthest[--span->low - 1] = sentinel;
  else
    span->low++;
  if (span->high < high_limit)
    furthest[++span->high + 1] = sentinel;
  else
    span->high--;
}

static long step_forward(const struct search *search, const struct box *box, long diagonal) {
  const long *furthest = search->forward;
  long x = furthest[diagonal - 1] >= furthest[diagonal + 1] ? furthest[diagonal - 1] + 1
                                                            : furthest[diagonal + 1];
  while (x < box->x_end && x - diagonal < box->y_end && search->old[x] == search->new[x - diagonal])
    x++;
  return x;
}

static long step_backward(const struct search *search, const struct box *box, long diagonal) {
  const long *furthest = search->backward;
  long x = furthest[diagonal - 1] < furthest[diagonal + 1] ? furthest[diagonal - 1]
                                                           : furthest[diagonal + 1] - 1;
  while (x > box->x_begin && x - diagonal > box->y_begin &&
         search->old[x - 1] == search->new[x - diagonal - 1])
    x--;
  return x;
}

static long furthest_point(const struct search *search, const struct box *box, struct span span,
                           long *ret_y) {
  long best = -1, best_x = box->x_begin;
  *ret_y = box->y_begin;
  for (long diagonal = span.high; diagonal >= span.low; diagonal -= 2) {
    long x = search->forward[diagonal] < box->x_end ? search->forward[diagonal] : box->x_end;
    if (x - diagonal > box->y_end)
      x = box->y_end + diagonal;
    if (2 * x - diagonal > best) {
      best = 2 * x - diagonal;
      best_x = x;
      *ret_y = x - diagonal;
    }
  }
  return best_x;
}

/* A point on a shortest path through the box, whose first and last lines differ. */
static long find_middle(const struct search *search, const struct box *box, long *ret_y) {
  long low_limit = box->x_begin - box->y_end, high_limit = box->x_end - box->y_begin;
  long first = box->x_begin - box->y_begin, last = box->x_end - box->y_end;
  bool odd = (first - last) & 1;
  struct span forward = {first, first}, backward = {last, last};
  search->forward[first] = box->x_begin;
  search->backward[last] = box->x_end;
  for (int cost = 1;; cost++) {
    widen(&forward, search->forward, low_limit, high_limit, -1);
    for (long d = forward.high; d >= forward.low; d -= 2) {
      long x = search->forward[d] = step_forward(search, box, d);
      if (odd && d >= backward.low && d <= backward.high && search->backward[d] <= x)
        return *ret_y = x - d, x;
    }
    widen(&backward, search->backward, low_limit, high_limit, LONG_MAX);
    for (long d = backward.high; d >= backward.low; d -= 2) {
      long x = search->backward[d] = step_backward(search, box, d);
      if (!odd && d >= forward.low && d <= forward.high && x <= search->forward[d])
        return *ret_y = x - d, x;
    }
    if (cost >= COST_LIMIT)
      return furthest_point(search, box, forward, ret_y);
  }
}

static void trim(const struct search *search, struct box *box) {
  while (box->x_begin < box->x_end && box->y_begin < box->y_end &&
         search->old[box->x_begin] == search->new[box->y_begin])
    box->x_begin++, box->y_begin++;
  while (box->x_begin < box->x_end && box->y_begin < box->y_end &&
         search->old[box->x_end - 1] == search->new[box->y_end - 1])
    box->x_end--, box->y_end--;
}

static void mark(const struct search *search, const struct box *box) {
  memset(search->old_changed + box->x_begin, true, (size_t)(box->x_end - box->x_begin));
  memset(search->new_changed + box->y_begin, true, (size_t)(box->y_end - box->y_begin));
}

static void compare(const struct search *search, struct box box) {
  for (;;) {
    trim(search, &box);
    if (box.x_begin == box.x_end || box.y_begin == box.y_end) {
      mark(search, &box);
      return;
    }
    long y, x = find_middle(search, &box, &y);
    bool at_begin = x == box.x_begin && y == box.y_begin;
    bool at_end = x == box.x_end && y == box.y_end;
    if (at_begin || at_end) {
      mark(search, &box); /* no progress: cannot happen, but must not loop */
      return;
    }
    compare(search, (struct box){box.x_begin, x, box.y_begin, y});
    box.x_begin = x;
    box.y_begin = y;
  }
}

void myers_compare(const struct sequence *old, const struct sequence *new) {
  size_t diagonals = old->count + new->count + 3;
  long *furthest = xcalloc(2 * diagonals, sizeof *furthest);
  long *zero = furthest + new->count + 1;
  struct search search = {.old = old->items,
                          .new = new->items,
                          .old_changed = old->changed,
                          .new_changed = new->changed,
                          .forward = zero,
                          .backward = zero + diagonals};
  compare(&search, (struct box){0, (long)old->count, 0, (long)new->count});
  free(furthest);
}
