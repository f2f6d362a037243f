/* Limits without a kernel that enforces them: the table, the parsers, the state machines, and the
 * cgroup logic on trees of plain files. mkdir and rmdir are wrapped (see meson.build) so that a
 * folder made in such a tree has control files from birth and can be removed with them. */
#include "unit.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "limits/disk.h"
#include "limits/limits.h"
#include "limits/place.h"
#include "limits/sample.h"

/* ---- trees of plain files ---- */

static char tree[64];
static const char *const *born_with; /* files that a new folder has */

int __real_mkdirat(int folder, const char *name, mode_t mode);
int __wrap_mkdirat(int folder, const char *name, mode_t mode);
int __real_unlinkat(int folder, const char *name, int flags);
int __wrap_unlinkat(int folder, const char *name, int flags);

int __wrap_mkdirat(int folder, const char *name, mode_t mode) {
  if (__real_mkdirat(folder, name, mode) < 0)
    return -1;
  int made = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; born_with && born_with[i]; i++)
    close(openat(made, born_with[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  close(made);
  return 0;
}

int __wrap_unlinkat(int folder, const char *name, int flags) {
  int fd = openat(folder, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (size_t i = 0; fd >= 0 && born_with && born_with[i]; i++)
    __real_unlinkat(fd, born_with[i], 0);
  if (fd >= 0)
    close(fd);
  return __real_unlinkat(folder, name, flags);
}

static void put(const char *path, const char *text) {
  _cleanup_free_ char *full = xasprintf("%s/%s", tree, path);
  _cleanup_free_ char *parent = xstrdup(full);
  *strrchr(parent, '/') = '\0';
  assert_int_equal(file_make_folders(parent, 0700), 0);
  _cleanup_close_ int fd = open(full, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  assert_true(fd >= 0);
  assert_int_equal(file_write_all(fd, text, strlen(text)), 0);
}

static void assert_file(const char *path, const char *wanted) {
  _cleanup_free_ char *full = xasprintf("%s/%s", tree, path);
  _cleanup_free_ char *text = NULL;
  assert_int_equal(file_read_at(AT_FDCWD, full, 4096, &text, NULL), 0);
  assert_string_equal(text, wanted);
}

static bool exists(const char *path) {
  _cleanup_free_ char *full = xasprintf("%s/%s", tree, path);
  return access(full, F_OK) == 0;
}

static int make_tree(void **state) {
  (void)state;
  strcpy(tree, "/tmp/test-limits-XXXXXX");
  return mkdtemp(tree) ? 0 : -1;
}

static int remove_tree(void **state) {
  (void)state;
  born_with = NULL;
  _cleanup_free_ char *command = xasprintf("rm -rf '%s'", tree);
  return system(command);
}

static int create(const struct limit_set *set, enum cgroup_version version, const char *membership,
                  struct limit_group *ret_group, struct sb_error *error) {
  struct cgroup_place place = {.version = version, .mount = tree, .membership = membership};
  struct limit_request request = {
      .set = set, .session_id = "abc", .own_processes = 2, .place = &place};
  return limit_group_create(&request, ret_group, error);
}

static const char *const v2_files[] = {
    "memory.max",   "memory.swap.max",        "pids.max",    "cpu.max",
    "cgroup.procs", "cgroup.subtree_control", "cgroup.kill", NULL};

static const struct limit_set three_limits = {
    .value = {[LIMIT_MEMORY] = 64 << 20, [LIMIT_PROCESSES] = 10, [LIMIT_CPU] = 500000000}};

/* ---- the table ---- */

static void test_resolve(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  struct limits limits = {.cpu_percent = 150.5,
                          .memory_mb = 512,
                          .timeout_seconds = 3,
                          .open_files = 64,
                          .inodes = 1000};
  struct limit_set set;
  assert_int_equal(limit_set_resolve(&limits, &set, &error), 0);
  assert_int_equal(set.value[LIMIT_CPU], 1505000000);
  assert_int_equal(set.value[LIMIT_MEMORY], 512ULL << 20);
  assert_int_equal(set.value[LIMIT_TIME], 3000000000);
  assert_int_equal(set.value[LIMIT_OPEN_FILES], 64);
  assert_int_equal(set.value[LIMIT_DISK], 0);
  assert_false(limit_set_is_empty(&set));
  _cleanup_free_ char *memory = limit_describe(&set, LIMIT_MEMORY);
  assert_string_equal(memory, "512 MiB");
  _cleanup_free_ char *cpu = limit_describe(&set, LIMIT_CPU);
  assert_string_equal(cpu, "150.5 % of one core");

  limits = (struct limits){0};
  assert_int_equal(limit_set_resolve(&limits, &set, &error), 0);
  assert_true(limit_set_is_empty(&set));
}

static void test_resolve_refuses(void **state) {
  (void)state;
  static const struct {
    struct limits limits;
    const char *named;
  } rows[] = {
      {{.cpu_percent = -1}, "limits.cpu_percent"},
      {{.cpu_percent = NAN}, "limits.cpu_percent"},
      {{.cpu_percent = 0.5}, "limits.cpu_percent"},
      {{.memory_mb = 1}, "limits.memory_mb"},
      {{.memory_mb = ~0ULL}, "limits.memory_mb"},
      {{.max_processes = 1ULL << 40}, "limits.max_processes"},
      {{.open_files = 2}, "limits.open_files"},
      {{.timeout_seconds = ~0ULL}, "limits.timeout_seconds"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_error_ struct sb_error error = {0};
    struct limit_set set = {.value = {7}};
    assert_int_equal(limit_set_resolve(&rows[i].limits, &set, &error), -1);
    assert_int_equal(error.code, SB_CODE_POLICY);
    assert_non_null(strstr(error.message, rows[i].named));
    assert_non_null(strstr(error.hint, "from"));
    assert_int_equal(set.value[0], 7); /* untouched */
  }
}

static void test_names_are_unique(void **state) {
  (void)state;
  for (size_t i = 0; i < LIMIT_COUNT; i++) {
    assert_non_null(limit_name((enum limit_kind)i));
    assert_non_null(limit_title((enum limit_kind)i));
    for (size_t j = 0; j < i; j++)
      assert_string_not_equal(limit_name((enum limit_kind)i), limit_name((enum limit_kind)j));
  }
  for (size_t i = 0; i < ENFORCER_COUNT; i++)
    assert_non_null(limit_enforcer_text((enum limit_enforcer)i));
}

/* ---- wall time ---- */

static void test_deadline(void **state) {
  (void)state;
  struct deadline deadline = deadline_new(1000, 5000000, 2000000);
  assert_int_equal(deadline_timeout_ms(&deadline, 1000), 5);
  assert_int_equal(deadline_timeout_ms(&deadline, 1001), 5); /* rounded up: never too early */
  assert_int_equal(deadline_step(&deadline, 5000999), DEADLINE_NOTHING);
  assert_int_equal(deadline_step(&deadline, 5001000), DEADLINE_TERM);
  assert_int_equal(deadline_step(&deadline, 5001001), DEADLINE_NOTHING); /* once */
  assert_int_equal(deadline_timeout_ms(&deadline, 5001000), 2);
  assert_int_equal(deadline_step(&deadline, 9000000), DEADLINE_KILL);
  assert_int_equal(deadline_step(&deadline, 99000000), DEADLINE_NOTHING);
  assert_int_equal(deadline_timeout_ms(&deadline, 99000000), -1);

  struct deadline none = deadline_new(1000, 0, 5);
  assert_int_equal(deadline_timeout_ms(&none, 2000), -1);
  assert_int_equal(deadline_step(&none, UINT64_MAX), DEADLINE_NOTHING);

  struct deadline hard = deadline_new(0, 10, 0); /* no grace: no polite request */
  assert_int_equal(deadline_step(&hard, 10), DEADLINE_KILL);

  struct deadline far = deadline_new(1000, UINT64_MAX, 1);
  assert_int_equal(deadline_step(&far, 1ULL << 62), DEADLINE_NOTHING);
  assert_true(deadline_timeout_ms(&far, 1000) > 0);
}

static void test_watch_interval(void **state) {
  (void)state;
  assert_int_equal(limit_watch_interval(10, 1000, 9000), 1000);
  assert_int_equal(limit_watch_interval(100, 1000, 9000), 5000);
  assert_int_equal(limit_watch_interval(1000, 1000, 9000), 9000);
  assert_int_equal(limit_watch_interval(UINT64_MAX, 1000, 9000), 9000);
}

/* ---- parsing ---- */

static void test_membership(void **state) {
  (void)state;
  const char *text = "12:cpu,cpuacct:/a\nnonsense\n1:name=systemd:/\n0::/user.slice/x:y\n";
  struct cgroup_membership line;
  assert_true(cgroup_membership_next(&text, &line));
  assert_int_equal(
      cgroup_controllers_in(CGROUP_VERSION_1, line.controllers, line.controllers_length, ','),
      1u << CONTROLLER_CPU | 1u << CONTROLLER_CPUACCT);
  assert_int_equal(line.path_length, 2);
  assert_true(cgroup_membership_next(&text, &line));
  assert_int_equal(
      cgroup_controllers_in(CGROUP_VERSION_1, line.controllers, line.controllers_length, ','), 0);
  assert_true(cgroup_membership_next(&text, &line));
  assert_int_equal(line.controllers_length, 0);
  assert_memory_equal(line.path, "/user.slice/x:y", line.path_length);
  assert_int_equal(line.path_length, 15);
  assert_false(cgroup_membership_next(&text, &line));
}

static void test_controllers(void **state) {
  (void)state;
  assert_int_equal(cgroup_controllers_in(CGROUP_VERSION_2, "cpuset cpu io memory", 20, ' '),
                   1u << CONTROLLER_CPU | 1u << CONTROLLER_IO | 1u << CONTROLLER_MEMORY);
  assert_int_equal(cgroup_controllers_in(CGROUP_VERSION_2, "cpuset", 6, ' '), 0);
  assert_int_equal(cgroup_controllers_in(CGROUP_VERSION_2, "", 0, ' '), 0);
}

static void test_sample_parsers(void **state) {
  (void)state;
  uint64_t value = 0;
  const char *events = "low 0\nhigh 3\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n";
  assert_true(sample_find(events, "oom_kill", &value));
  assert_int_equal(value, 2);
  assert_true(sample_find(events, "max", &value));
  assert_int_equal(value, 12);
  assert_false(sample_find(events, "kill", &value));
  assert_false(sample_find("", "max", &value));
  assert_int_equal(sample_io("8:0 rbytes=10 wbytes=5 dbytes=0\n8:16 rbytes=7 wbytes=1\n", "rbytes"),
                   17);
  assert_int_equal(sample_io("8:0 Read 10\n8:0 Write 5\n8:16 Read 1\nTotal 16\n", "Read"), 11);
}

static void test_stat_of_a_hostile_name(void **state) {
  (void)state;
  uint64_t ticks;
  const char *text = "42 (a) R 1 1 (x) S 1 42 42 0 -1 4194304 88 0 0 0 3 4 50 60 20 0 7 0 99 1 1";
  assert_true(sample_parse_stat(text, &ticks));
  assert_int_equal(ticks, 117);
  assert_false(sample_parse_stat("42 (cut off) S 1 2", &ticks));
  assert_false(sample_parse_stat("", &ticks));
}

/* ---- cgroup v2 on a tree of files ---- */

static void test_v2_own_group(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  put("me/cgroup.subtree_control", "cpu memory pids\n");
  put("me/cgroup.procs", "");
  struct limit_group group;
  assert_int_equal(create(&three_limits, CGROUP_VERSION_2, "0::/me\n", &group, &error), 0);
  assert_file("me/sandbox-abc/memory.max", "67108864");
  assert_file("me/sandbox-abc/memory.swap.max", "0");
  assert_file("me/sandbox-abc/pids.max", "12"); /* two of ours on top */
  assert_file("me/sandbox-abc/cpu.max", "50000 100000");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_MEMORY), "cgroup v2");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_DISK), "none"); /* not asked for */
  assert_true(limit_group_clone_fd(&group) >= 0);
  assert_int_equal(group.rlimits.count, 0);
  assert_false(limit_group_needs_watch(&group));
  assert_int_equal(limit_group_remove(&group), 0);
  assert_false(exists("me/sandbox-abc"));
  assert_int_equal(limit_group_clone_fd(&group), -1);
}

static void test_v2_parent_group(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  put("slice/me/cgroup.subtree_control", "\n");
  put("slice/me/cgroup.procs", "1\n2\n");
  put("slice/cgroup.subtree_control", "cpu memory pids\n");
  put("slice/cgroup.procs", "");
  struct limit_group group;
  assert_int_equal(create(&three_limits, CGROUP_VERSION_2, "0::/slice/me\n", &group, &error), 0);
  assert_file("slice/sandbox-abc/memory.max", "67108864");
  assert_file("slice/cgroup.subtree_control", "cpu memory pids\n"); /* left as it was */
  assert_false(group.monitor_moved);
  assert_int_equal(limit_group_remove(&group), 0);
  assert_false(exists("slice/sandbox-abc"));
}

static void test_v2_alone_in_a_delegated_group(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  char ours[32];
  snprintf(ours, sizeof ours, "%d\n", getpid());
  put("scope/cgroup.procs", ours);
  put("scope/cgroup.subtree_control", "");
  put("scope/cgroup.controllers", "cpu memory pids\n");
  struct limit_group group;
  assert_int_equal(create(&three_limits, CGROUP_VERSION_2, "0::/scope\n", &group, &error), 0);
  assert_true(group.monitor_moved);
  assert_file("scope/sandbox-abc.monitor/cgroup.procs", "0"); /* we stepped aside */
  assert_file("scope/sandbox-abc/memory.max", "67108864");
  assert_int_equal(limit_group_remove(&group), 0);
  assert_false(exists("scope/sandbox-abc"));
  assert_false(exists("scope/sandbox-abc.monitor"));
}

static void test_v2_not_alone(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  char ours[32];
  snprintf(ours, sizeof ours, "1\n%d\n", getpid());
  put("scope/cgroup.procs", ours);
  put("scope/cgroup.subtree_control", "");
  put("scope/cgroup.controllers", "cpu memory pids\n");
  struct limit_group group;
  assert_int_equal(create(&three_limits, CGROUP_VERSION_2, "0::/scope\n", &group, &error), -1);
  assert_int_equal(error.code, SB_CODE_UNSUPPORTED);
  assert_non_null(strstr(error.message, "limits.cpu_percent"));
  assert_non_null(strstr(error.hint, "systemd-run --user --scope"));
  assert_false(exists("scope/sandbox-abc"));
}

static void test_v2_lacks_a_controller(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  put("me/cgroup.subtree_control", "pids\n");
  put("me/cgroup.procs", "1\n");
  struct limit_set set = {.value = {[LIMIT_MEMORY] = 64 << 20, [LIMIT_PROCESSES] = 5}};
  struct limit_group group;
  assert_int_equal(create(&set, CGROUP_VERSION_2, "0::/me\n", &group, &error), 0);
  assert_string_equal(limit_enforcer_name(&group, LIMIT_PROCESSES), "cgroup v2");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_MEMORY), "watch");
  assert_true(limit_group_needs_watch(&group));
  assert_int_equal(group.rlimits.count, 0);
  assert_true(group.rlimits.first_to_die);
  assert_int_equal(limit_group_remove(&group), 0);
}

