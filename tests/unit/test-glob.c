/* Globs: meaning, refusal of bad patterns, bounded work, and the set against the matcher. */
#include "unit.h"

#include <stdbool.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/glob.h"
#include "policy/globset.h"
#include "policy/policy.h"

static void test_match(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *path;
    bool match;
  } rows[] = {
      {"/a/b", "/a/b", true},
      {"/a/b", "/a/bc", false},
      {"/a/*", "/a/b", true},
      {"/a/*", "/a/.hidden", true},
      {"/a/*", "/a/b/c", false},
      {"/a/*/c", "/a/b/c", true},
      {"/a/?", "/a/b", true},
      {"/a/?", "/a/bb", false},
      {"/a/?", "/a/\xc3\xa9", true},
      {"/a/?", "/a/\xff", true},
      {"/a/**", "/a", true},
      {"/a/**", "/a/b/c/d", true},
      {"/a/**", "/ab", false},
      {"/**/x", "/x", true},
      {"/**/x", "/a/b/x", true},
      {"/**/x", "/a/b/xy", false},
      {"/a/**/b/**/c", "/a/1/b/2/3/c", true},
      {"/a/**/b/**/c", "/a/b/c", true},
      {"/a/**/b/**/c", "/a/c/b", false},
      {"**/*.env", "prod.env", true},
      {"**/*.env", "a/b/.env", true},
      {"**/.env.*", ".env.local", true},
      {"**/.env.*", ".env", false},
      {"[abc]", "b", true},
      {"[!abc]", "b", false},
      {"[^abc]", "d", true},
      {"[a-c]x", "bx", true},
      {"[]]", "]", true},
      {"[!]]", "]", false},
      {"[a-]", "-", true},
      {"[\\]]", "]", true},
      {"[\xc3\xa0-\xc3\xaf]", "\xc3\xa9", true},
      {"\\*", "*", true},
      {"\\*", "a", false},
      {"app/\\[slug\\]", "app/[slug]", true},
      {"*a*b*c*", "xxaxxbxxcxx", true},
      {"*a*b*c", "abcabd", false},
      {"", "", true},
      {"/", "/", true},
      {"/a", "a", false},
      {"**", "", true},
      {"*", "", false},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    if (glob_match(rows[i].pattern, rows[i].path) != rows[i].match)
      fail_msg("'%s' on '%s' should be %d", rows[i].pattern, rows[i].path, rows[i].match);
}

