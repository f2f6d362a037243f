/* The doctor's pure half: the table is sane, and facts lead to the right reason and fix. */
#include "unit.h"

#include <errno.h>
#include <linux/magic.h>
#include <signal.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "doctor/cgroup.h"
#include "doctor/judge.h"
#include "doctor/userns.h"

static void test_table_is_sane(void **state) {
  (void)state;
  for (size_t i = 0; i < doctor_check_count; i++) {
    const struct check *check = &doctor_checks[i];
    assert_non_null(check->probe);
    assert_true(check->id && *check->id && check->group && check->title && check->needed_for);
    assert_true(check->fix && *check->fix); /* no row may fail without saying what to do */
    assert_int_equal(strspn(check->id, "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(check->id));
    for (size_t other = 0; other < i; other++)
      assert_string_not_equal(check->id, doctor_checks[other].id);
  }
}

static void test_groups_are_together(void **state) {
  (void)state;
  for (size_t i = 1; i < doctor_check_count; i++) {
    if (strcmp(doctor_checks[i].group, doctor_checks[i - 1].group) == 0)
      continue;
    for (size_t other = 0; other + 1 < i; other++)
      assert_string_not_equal(doctor_checks[i].group, doctor_checks[other].group);
  }
}

static void test_rows_that_the_verdict_names_exist(void **state) {
  (void)state;
  static const char *const ids[] = {"fuse-mount", "seccomp-notify", "ptrace", "user-namespaces"};
  for (size_t i = 0; i < ARRAY_SIZE(ids); i++) {
    size_t at = 0;
    while (at < doctor_check_count && strcmp(doctor_checks[at].id, ids[i]) != 0)
      at++;
    assert_true(at < doctor_check_count);
  }
}

static void test_every_reason_is_explained(void **state) {
  (void)state;
  for (int reason = 0; reason < USERNS_REASON_COUNT; reason++) {
    const struct userns_explanation *explanation = userns_explain((enum userns_reason)reason);
    assert_true(explanation->why && *explanation->why);
    assert_int_equal(explanation->state == DOCTOR_OK, reason == USERNS_WORKS);
    assert_int_equal(explanation->fix == NULL, reason == USERNS_WORKS);
  }
}

#define FACTS(...)                                                                                 \
  {                                                                                                \
    .max_user_namespaces = 15000, .unprivileged_userns_clone = -1, .apparmor_restricts = -1,       \
    __VA_ARGS__                                                                                    \
  }

static void test_facts_lead_to_the_reason(void **state) {
  (void)state;
  static const struct {
    struct userns_facts facts;
    enum userns_reason reason;
  } rows[] = {
      {FACTS(.stage = USERNS_CREATED_AND_USED), USERNS_WORKS},
      /* the settings are bad, but it works all the same (root on Debian) */
      {{.stage = USERNS_CREATED_AND_USED, .apparmor_restricts = 1}, USERNS_WORKS},
      {{.stage = USERNS_CREATE, .errnum = ENOSPC, .max_user_namespaces = 0}, USERNS_LIMIT_ZERO},
      {FACTS(.stage = USERNS_CREATE, .errnum = ENOSPC), USERNS_LIMIT_REACHED},
      {FACTS(.stage = USERNS_CREATE, .errnum = EUSERS), USERNS_TOO_DEEP},
      {{.stage = USERNS_CREATE,
        .errnum = EPERM,
        .max_user_namespaces = 15000,
        .apparmor_restricts = -1},
       USERNS_CLONE_SYSCTL},
      /* root is not bound by Debian's switch, so a filter must be the cause */
      {{.stage = USERNS_CREATE, .errnum = EPERM, .privileged = true, .filtered = true},
       USERNS_OUTER_SECCOMP},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM, .filtered = true), USERNS_OUTER_SECCOMP},
      {FACTS(.stage = USERNS_CREATE, .errnum = ENOSYS, .filtered = true), USERNS_OUTER_SECCOMP},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM, .filtered = true, .inside = true),
       USERNS_INSIDE},
      {FACTS(.stage = USERNS_CREATE, .errnum = ENOSPC, .inside = true), USERNS_LIMIT_REACHED},
      {FACTS(.stage = USERNS_CREATE, .errnum = ENOSYS), USERNS_NO_KERNEL_SUPPORT},
      {FACTS(.stage = USERNS_CREATE, .errnum = EINVAL), USERNS_NO_KERNEL_SUPPORT},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM, .chrooted = true), USERNS_CHROOT},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM, .unmapped = true), USERNS_UNMAPPED},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM), USERNS_UNKNOWN},
      {FACTS(.stage = USERNS_CREATE, .errnum = EPERM, .no_proc = true), USERNS_NO_PROC},
      {FACTS(.stage = USERNS_MAP, .errnum = ENOENT), USERNS_NO_PROC},
      {FACTS(.stage = USERNS_MAP, .errnum = EROFS), USERNS_NO_PROC},
      /* a container's own profile, not Ubuntu's switch */
      {FACTS(.stage = USERNS_USE, .errnum = EPERM), USERNS_SECURITY_MODULE},
      {FACTS(.stage = USERNS_CREATE, .errnum = EACCES), USERNS_SECURITY_MODULE},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_int_equal(userns_judge(&rows[i].facts), rows[i].reason);
}