static void test_group_outside_of_view(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  born_with = v2_files;
  put("cgroup.subtree_control", "memory pids cpu\n");
  put("cgroup.procs", "");
  struct limit_set set = {.value = {[LIMIT_MEMORY] = 64 << 20}};
  struct limit_group group;
  assert_int_equal(create(&set, CGROUP_VERSION_2, "0::/../other\n", &group, &error), 0);
  assert_string_equal(limit_enforcer_name(&group, LIMIT_MEMORY), "watch");
  limit_group_remove(&group);
  /* A container's own group is the root of its mount, by whatever name. */
  assert_int_equal(create(&set, CGROUP_VERSION_2, "0::/docker/123\n", &group, &error), 0);
  assert_string_equal(limit_enforcer_name(&group, LIMIT_MEMORY), "cgroup v2");
  assert_true(exists("sandbox-abc/memory.max"));
  limit_group_remove(&group);
}

static void test_v2_sample(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  static const char *const files[] = {
      "memory.max",  "memory.current", "memory.peak",     "memory.events", "pids.max", "pids.peak",
      "pids.events", "pids.current",   "memory.swap.max", "cpu.stat",      NULL};
  born_with = files;
  put("me/cgroup.subtree_control", "memory pids\n");
  put("me/cgroup.procs", "");
  struct limit_set set = {.value = {[LIMIT_MEMORY] = 64 << 20, [LIMIT_PROCESSES] = 5}};
  struct limit_group group;
  assert_int_equal(create(&set, CGROUP_VERSION_2, "0::/me\n", &group, &error), 0);
  put("me/sandbox-abc/memory.current", "1000\n");
  put("me/sandbox-abc/memory.peak", "2000\n");
  put("me/sandbox-abc/memory.events", "max 3\noom 1\noom_kill 0\n");
  put("me/sandbox-abc/pids.current", "4\n");
  put("me/sandbox-abc/pids.events", "max 0\n");
  put("me/sandbox-abc/cpu.stat", "usage_usec 1500\nuser_usec 1000\nsystem_usec 500\n");
  struct usage usage;
  enum limit_kind kind = LIMIT_COUNT;
  limit_group_sample(&group, &usage);
  assert_int_equal(usage.memory_bytes, 1000);
  assert_int_equal(usage.memory_peak_bytes, 2000);
  assert_int_equal(usage.processes, 4);
  assert_int_equal(usage.processes_peak, 4); /* by what we saw: pids.peak is empty */
  assert_int_equal(usage.cpu_ns, 1500000);
  assert_true(usage.io_read_bytes == USAGE_UNKNOWN);
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_FINE);

  put("me/sandbox-abc/pids.events", "max 9\n");
  limit_group_sample(&group, &usage);
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_REACHED);
  assert_int_equal(kind, LIMIT_PROCESSES);
  put("me/sandbox-abc/memory.events", "max 3\noom 1\noom_kill 1\n");
  limit_group_sample(&group, &usage);
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_REACHED);
  assert_int_equal(kind, LIMIT_MEMORY); /* the kill is what ended it */
  assert_int_equal(limit_group_remove(&group), 0);
}

