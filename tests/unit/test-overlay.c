/* Overlays: the comparison of texts, names in patches, and the removal of hostile trees. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "overlay/myers.h"
#include "overlay/patch.h"
#include "overlay/remove.h"
#include "overlay/unified.h"

/* ---- comparing sequences ---- */

enum { LONGEST = 60 };

static size_t common_length(const unsigned *old, size_t old_count, const unsigned *new,
                            size_t new_count) {
  static size_t table[LONGEST + 1][LONGEST + 1];
  for (size_t i = 0; i <= old_count; i++)
    for (size_t k = 0; k <= new_count; k++) {
      if (i == 0 || k == 0)
        table[i][k] = 0;
      else if (old[i - 1] == new[k - 1])
        table[i][k] = table[i - 1][k - 1] + 1;
      else
        table[i][k] = table[i - 1][k] > table[i][k - 1] ? table[i - 1][k] : table[i][k - 1];
    }
  return table[old_count][new_count];
}

static void fill(unsigned *items, size_t count, unsigned letters) {
  for (size_t i = 0; i < count; i++)
    items[i] = (unsigned)rand() % letters;
}

static void test_comparison_is_minimal(void **state) {
  (void)state;
  srand(1);
  for (int round = 0; round < 3000; round++) {
    unsigned old[LONGEST], new[LONGEST], letters = 1 + (unsigned)rand() % 8;
    bool old_changed[LONGEST] = {0}, new_changed[LONGEST] = {0};
    size_t old_count = (size_t)rand() % LONGEST, new_count = (size_t)rand() % LONGEST;
    fill(old, old_count, letters);
    fill(new, new_count, letters);
    myers_compare(&(struct sequence){old, old_changed, old_count},
                  &(struct sequence){new, new_changed, new_count});
    size_t kept = 0, at = 0;
    for (size_t i = 0; i < old_count; i++) {
      if (old_changed[i])
        continue;
      while (at < new_count && new_changed[at])
        at++;
      assert_true(at < new_count);
      assert_int_equal(old[i], new[at++]);
      kept++;
    }
    assert_int_equal(kept, common_length(old, old_count, new, new_count));
  }
}

/* ---- unified diffs ---- */

static const char *line_end(const char *at) {
  const char *end = strchr(at, '\n');
  return end ? end + 1 : at + strlen(at);
}

/* What `patch` does, strictly: context and removed lines must be there. */
static char *apply_hunks(const char *old, const char *hunks) {
  struct text result = {0};
  const char *at = old;
  size_t line = 1;
  text_append(&result, "");
  for (const char *next; *hunks; hunks = next) {
    next = line_end(hunks);
    size_t begin, count = 1;
    if (sscanf(hunks, "@@ -%zu,%zu", &begin, &count) >= 1) {
      for (size_t first = count ? begin : begin + 1; line < first; line++, at = line_end(at))
        text_append_bytes(&result, at, (size_t)(line_end(at) - at));
      continue;
    }
    size_t length = (size_t)(next - hunks) - 1;
    bool cut = *next == '\\'; /* no newline */
    if (hunks[0] != '+') {
      assert_memory_equal(at, hunks + 1, length - cut);
      at = line_end(at);
      line++;
    }
    if (hunks[0] != '-')
      text_append_bytes(&result, hunks + 1, length - cut);
    if (cut)
      next = line_end(next);
  }
  text_append(&result, at);
  return text_steal(&result);
}

static char *random_text(size_t most, int letters) {
  struct text text = {0};
  text_append(&text, "");
  for (size_t count = (size_t)rand() % (most + 1); count > 0; count--)
    text_appendf(&text, "%c%s", 'a' + rand() % letters, count > 1 || rand() % 2 ? "\n" : "");
  return text_steal(&text);
}

static void assert_round_trip(const char *old, const char *new) {
  _cleanup_unified_ struct unified unified = unified_diff(old, strlen(old), new, strlen(new));
  _cleanup_free_ char *result = apply_hunks(old, text_string(&unified.hunks));
  assert_string_equal(result, new);
  assert_int_equal(unified.hunks.length == 0, strcmp(old, new) == 0);
}

static void test_random_texts_round_trip(void **state) {
  (void)state;
  srand(2);
  for (int round = 0; round < 3000; round++) {
    _cleanup_free_ char *old = random_text(40, 1 + rand() % 12);
    _cleanup_free_ char *new = random_text(40, 1 + rand() % 12);
    assert_round_trip(old, new);
  }
}