/* Ubuntu 23.10 refuses; 24.04 makes the namespace and takes the capabilities away afterwards. */
static void test_apparmor_is_recognised_at_every_stage(void **state) {
  (void)state;
  static const struct {
    enum userns_stage stage;
    int errnum;
  } rows[] = {{USERNS_CREATE, EACCES},
              {USERNS_CREATE, EPERM},
              {USERNS_MAP, EPERM},
              {USERNS_MAP, EACCES},
              {USERNS_USE, EPERM}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct userns_facts facts = {.stage = rows[i].stage,
                                 .errnum = rows[i].errnum,
                                 .max_user_namespaces = 15000,
                                 .unprivileged_userns_clone = 1,
                                 .apparmor_restricts = 1};
    assert_int_equal(userns_judge(&facts), USERNS_APPARMOR_NO_PROFILE);
    facts.profile_installed = true;
    assert_int_equal(userns_judge(&facts), USERNS_APPARMOR);
  }
}

static void test_fixes_name_the_exact_setting(void **state) {
  (void)state;
  static const struct {
    enum userns_reason reason;
    const char *word;
  } rows[] = {
      {USERNS_LIMIT_ZERO, "sysctl -w user.max_user_namespaces="},
      {USERNS_CLONE_SYSCTL, "sysctl -w kernel.unprivileged_userns_clone=1"},
      {USERNS_APPARMOR, "apparmor_parser -r "},
      {USERNS_APPARMOR_NO_PROFILE, "make install"},
      {USERNS_OUTER_SECCOMP, "seccomp=unconfined"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_non_null(strstr(userns_explain(rows[i].reason)->fix, rows[i].word));
  /* Turning the restriction off for the whole machine is not our advice. */
  assert_null(strstr(userns_explain(USERNS_APPARMOR)->fix, "userns=0"));
}

static void test_errnos_are_states(void **state) {
  (void)state;
  assert_int_equal(finding_state_of_errno(0), DOCTOR_OK);
  assert_int_equal(finding_state_of_errno(ENOSYS), DOCTOR_MISSING);
  assert_int_equal(finding_state_of_errno(EINVAL), DOCTOR_MISSING);
  assert_int_equal(finding_state_of_errno(EPERM), DOCTOR_RESTRICTED);
  assert_int_equal(finding_state_of_errno(EACCES), DOCTOR_RESTRICTED);
  assert_int_equal(finding_state_of_errno(ENOSPC), DOCTOR_RESTRICTED);
}

static void test_cgroup_layouts(void **state) {
  (void)state;
  assert_int_equal(cgroup_layout_of(CGROUP2_SUPER_MAGIC, 0), CGROUP_V2);
  assert_int_equal(cgroup_layout_of(TMPFS_MAGIC, CGROUP2_SUPER_MAGIC), CGROUP_HYBRID);
  assert_int_equal(cgroup_layout_of(TMPFS_MAGIC, 0), CGROUP_V1);
  assert_int_equal(cgroup_layout_of(SYSFS_MAGIC, 0), CGROUP_NONE);
}

static void assert_cgroup_path(const char *text, const char *controller, const char *expected) {
  _cleanup_free_ char *path = cgroup_path_in(text, controller);
  if (!expected)
    assert_null(path);
  else
    assert_string_equal(path, expected);
}

static void test_cgroup_paths(void **state) {
  (void)state;
  static const char text[] = "5:cpu,cpuacct:/a:b\n4:memory:/m\n3:cpuset:/\n1:name=x:/y\n0::/user";
  assert_cgroup_path(text, "memory", "/m");
  assert_cgroup_path(text, "cpuacct", "/a:b");
  assert_cgroup_path(text, "cpu", "/a:b");
  assert_cgroup_path(text, "set", NULL);
  assert_cgroup_path(text, "pids", NULL);
  assert_cgroup_path(text, NULL, "/user");
  assert_cgroup_path("", NULL, NULL);
  assert_cgroup_path("nonsense\n", "memory", NULL);
  assert_cgroup_path("1:memory", "memory", NULL);
}

static void test_the_table_s_fix_stands_in(void **state) {
  (void)state;
  struct check check = {"x", "g", "title", "life", .fix = "the table's"};
  struct {
    struct finding finding;
    const char *fix;
  } rows[] = {
      {{.state = DOCTOR_OK, .found = "f", .fix = "not needed"}, NULL},
      {{.state = DOCTOR_MISSING, .found = "f"}, "the table's"},
      {{.state = DOCTOR_MISSING, .found = "f", .fix = "the probe's"}, "the probe's"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct doctor_row row = doctor_row_of(&check, &rows[i].finding);
    if (rows[i].fix)
      assert_string_equal(row.fix, rows[i].fix);
    else
      assert_null(row.fix);
    free(row.found);
    free(row.fix);
  }
}

static void judge(enum doctor_state userns, enum doctor_state fuse, enum doctor_state notify,
                  struct doctor_report *ret_report) {
  struct doctor_row rows[] = {
      {.id = "user-namespaces", .title = "user namespaces", .required = true, .state = userns},
      {.id = "fuse-mount", .state = fuse, .found = xstrdup("fuse")},
      {.id = "seccomp-notify", .state = notify, .found = xstrdup("notify")},
      {.id = "ptrace", .state = DOCTOR_OK},
  };
  *ret_report = (struct doctor_report){xcalloc(ARRAY_SIZE(rows), sizeof *rows), ARRAY_SIZE(rows)};
  memcpy(ret_report->rows, rows, sizeof rows);
  ret_report->rows[0].found = xstrdup("off");
  ret_report->rows[0].fix = xstrdup("turn on");
  doctor_judge(ret_report);
}

static void test_verdict(void **state) {
  (void)state;
  static const struct {
    enum doctor_state userns, fuse, notify;
    bool available;
    const char *gate, *gate_why;
  } rows[] = {
      {DOCTOR_OK, DOCTOR_OK, DOCTOR_OK, true, "fuse", NULL},
      {DOCTOR_OK, DOCTOR_OK, DOCTOR_MISSING, true, "fuse", NULL},
      {DOCTOR_DEGRADED, DOCTOR_MISSING, DOCTOR_OK, true, "notify", "fuse"},
      {DOCTOR_OK, DOCTOR_MISSING, DOCTOR_RESTRICTED, true, "none", "notify"},
      {DOCTOR_RESTRICTED, DOCTOR_OK, DOCTOR_OK, false, "fuse", NULL},
      {DOCTOR_MISSING, DOCTOR_OK, DOCTOR_OK, false, "fuse", NULL},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_doctor_report_ struct doctor_report report;
    judge(rows[i].userns, rows[i].fuse, rows[i].notify, &report);
    assert_int_equal(report.native.available, rows[i].available);
    assert_string_equal(report.native.gate, rows[i].gate);
    if (rows[i].gate_why)
      assert_string_equal(report.native.gate_why, rows[i].gate_why);
    else
      assert_null(report.native.gate_why);
    if (rows[i].available)
      continue;
    assert_string_equal(report.native.why, "user namespaces: off");
    assert_string_equal(report.native.fix, "turn on");
  }
}

static void probe_that_hangs(const struct check *check, struct finding *finding) {
  (void)check, (void)finding;
  pause();
}

static void probe_that_crashes(const struct check *check, struct finding *finding) {
  (void)check, (void)finding;
  raise(SIGKILL);
}

static void probe_that_works(const struct check *check, struct finding *finding) {
  (void)check;
  finding_set(finding, DOCTOR_OK, "fine");
}

/* Must never happen: a probe that takes the doctor down with it. */
static void test_bad_probes_cost_only_their_row(void **state) {
  (void)state;
  static const struct check checks[] = {
      {"a", .probe = probe_that_hangs},
      {"b", .probe = probe_that_crashes},
      {"c", .probe = probe_that_works},
  };
  struct finding findings[ARRAY_SIZE(checks)] = {0};
  alarm(10);
  probe_run_all(checks, ARRAY_SIZE(checks), findings);
  alarm(0);
  assert_int_equal(findings[0].state, DOCTOR_RESTRICTED);
  assert_non_null(strstr(findings[0].found, "no answer within"));
  assert_int_equal(findings[1].state, DOCTOR_RESTRICTED);
  assert_non_null(strstr(findings[1].found, "killed"));
  assert_string_equal(findings[2].found, "fine");
}

static void test_explaining_always_says_something(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {.errnum = ENOSPC};
  assert_int_equal(doctor_explain_userns(&error), -1);
  assert_non_null(strstr(error.message, "cannot make a user namespace"));
  assert_null(strstr(error.message, "No space left"));
  assert_non_null(error.hint);
  assert_int_not_equal(error.errnum, 0); /* another one where there are no user namespaces */
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_table_is_sane),
    cmocka_unit_test(test_groups_are_together),
    cmocka_unit_test(test_rows_that_the_verdict_names_exist),
    cmocka_unit_test(test_every_reason_is_explained),
    cmocka_unit_test(test_facts_lead_to_the_reason),
    cmocka_unit_test(test_apparmor_is_recognised_at_every_stage),
    cmocka_unit_test(test_fixes_name_the_exact_setting),
    cmocka_unit_test(test_errnos_are_states),
    cmocka_unit_test(test_cgroup_layouts),
    cmocka_unit_test(test_cgroup_paths),
    cmocka_unit_test(test_the_table_s_fix_stands_in),
    cmocka_unit_test(test_verdict),
    cmocka_unit_test(test_bad_probes_cost_only_their_row),
    cmocka_unit_test(test_explaining_always_says_something),
};

UNIT_MAIN(tests)