/* ---- cgroup v1 on a tree of files ---- */

static void test_v1_groups(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  static const char *const files[] = {"memory.limit_in_bytes",
                                      "memory.memsw.limit_in_bytes",
                                      "memory.swappiness",
                                      "pids.max",
                                      "cpu.cfs_quota_us",
                                      "tasks",
                                      NULL};
  born_with = files;
  put("memory/outer/x", "");
  put("pids/x", "");
  put("cpu,cpuacct/x", "");
  struct limit_group group;
  assert_int_equal(create(&three_limits, CGROUP_VERSION_1,
                          "4:cpu,cpuacct:/\n3:pids:/\n2:memory:/outer\n1:name=systemd:/\n0::/\n",
                          &group, &error),
                   0);
  assert_int_equal(group.hierarchy_count, 3);
  assert_file("memory/outer/sandbox-abc/memory.limit_in_bytes", "67108864");
  assert_file("memory/outer/sandbox-abc/memory.memsw.limit_in_bytes", "67108864");
  assert_file("memory/outer/sandbox-abc/memory.swappiness", ""); /* memsw does it */
  assert_file("pids/sandbox-abc/pids.max", "12");
  assert_file("cpu,cpuacct/sandbox-abc/cpu.cfs_quota_us", "50000");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_CPU), "cgroup v1");
  assert_int_equal(limit_group_clone_fd(&group), -1);
  assert_int_equal(limit_group_remove(&group), 0);
  assert_false(exists("memory/outer/sandbox-abc"));
  assert_false(exists("pids/sandbox-abc"));
}

