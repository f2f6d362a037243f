/* Wall time: a deadline, a polite request, a grace period, the end. And how often the watch may
 * look. Pure: the caller has the clock. */
#include <limits.h>

#include "limits/limits.h"

struct deadline deadline_new(uint64_t now_ns, uint64_t limit_ns, uint64_t grace_ns) {
  uint64_t at = limit_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + limit_ns;
  return (struct deadline){.at_ns = limit_ns ? at : 0, .grace_ns = grace_ns};
}

enum deadline_action deadline_step(struct deadline *deadline, uint64_t now_ns) {
  if (!deadline->at_ns || now_ns < deadline->at_ns)
    return DEADLINE_NOTHING;
  if (deadline->state == DEADLINE_RUNNING && deadline->grace_ns > 0) {
    deadline->state = DEADLINE_TERMINATING;
    deadline->at_ns =
        now_ns + deadline->grace_ns; /* from when we asked, not from when it was due */
    return DEADLINE_TERM;
  }
  deadline->state = DEADLINE_KILLED;
  deadline->at_ns = 0;
  return DEADLINE_KILL;
}

int deadline_timeout_ms(const struct deadline *deadline, uint64_t now_ns) {
  if (!deadline->at_ns)
    return -1;
  if (now_ns >= deadline->at_ns)
    return 0;
  uint64_t left = (deadline->at_ns - now_ns - 1) / 1000000 + 1;
  return left > INT_MAX ? INT_MAX : (int)left;
}

uint64_t limit_watch_interval(uint64_t cost_ns, uint64_t floor_ns, uint64_t ceiling_ns) {
  uint64_t fair = cost_ns > UINT64_MAX / 50 ? UINT64_MAX : cost_ns * 50;
  if (fair < floor_ns)
    return floor_ns;
  return fair > ceiling_ns ? ceiling_ns : fair;
}
