/* Changes of a session: what a name means, the clock of file stamps, snapshot and comparison. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "changes/changes.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"
#include "overlay/remove.h"

/* ---- judging ---- */

static struct judgement judge(enum change_kind kind, const char *path, mode_t mode,
                              const char *link) {
  static char place[] = "/home/me/project";
  static char *places[] = {place};
  return change_judge(&(struct judged){.kind = kind,
                                       .path = path,
                                       .mode = mode,
                                       .link = link,
                                       .place = place,
                                       .places = places,
                                       .place_count = 1});
}

static void test_flags_of_names_and_modes(void **state) {
  (void)state;
  static const struct {
    const char *path;
    mode_t mode;
    unsigned flags;
  } rows[] = {
      {"src/main.c", S_IFREG | 0644, 0},
      {"src/Makefile", S_IFREG | 0644, CHANGE_RUN_LATER},
      {"rules.mk", S_IFREG | 0644, CHANGE_RUN_LATER},
      {".mk", S_IFREG | 0644, CHANGE_RUN_LATER},
      {"Makefile.old", S_IFREG | 0644, 0},
      {"web/package.json", S_IFREG | 0644, CHANGE_RUN_LATER},
      {"a/node_modules/.bin/tsc", S_IFREG | 0755, CHANGE_RUN_LATER},
      {"my_node_modules/.bin/tsc", S_IFREG | 0755, 0},
      {".github/workflows/ci.yml", S_IFREG | 0644, CHANGE_RUN_LATER},
      {".git/index", S_IFREG | 0644, 0},
      {".git/hooks/pre-commit", S_IFREG | 0755, CHANGE_PROTECTED | CHANGE_HOOK},
      {"sub/.vscode/tasks.json", S_IFREG | 0644, CHANGE_PROTECTED},
      {".vscodes", S_IFREG | 0644, 0},
      {".bashrc", S_IFREG | 0644, 0},
      {"src/hooks/use.js", S_IFREG | 0644, 0},
      {"src/hooks/run", S_IFREG | 0755, CHANGE_HOOK},
      {"vendor/lib/.git", S_IFDIR | 0755, CHANGE_NESTED_GIT},
      {".git", S_IFDIR | 0755, 0},
      {"s", S_IFREG | 04755, CHANGE_SETUID},
      {"s", S_IFREG | 02755, CHANGE_SETGID},
      {"s", S_IFDIR | 02755, 0},
      {"README.md", S_IFIFO | 0644, CHANGE_FIFO},
      {"x", S_IFSOCK | 0644, CHANGE_SOCKET},
      {"x", S_IFCHR | 0644, CHANGE_DEVICE},
      {"a\x1b[2Kb", S_IFREG | 0644, CHANGE_STRANGE_NAME},
      {"gpj\xe2\x80\xaetxt", S_IFREG | 0644, CHANGE_STRANGE_NAME},
      {"gr\xc3\xbc\xc3\x9f", S_IFREG | 0644, 0},
      {"\xff", S_IFREG | 0644, CHANGE_STRANGE_NAME},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    unsigned flags = judge(CHANGE_CREATED, rows[i].path, rows[i].mode, NULL).flags;
    if (flags != rows[i].flags)
      print_message("# row %zu: %s\n", i, rows[i].path);
    assert_int_equal(flags, rows[i].flags);
  }
}

static void test_links_are_judged_by_their_target(void **state) {
  (void)state;
  static const struct {
    const char *path, *target;
    bool outside;
  } rows[] = {
      {"a", "b", false},
      {"a", "../project/b", false},
      {"a", "../other", true},
      {"s/a", "../b", false},
      {"s/a", "../../b", true},
      {"a", "/etc/passwd", true},
      {"a", "/home/me/project", false},
      {"a", "/home/me/project-evil", true},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    unsigned flags = judge(CHANGE_CREATED, rows[i].path, S_IFLNK | 0777, rows[i].target).flags;
    assert_int_equal((flags & CHANGE_LINK_OUTSIDE) != 0, rows[i].outside);
  }
}

/* ---- comparing ---- */

static char *make_place(void) {
  char *place = xstrdup("/tmp/test-changes.XXXXXX");
  assert_non_null(mkdtemp(place));
  return place;
}

static void put(const char *place, const char *name, const char *data) {
  _cleanup_free_ char *path = xasprintf("%s/%s", place, name);
  _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, data, strlen(data)), strlen(data));
}

static void make(const char *place, const char *name) {
  _cleanup_free_ char *path = xasprintf("%s/%s", place, name);
  assert_int_equal(mkdir(path, 0755), 0);
}

static void drop(const char *place, const char *name) {
  _cleanup_free_ char *path = xasprintf("%s/%s", place, name);
  assert_int_equal(remove(path), 0);
}

/* Stamps have the granularity of a tick: what is older has to be older by one. */
static void wait_a_tick(void) {
  usleep(20000);
}

static void assert_changes(const struct changes *changes, const char *expected) {
  _cleanup_text_ struct text text = {0};
  for (size_t i = 0; i < changes->count; i++)
    text_appendf(&text, "%c %s;", "+~-"[changes->items[i].kind], changes -> items[i].path);
  assert_string_equal(text_string(&text), expected);
}