static void test_v1_without_swap_accounting(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  static const char *const files[] = {"memory.limit_in_bytes", "memory.swappiness", "tasks", NULL};
  born_with = files;
  put("memory/x", "");
  struct limit_set set = {.value = {[LIMIT_MEMORY] = 64 << 20}};
  struct limit_group group;
  assert_int_equal(create(&set, CGROUP_VERSION_1, "2:memory:/\n", &group, &error), 0);
  assert_file("memory/sandbox-abc/memory.swappiness", "0");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_MEMORY), "cgroup v1");
  assert_int_equal(limit_group_remove(&group), 0);
}

/* ---- no cgroup ---- */

static const struct cgroup_place nowhere = {.version = CGROUP_VERSION_NONE};

static void test_nothing_is_made_for_nothing(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  struct limit_set set = {.value = {[LIMIT_TIME] = 1, [LIMIT_OPEN_FILES] = 64}};
  struct limit_group group;
  born_with = v2_files;
  put("cgroup.subtree_control", "memory pids cpu\n");
  put("cgroup.procs", "");
  assert_int_equal(create(&set, CGROUP_VERSION_2, "0::/\n", &group, &error), 0);
  assert_int_equal(group.hierarchy_count, 0);
  assert_string_equal(limit_enforcer_name(&group, LIMIT_TIME), "timer");
  assert_string_equal(limit_enforcer_name(&group, LIMIT_OPEN_FILES), "rlimit");
  assert_int_equal(group.rlimits.count, 1);
  limit_group_remove(&group);
}