static void test_depth_covers_what_lies_below(void **state) {
  (void)state;
  static const struct {
    const char *pattern, *path;
    int depth;
  } rows[] = {
      {"/p/**/.env", "/p/.env", 2},     {"/p/**/.env", "/p/.env/x/y", 2},
      {"/p/**/.env", "/p/a/b/.env", 4}, {"/p/**/b", "/p/b/x/b/y", 4},
      {"/p/*/out", "/p/a/out/x.o", 3},  {"/p/*/out", "/p/out", -1},
      {"/p/**/.env", "/q/.env", -1},    {"/**/.env", "/.env", 1},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_int_equal(glob_match_depth(rows[i].pattern, rows[i].path), rows[i].depth);
}

static void test_problems(void **state) {
  (void)state;
  static const char *const bad[] = {"",       "/a/[b", "[",     "[]",          "[!]",  "a\\",
                                    "/a**/b", "**.x",  "[z-a]", "[[:alpha:]]", "*/..", "[a/b]"};
  static const char *const good[] = {"/a", "**", "**/x", "[a-z]*", "[]]", "[!]]", "a/../b", "\\[x"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    if (!glob_problem(bad[i]))
      fail_msg("'%s' should be refused", bad[i]);
  for (size_t i = 0; i < ARRAY_SIZE(good); i++)
    if (glob_problem(good[i]))
      fail_msg("'%s' should be accepted", good[i]);
  _cleanup_text_ struct text deep = {0};
  for (int i = 0; i < 64; i++)
    text_append(&deep, "/a");
  assert_non_null(glob_problem(text_string(&deep)));
  assert_false(glob_match(text_string(&deep), text_string(&deep)));
}

/* Exponential matchers take longer than the universe here; ours takes milliseconds. */
static void test_pathological_patterns_stay_cheap(void **state) {
  (void)state;
  _cleanup_text_ struct text pattern = {0}, stars = {0}, path = {0}, name = {0};
  for (int i = 0; i < 30; i++) {
    text_append(&pattern, "**/a/");
    text_append(&stars, "*a");
  }
  text_append(&pattern, "b");
  text_append(&stars, "b");
  for (int i = 0; i < 2000; i++) {
    text_append(&path, "a/");
    text_append(&name, "a");
  }
  text_append(&path, "c");
  assert_false(glob_match(text_string(&pattern), text_string(&path)));
  assert_int_equal(glob_match_depth(text_string(&pattern), text_string(&path)), -1);
  assert_false(glob_match(text_string(&stars), text_string(&name)));
  assert_true(glob_match("**/**/**/**/**/**/**/**/**/c", text_string(&path)));
}

static void test_escaped_paths_match_only_themselves(void **state) {
  (void)state;
  static const char *const paths[] = {"/a/[b]", "/a/*", "/a/?x", "/a/\\", "/plain"};
  for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
    _cleanup_free_ char *pattern = glob_escape(paths[i]);
    assert_false(glob_has_wildcards(pattern));
    assert_true(glob_match(pattern, paths[i]));
    assert_false(glob_match(pattern, "/a/b"));
    glob_unescape(pattern);
    assert_string_equal(pattern, paths[i]);
  }
}

/* ---- against a slow and obvious matcher ---- */

static bool slow_name(const char *pattern, const char *name) {
  if (*pattern == '\0' || *pattern == '/')
    return *name == '\0' || *name == '/';
  bool end = *name == '\0' || *name == '/';
  if (*pattern == '*')
    return slow_name(pattern + 1, name) || (!end && slow_name(pattern, name + 1));
  return !end && (*pattern == '?' || *pattern == *name) && slow_name(pattern + 1, name + 1);
}

static const char *after(const char *text) {
  text += strcspn(text, "/");
  return *text ? text + 1 : NULL;
}

static bool slow_match(const char *pattern, const char *path) {
  if (!pattern)
    return !path;
  bool crossing = strncmp(pattern, "**", 2) == 0 && (pattern[2] == '/' || pattern[2] == '\0');
  if (crossing)
    return slow_match(after(pattern), path) || (path && slow_match(pattern, after(path)));
  return path && slow_name(pattern, path) && slow_match(after(pattern), after(path));
}

static const char *pick(const char *const *items, size_t count) {
  return items[(size_t)rand() % count];
}

static char *random_path(const char *const *parts, size_t count) {
  struct text text = {0};
  for (int left = 1 + rand() % 4; left > 0; left--) {
    text_append(&text, pick(parts, count));
    text_append(&text, left > 1 ? "/" : "");
  }
  return text_steal(&text);
}

static const char *const pattern_parts[] = {"**",  "*",    "a",      "b*",    "*b",   "?",
                                            "a*b", ".env", ".env.*", "*.env", "id_?", "**"};
static const char *const name_parts[] = {"a",      "b",     "ab",   "aab", ".env",
                                         ".env.x", "x.env", "id_a", "bb"};

static void test_matcher_agrees_with_the_obvious_one(void **state) {
  (void)state;
  srand(1);
  for (int i = 0; i < 20000; i++) {
    _cleanup_free_ char *pattern = random_path(pattern_parts, ARRAY_SIZE(pattern_parts));
    _cleanup_free_ char *path = random_path(name_parts, ARRAY_SIZE(name_parts));
    if (glob_match(pattern, path) != slow_match(pattern, path))
      fail_msg("'%s' on '%s'", pattern, path);
  }
}

static void test_set_agrees_with_matcher(void **state) {
  (void)state;
  srand(2);
  for (int round = 0; round < 500; round++) {
    char *patterns[6];
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++) {
      _cleanup_free_ char *tail = random_path(pattern_parts, ARRAY_SIZE(pattern_parts));
      patterns[i] = xasprintf("%s%s", rand() % 2 ? "**/" : "", tail);
    }
    struct glob_set *set = glob_set_new((const char *const *)patterns, ARRAY_SIZE(patterns));
    for (int i = 0; i < 100; i++) {
      _cleanup_free_ char *path = random_path(name_parts, ARRAY_SIZE(name_parts));
      bool expected = false;
      for (size_t j = 0; j < ARRAY_SIZE(patterns); j++)
        expected |= glob_match(patterns[j], path);
      int index = glob_set_match(set, path, path_base(path));
      if ((index >= 0) != expected || (index >= 0 && !glob_match(patterns[index], path)))
        fail_msg("set of %s, ... on '%s': %d", patterns[0], path, index);
    }
    glob_set_free(set);
    for (size_t i = 0; i < ARRAY_SIZE(patterns); i++)
      free(patterns[i]);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_match),
    cmocka_unit_test(test_depth_covers_what_lies_below),
    cmocka_unit_test(test_problems),
    cmocka_unit_test(test_pathological_patterns_stay_cheap),
    cmocka_unit_test(test_escaped_paths_match_only_themselves),
    cmocka_unit_test(test_matcher_agrees_with_the_obvious_one),
    cmocka_unit_test(test_set_agrees_with_matcher),
};

UNIT_MAIN(tests)
