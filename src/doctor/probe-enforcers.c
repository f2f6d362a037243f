/* What would hold each limit here: a group with all of them is made, asked and removed. */
#include <stdio.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/text.h"
#include "doctor/probe.h"
#include "limits/limits.h"

void probe_enforcers(const struct check *check, struct finding *finding) {
  (void)check;
  _cleanup_error_ struct sb_error error = {0};
  struct limit_group group = LIMIT_GROUP_NONE;
  struct limit_set all;
  for (int kind = 0; kind < LIMIT_COUNT; kind++)
    all.value[kind] = 1ull << 30; /* a second, a gigabyte: harmless */
  all.value[LIMIT_PROCESSES] = all.value[LIMIT_OPEN_FILES] = 1000;
  char id[32];
  snprintf(id, sizeof id, "doctor%d", (int)getpid());
  struct limit_request request = {.set = &all, .session_id = id, .best_effort = true};
  if (limit_group_create(&request, &group, &error) < 0) {
    finding_set(finding, DOCTOR_DEGRADED, "%s", error.message);
    return;
  }
  _cleanup_text_ struct text text = {0};
  bool all_held = true;
  for (int kind = 0; kind < LIMIT_COUNT; kind++) {
    enum limit_enforcer enforcer = limit_group_enforcer(&group, kind);
    all_held &= enforcer != ENFORCER_NONE;
    text_appendf(&text, "%s%s: %s", kind ? ", " : "", limit_title(kind),
                 limit_enforcer_text(enforcer));
  }
  (void)limit_group_remove(&group);
  finding_set(finding, all_held ? DOCTOR_OK : DOCTOR_DEGRADED, "%s", text_string(&text));
}