static void test_without_cgroups(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  struct limit_set set = {.value = {[LIMIT_CPU] = 1000}};
  struct limit_request request = {.set = &set, .session_id = "abc", .place = &nowhere};
  struct limit_group group;
  assert_int_equal(limit_group_create(&request, &group, &error), -1);
  assert_int_equal(error.code, SB_CODE_UNSUPPORTED);
  request.best_effort = true;
  assert_int_equal(limit_group_create(&request, &group, &error), 0);
  assert_string_equal(limit_enforcer_name(&group, LIMIT_CPU), "none");
  limit_group_remove(&group);
}

static void test_rlimits(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  struct limit_set set = {.value = {[LIMIT_FILE_SIZE] = 100, [LIMIT_DISK] = 50}};
  struct limit_request request = {.set = &set, .session_id = "abc", .place = &nowhere};
  struct limit_group group;
  enum limit_kind kind;
  assert_int_equal(limit_group_create(&request, &group, &error), 0);
  assert_int_equal(group.rlimits.items[0].resource, RLIMIT_FSIZE);
  assert_int_equal(group.rlimits.items[0].value, 50);
  assert_true(limit_group_explains_signal(&group, SIGXFSZ, &kind));
  assert_int_equal(kind, LIMIT_DISK);
  assert_false(limit_group_explains_signal(&group, SIGTERM, &kind));
  limit_group_remove(&group);
  set.value[LIMIT_FILE_SIZE] = 20;
  assert_int_equal(limit_group_create(&request, &group, &error), 0);
  assert_true(limit_group_explains_signal(&group, SIGXFSZ, &kind));
  assert_int_equal(kind, LIMIT_FILE_SIZE);
  limit_group_remove(&group);
}