static void test_very_different_texts_take_bounded_time(void **state) {
  (void)state;
  srand(3);
  _cleanup_text_ struct text old = {0}, new = {0};
  for (int i = 0; i < 20000; i++) {
    text_appendf(&old, "%d\n", rand());
    text_appendf(&new, "%d\n", i % 7 ? rand() : i);
  }
  assert_round_trip(old.data, new.data);
}

static void test_hunks_look_like_those_of_diff(void **state) {
  (void)state;
  static const struct {
    const char *old, *new, *hunks;
  } rows[] = {
      {"", "", ""},
      {"a\n", "a\n", ""},
      {"", "a\n", "@@ -0,0 +1 @@\n+a\n"},
      {"a\nb\n", "", "@@ -1,2 +0,0 @@\n-a\n-b\n"},
      {"a\n", "a", "@@ -1 +1 @@\n-a\n+a\n\\ No newline at end of file\n"},
      {"1\n2\n3\n4\n5\n6\n7\n8\n", "1\n2\n3\n4\nx\n6\n7\n8\n",
       "@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+x\n 6\n 7\n 8\n"},
      {"1\n2\n3\n4\n5\n6\n7\n8\n9\n", "0\n1\n2\n3\n4\n5\n6\n7\n8\n",
       "@@ -1,3 +1,4 @@\n+0\n 1\n 2\n 3\n@@ -6,4 +7,3 @@\n 6\n 7\n 8\n-9\n"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_unified_ struct unified unified =
        unified_diff(rows[i].old, strlen(rows[i].old), rows[i].new, strlen(rows[i].new));
    assert_string_equal(text_string(&unified.hunks), rows[i].hunks);
  }
}

/* ---- names, terminals ---- */

static void test_names_are_quoted_as_git_does(void **state) {
  (void)state;
  static const struct {
    const char *path, *quoted;
  } rows[] = {{"a b", "a/a b"},
              {"a\"b", "\"a/a\\\"b\""},
              {"a\tb", "\"a/a\\011b\""},
              {"\xc3\xbc", "\"a/\\303\\274\""}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_text_ struct text text = {0};
    patch_append_name(&text, "a/", rows[i].path);
    assert_string_equal(text_string(&text), rows[i].quoted);
  }
}

static void test_a_terminal_gets_no_control_characters(void **state) {
  (void)state;
  _cleanup_text_ struct text patch = {0}, shown = {0};
  text_append(&patch, "+a\x1b[2Kb\t\xc3\xbc\xe2\x80\xae\r\n");
  patch_append_for_terminal(&shown, &patch, false);
  assert_string_equal(text_string(&shown), "+a\\x1b[2Kb\t\xc3\xbc\\u{202e}\\r\n");
}

static void test_base64_round_trips(void **state) {
  (void)state;
  static const char *const rows[] = {"", "a", "ab", "abc", "abcd", "\xff\x01/"};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *encoded = base64_encode(rows[i], strlen(rows[i]));
    size_t length;
    _cleanup_free_ char *decoded = base64_decode(encoded, &length);
    assert_string_equal(decoded, rows[i]);
    assert_int_equal(length, strlen(rows[i]));
  }
  static const char *const bad[] = {"a", "ab=c", "====", "a===", "ab!=", "\xff\xff\xff\xff"};
  size_t length;
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_null(base64_decode(bad[i], &length));
}

/* ---- removing ---- */

static void test_a_very_deep_tree_is_removed(void **state) {
  (void)state;
  char top[] = "/tmp/test-overlay.XXXXXX";
  assert_non_null(mkdtemp(top));
  int fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int depth = 0; depth < 3000; depth++) {
    assert_int_equal(mkdirat(fd, "d", 0700), 0);
    int inner = openat(fd, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(fchmod(fd, depth % 2 ? 0500 : 0700), 0);
    close(fd);
    fd = inner;
  }
  close(fd);
  assert_int_equal(tree_remove(AT_FDCWD, top, NULL), 0);
  assert_int_equal(access(top, F_OK), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_comparison_is_minimal),
      cmocka_unit_test(test_random_texts_round_trip),
      cmocka_unit_test(test_very_different_texts_take_bounded_time),
      cmocka_unit_test(test_hunks_look_like_those_of_diff),
      cmocka_unit_test(test_names_are_quoted_as_git_does),
      cmocka_unit_test(test_a_terminal_gets_no_control_characters),
      cmocka_unit_test(test_base64_round_trips),
      cmocka_unit_test(test_a_very_deep_tree_is_removed),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