static void test_every_kind_of_change_is_found(void **state) {
  (void)state;
  _cleanup_free_ char *place = make_place();
  make(place, "keep");
  make(place, "gone");
  put(place, "gone/x", "1");
  put(place, "keep/same", "1");
  put(place, "keep/edited", "1");
  put(place, "keep/moved", "1");
  put(place, "type", "1");
  wait_a_tick();
  _cleanup_snapshot_ struct snapshot *snapshot =
      changes_snapshot_begin(&place, 1, &changes_default_limits);
  assert_int_equal(snapshot_name_count(snapshot), 7);

  put(place, "keep/edited", "2");
  drop(place, "gone/x");
  drop(place, "gone");
  make(place, "new");
  put(place, "new/y", "1");
  drop(place, "type");
  make(place, "type");
  put(place, "type/inner", "1");
  _cleanup_free_ char *from = xasprintf("%s/keep/moved", place), *to = xasprintf("%s/z", place);
  assert_int_equal(rename(from, to), 0);
  _cleanup_changes_ struct changes *changes =
      changes_report(snapshot, NULL, &changes_default_limits);
  assert_changes(changes, "- gone;- gone/x;~ keep/edited;- keep/moved;+ new;+ new/y;~ type;"
                          "+ type/inner;+ z;");
  assert_true(changes->complete);
  tree_remove(AT_FDCWD, place, NULL);
}

static void test_the_first_moment_counts_and_the_last_before_does_not(void **state) {
  (void)state;
  _cleanup_free_ char *place = make_place();
  put(place, "early", "1");
  put(place, "first", "1");
  wait_a_tick();
  for (int i = 0; i < 50; i++) {
    _cleanup_snapshot_ struct snapshot *snapshot =
        changes_snapshot_begin(&place, 1, &changes_default_limits);
    put(place, "first", "2"); /* within microseconds of the start */
    _cleanup_changes_ struct changes *changes =
        changes_report(snapshot, NULL, &changes_default_limits);
    assert_changes(changes, "~ first;");
    wait_a_tick();
  }
  tree_remove(AT_FDCWD, place, NULL);
}

static void test_a_clock_set_back_hides_nothing(void **state) {
  (void)state;
  struct change_clock clock = change_clock_now();
  struct timespec start = change_clock_start(&clock);
  assert_int_equal(start.tv_sec, clock.start.tv_sec);
  clock.offset_ns += 3600ll * 1000000000; /* as if it had been an hour ahead at the start */
  start = change_clock_start(&clock);
  assert_in_range(clock.start.tv_sec - start.tv_sec, 3599, 3601);
}

static void test_limits_are_kept_and_said(void **state) {
  (void)state;
  _cleanup_free_ char *place = make_place();
  _cleanup_snapshot_ struct snapshot *snapshot =
      changes_snapshot_begin(&place, 1, &changes_default_limits);
  for (int i = 0; i < 30; i++) {
    char name[16];
    snprintf(name, sizeof name, "f%02d", i);
    put(place, name, "1");
  }
  _cleanup_free_ char *fifo = xasprintf("%s/z", place);
  assert_int_equal(mkfifo(fifo, 0600), 0);
  const struct changes_limits few = {.milliseconds = 2000, .names = 1000, .items = 10};
  _cleanup_changes_ struct changes *changes = changes_report(snapshot, NULL, &few);
  assert_int_equal(changes->totals[CHANGE_CREATED], 31);
  assert_int_equal(changes->count, 11); /* the dangerous one has a place of its own */
  assert_int_equal(changes->dangerous, 1);
  _cleanup_free_ char *text = changes_to_text(changes, 5);
  assert_non_null(strstr(text, "created   z: a FIFO"));
  assert_non_null(strstr(text, "and 25 more"));
  tree_remove(AT_FDCWD, place, NULL);
}

static void test_an_incomplete_snapshot_does_not_invent_changes(void **state) {
  (void)state;
  _cleanup_free_ char *place = make_place();
  make(place, "d");
  put(place, "d/a", "1");
  put(place, "d/b", "1");
  wait_a_tick();
  const struct changes_limits few = {.milliseconds = 2000, .names = 1, .items = 10};
  _cleanup_snapshot_ struct snapshot *snapshot = changes_snapshot_begin(&place, 1, &few);
  put(place, "d/b", "2");
  _cleanup_changes_ struct changes *changes =
      changes_report(snapshot, NULL, &changes_default_limits);
  assert_false(changes->complete);
  assert_changes(changes, "~ d/b;");
  tree_remove(AT_FDCWD, place, NULL);
}

static void test_hostile_names_are_escaped(void **state) {
  (void)state;
  _cleanup_free_ char *place = make_place();
  _cleanup_snapshot_ struct snapshot *snapshot =
      changes_snapshot_begin(&place, 1, &changes_default_limits);
  put(place, "a\x1b[2K\nb", "1");
  put(place, "\xff", "1");
  _cleanup_changes_ struct changes *changes =
      changes_report(snapshot, NULL, &changes_default_limits);
  _cleanup_free_ char *text = changes_to_text(changes, 10);
  assert_non_null(strstr(text, "a\\x1b[2K\\nb"));
  assert_non_null(strstr(text, " \\xff: "));
  assert_null(strchr(text, '\x1b'));
  tree_remove(AT_FDCWD, place, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_flags_of_names_and_modes),
      cmocka_unit_test(test_links_are_judged_by_their_target),
      cmocka_unit_test(test_every_kind_of_change_is_found),
      cmocka_unit_test(test_the_first_moment_counts_and_the_last_before_does_not),
      cmocka_unit_test(test_a_clock_set_back_hides_nothing),
      cmocka_unit_test(test_limits_are_kept_and_said),
      cmocka_unit_test(test_an_incomplete_snapshot_does_not_invent_changes),
      cmocka_unit_test(test_hostile_names_are_escaped),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