static struct usage unknown_usage(void) {
  struct usage usage;
  memset(&usage, 0xff, sizeof usage);
  return usage;
}

static void test_check_by_watch(void **state) {
  (void)state;
  struct limit_group group = LIMIT_GROUP_NONE;
  group.set = (struct limit_set){
      .value = {
          [LIMIT_MEMORY] = 100, [LIMIT_PROCESSES] = 5, [LIMIT_DISK] = 10, [LIMIT_INODES] = 3}};
  group.enforcers[LIMIT_MEMORY] = ENFORCER_WATCH;
  group.enforcers[LIMIT_PROCESSES] = ENFORCER_RLIMIT;
  group.own_processes = 1;
  enum limit_kind kind = LIMIT_COUNT;
  struct usage usage = unknown_usage();
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_FINE);
  usage.memory_bytes = 100;
  usage.processes = usage.processes_peak = 5;
  usage.disk_bytes = 10;
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_FINE);
  usage.processes_peak = 6;
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_REACHED);
  assert_int_equal(kind, LIMIT_PROCESSES);
  usage.disk_files = 4;
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_EXCEEDED);
  assert_int_equal(kind, LIMIT_INODES);
  usage.memory_bytes = 101;
  assert_int_equal(limit_group_check(&group, &usage, &kind), LIMIT_EXCEEDED);
  assert_int_equal(kind, LIMIT_MEMORY);
}

/* ---- the disk watch ---- */

static void pass(struct disk_watch *watch) {
  disk_watch_step(watch, 10000000000); /* far longer than a pass over these trees takes */
}

static void put_bytes(const char *name, size_t length) {
  _cleanup_free_ char *data = xcalloc(1, length + 1);
  memset(data, 'x', length);
  put(name, data);
}

