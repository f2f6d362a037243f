/* From findings to a report and a verdict. The trying is in runner.c and probe-*.c. */
#include "doctor/doctor.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "doctor/judge.h"
#include "doctor/probe.h"

static const char *const state_names[DOCTOR_STATE_COUNT] = {
    [DOCTOR_OK] = "ok",
    [DOCTOR_DEGRADED] = "degraded",
    [DOCTOR_RESTRICTED] = "restricted",
    [DOCTOR_MISSING] = "missing",
};

const char *doctor_state_name(enum doctor_state state) {
  return state < DOCTOR_STATE_COUNT ? state_names[state] : "unknown";
}

/* The row if it is not ok, or NULL. */
static const struct doctor_row *problem_of(const struct doctor_report *report, const char *id) {
  for (size_t i = 0; i < report->count; i++)
    if (strcmp(report->rows[i].id, id) == 0)
      return report->rows[i].state == DOCTOR_OK ? NULL : &report->rows[i];
  return NULL;
}

/* FUSE first: allowed paths then cost nothing. What is wrong with the last one that was looked at
 * is why there is no better one. */
static void judge_gate(const struct doctor_report *report, struct doctor_verdict *verdict) {
  const struct doctor_row *fuse = problem_of(report, "fuse-mount");
  const struct doctor_row *notify = problem_of(report, "seccomp-notify");
  if (!notify)
    notify = problem_of(report, "ptrace");
  const struct doctor_row *problem = fuse && notify ? notify : fuse;
  verdict->gate = !fuse ? "fuse" : !notify ? "notify" : "none";
  verdict->gate_why = problem && problem->found ? xstrdup(problem->found) : NULL;
}

void doctor_judge(struct doctor_report *report) {
  report->native = (struct doctor_verdict){.available = true};
  judge_gate(report, &report->native);
  for (size_t i = 0; i < report->count; i++) {
    const struct doctor_row *row = &report->rows[i];
    if (!row->required || row->state == DOCTOR_OK || row->state == DOCTOR_DEGRADED)
      continue;
    report->native.available = false;
    report->native.why = xasprintf("%s: %s", row->title, row->found);
    report->native.fix = row->fix ? xstrdup(row->fix) : NULL;
    return; /* the first is the root: the table lists what others rest on first */
  }
}

struct doctor_row doctor_row_of(const struct check *check, const struct finding *finding) {
  const char *fix = finding->fix[0] ? finding->fix : check->fix;
  return (struct doctor_row){
      .id = check->id,
      .group = check->group,
      .title = check->title,
      .needed_for = check->needed_for,
      .required = check->required,
      .state = finding->state,
      .found = xstrdup(finding->found),
      .fix = finding->state == DOCTOR_OK || !fix ? NULL : xstrdup(fix),
  };
}

void doctor_run(struct doctor_report *ret_report) {
  _cleanup_free_ struct finding *findings = xcalloc(doctor_check_count, sizeof *findings);
  probe_run_all(doctor_checks, doctor_check_count, findings);
  struct doctor_report report = {
      .rows = xcalloc(doctor_check_count, sizeof *report.rows),
      .count = doctor_check_count,
  };
  for (size_t i = 0; i < report.count; i++)
    report.rows[i] = doctor_row_of(&doctor_checks[i], &findings[i]);
  doctor_judge(&report);
  *ret_report = report;
}

void doctor_report_clear(struct doctor_report *report) {
  for (size_t i = 0; i < report->count; i++) {
    free(report->rows[i].found);
    free(report->rows[i].fix);
  }
  free(report->rows);
  free(report->native.gate_why);
  free(report->native.why);
  free(report->native.fix);
  *report = (struct doctor_report){0};
}
