/* Limits for programs that know nothing of ours; see runner-limits.h. */
#include <stdio.h>
#include <unistd.h>

#include "backend/runner-limits.h"
#include "core/cleanup.h"

static const struct {
  enum limit_kind kind;
  uint64_t feature, sample;
} group_limits[] = {
    {LIMIT_MEMORY, FEATURE(LIMIT_MEMORY), UINT64_C(1) << 30},
    {LIMIT_CPU, FEATURE(LIMIT_CPU), 500000000},
    {LIMIT_PROCESSES, FEATURE(LIMIT_PROCESSES), 1000},
    {LIMIT_IO, FEATURE(LIMIT_IO), UINT64_C(1) << 30},
};

static bool is_held(const struct limit_group *group, enum limit_kind kind) {
  static const bool by_process[LIMIT_COUNT] = {
      [LIMIT_TIME] = true, [LIMIT_OPEN_FILES] = true, [LIMIT_FILE_SIZE] = true};
  enum limit_enforcer enforcer = limit_group_enforcer(group, kind);
  return by_process[kind] || enforcer == ENFORCER_CGROUP_V1 || enforcer == ENFORCER_CGROUP_V2;
}

static bool drop_unheld(const struct limit_group *group, struct limit_set *set,
                        enum limit_kind *ret_first) {
  bool dropped = false;
  for (int i = LIMIT_COUNT - 1; i >= 0; i--) {
    if (!set->value[i] || is_held(group, (enum limit_kind)i))
      continue;
    set->value[i] = 0;
    *ret_first = (enum limit_kind)i;
    dropped = true;
  }
  return dropped;
}

int runner_create_group(const struct limit_set *set, const char *session_id, bool accept_loss,
                        struct limit_group *ret_group, struct sb_error *error) {
  struct limit_set held = *set;
  struct limit_request request = {
      .set = &held, .session_id = session_id, .own_processes = 3, .best_effort = true};
  enum limit_kind first;
  if (limit_group_create(&request, ret_group, error) < 0)
    return -1;
  if (!drop_unheld(ret_group, &held, &first))
    return 0;
  limit_group_remove(ret_group);
  if (accept_loss)
    return limit_group_create(&request, ret_group, error);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "nothing here can limit %s (%s) for this back end",
          limit_title(first), limit_policy_key(first));
  return sb_hint(error, "use --backend native, run it as root, or accept the loss with --weaken");
}

static uint64_t held_limits(bool by_group) {
  struct limit_set set = {0};
  struct limit_group group;
  _cleanup_error_ struct sb_error ignored = {0};
  char name[32];
  snprintf(name, sizeof name, "probe-%d", (int)getpid());
  for (size_t i = 0; i < ARRAY_SIZE(group_limits); i++)
    set.value[group_limits[i].kind] = group_limits[i].sample;
  struct limit_request request = {.set = &set, .session_id = name, .best_effort = true};
  if (limit_group_create(&request, &group, &ignored) < 0)
    return 0;
  uint64_t held = 0;
  for (size_t i = 0; i < ARRAY_SIZE(group_limits); i++) {
    enum limit_kind kind = group_limits[i].kind;
    bool is = by_group ? is_held(&group, kind) : group.enforcers[kind] != ENFORCER_NONE;
    held |= is ? group_limits[i].feature : 0;
  }
  limit_group_remove(&group);
  return held;
}

uint64_t runner_group_limits(void) {
  return held_limits(true);
}

uint64_t runner_native_limits(void) {
  return held_limits(false);
}