static void test_disk_growth(void **state) {
  (void)state;
  put_bytes("old/a", 256 << 10);
  struct timespec pause = {.tv_nsec = 20000000}, now;
  nanosleep(&pause, NULL); /* time stamps of files are as coarse as a tick */
  clock_gettime(CLOCK_REALTIME, &now);
  nanosleep(&pause, NULL);
  _cleanup_strv_ struct strv folders = {0};
  strv_add(&folders, tree);
  struct disk_watch *watch =
      disk_watch_new(&folders, (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec);
  put_bytes("new/before-the-first-pass", 128 << 10);
  uint64_t bytes, files;
  disk_watch_growth(watch, &bytes, &files);
  assert_true(bytes == USAGE_UNKNOWN);
  pass(watch);
  disk_watch_growth(watch, &bytes, &files);
  assert_in_range(bytes, 128 << 10, 160 << 10);
  assert_int_equal(files, 2);

  put_bytes("new/deep/er/still/b", 512 << 10);
  _cleanup_free_ char *from = xasprintf("%s/new/deep/er/still/b", tree);
  _cleanup_free_ char *to = xasprintf("%s/new/another-name", tree);
  _cleanup_free_ char *loop = xasprintf("%s/new/loop", tree);
  assert_int_equal(link(from, to), 0);      /* takes no space */
  assert_int_equal(symlink(tree, loop), 0); /* is not followed */
  pass(watch);
  disk_watch_growth(watch, &bytes, &files);
  assert_in_range(bytes, 640 << 10, 720 << 10);
  assert_int_equal(files, 8);

  assert_int_equal(unlink(from), 0);
  assert_int_equal(unlink(to), 0);
  pass(watch);
  disk_watch_growth(watch, &bytes, &files);
  assert_in_range(bytes, 128 << 10, 192 << 10);
  disk_watch_free(watch);
}

static void test_disk_steps_are_bounded(void **state) {
  (void)state;
  for (int i = 0; i < 300; i++) {
    char name[32];
    snprintf(name, sizeof name, "d%d/f", i);
    put(name, "x");
  }
  _cleanup_strv_ struct strv folders = {0};
  strv_add(&folders, tree);
  struct disk_watch *watch = disk_watch_new(&folders, UINT64_MAX);
  uint64_t bytes, files;
  size_t steps = 0;
  do {
    disk_watch_step(watch, 1); /* one folder at a time */
    disk_watch_growth(watch, &bytes, &files);
  } while (++steps < 1000 && bytes == USAGE_UNKNOWN);
  assert_int_equal(steps, 301);
  assert_int_equal(files, 0);
  disk_watch_free(watch);
}

/* ---- metrics ---- */

static void test_metrics(void **state) {
  (void)state;
  struct usage_sample sample = {.session_id = "a\"b\\c\nd", .usage = unknown_usage()};
  sample.usage.cpu_ns = 1500000000;
  sample.usage.processes = 3;
  _cleanup_text_ struct text text = {0};
  usage_to_prometheus(&sample, 1, &text);
  const char *string = text_string(&text);
  assert_non_null(
      strstr(string, "sandbox_cpu_seconds_total{session=\"a\\\"b\\\\c\\nd\"} 1.500000000\n"));
  assert_non_null(strstr(string, "# TYPE sandbox_processes gauge\nsandbox_processes{session="));
  assert_null(strstr(string, "sandbox_memory_bytes{"));

  json_t *json = usage_to_json(&sample.usage);
  assert_int_equal(json_integer_value(json_object_get(json, "cpu_ns")), 1500000000);
  assert_true(json_is_null(json_object_get(json, "memory_bytes")));
  json_decref(json);

  struct rusage rusage = {.ru_utime = {.tv_sec = 2}, .ru_stime = {.tv_usec = 5}, .ru_maxrss = 10};
  usage_add_rusage(&sample.usage, &rusage);
  assert_int_equal(sample.usage.cpu_ns, 2000005000);
  assert_int_equal(sample.usage.memory_peak_bytes, 10240);
}

#define IN_TREE(test) cmocka_unit_test_setup_teardown(test, make_tree, remove_tree)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_resolve),
    cmocka_unit_test(test_resolve_refuses),
    cmocka_unit_test(test_names_are_unique),
    cmocka_unit_test(test_deadline),
    cmocka_unit_test(test_watch_interval),
    cmocka_unit_test(test_membership),
    cmocka_unit_test(test_controllers),
    cmocka_unit_test(test_sample_parsers),
    cmocka_unit_test(test_stat_of_a_hostile_name),
    IN_TREE(test_v2_own_group),
    IN_TREE(test_v2_parent_group),
    IN_TREE(test_v2_alone_in_a_delegated_group),
    IN_TREE(test_v2_not_alone),
    IN_TREE(test_v2_lacks_a_controller),
    IN_TREE(test_group_outside_of_view),
    IN_TREE(test_v2_sample),
    IN_TREE(test_v1_groups),
    IN_TREE(test_v1_without_swap_accounting),
    IN_TREE(test_nothing_is_made_for_nothing),
    cmocka_unit_test(test_without_cgroups),
    cmocka_unit_test(test_rlimits),
    cmocka_unit_test(test_check_by_watch),
    IN_TREE(test_disk_growth),
    IN_TREE(test_disk_steps_are_bounded),
    cmocka_unit_test(test_metrics),
};

UNIT_MAIN(tests)
