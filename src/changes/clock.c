/* The time of a start; see changes.h. */
#include "changes/changes.h"

#include <time.h>

enum { NANOSECONDS = 1000000000 };

static int64_t nanoseconds_of(struct timespec time) {
  return (int64_t)time.tv_sec * NANOSECONDS + time.tv_nsec;
}

static int64_t offset_now(void) {
  struct timespec wall, boot;
  clock_gettime(CLOCK_REALTIME, &wall);
  clock_gettime(CLOCK_BOOTTIME, &boot);
  return nanoseconds_of(wall) - nanoseconds_of(boot);
}

struct change_clock change_clock_now(void) {
  struct change_clock clock = {.offset_ns = offset_now()};
  clock_gettime(CLOCK_REALTIME_COARSE, &clock.start);
  return clock;
}

struct timespec change_clock_tick(void) {
  static const struct timespec moment = {.tv_nsec = 100000};
  struct timespec before = change_clock_now().start, now;
  do {
    nanosleep(&moment, NULL);
    now = change_clock_now().start;
  } while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec);
  return now;
}

struct timespec change_clock_start(const struct change_clock *clock) {
  int64_t step = offset_now() - clock->offset_ns;
  /* Slewing moves the clock by microseconds and must not widen anything; only a step back hides
   * changes. */
  if (step > -1000000)
    return clock->start;
  int64_t start = nanoseconds_of(clock->start) + step;
  return (struct timespec){.tv_sec = start / NANOSECONDS, .tv_nsec = start % NANOSECONDS};
}

bool stamp_is_since(struct timespec stamp, struct timespec start) {
  return stamp.tv_sec != start.tv_sec ? stamp.tv_sec > start.tv_sec
                                      : stamp.tv_nsec >= start.tv_nsec;
}
