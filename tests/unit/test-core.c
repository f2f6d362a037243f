/* Pure core: escaping, paths, texts, lists, base64; and calls that end in time. */
#include "unit.h"

#include <errno.h>
#include <time.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/in-time.h"
#include "core/json.h"
#include "core/path.h"
#include "core/status.h"
#include "core/strv.h"
#include "core/utc.h"

static void assert_escapes(const char *bytes, size_t length, const char *expected) {
  _cleanup_text_ struct text text = {0};
  escape_append(&text, bytes, length);
  assert_string_equal(text_string(&text), expected);
}

static void test_escape_makes_everything_visible(void **state) {
  (void)state;
  assert_escapes("/etc/passwd", 11, "/etc/passwd");
  assert_escapes("a\x1b[2Kb", 6, "a\\x1b[2Kb");
  assert_escapes("a\nb\tc\rd", 7, "a\\nb\\tc\\rd");
  assert_escapes("\xe2\x80\xaetxt", 6, "\\u{202e}txt");
  assert_escapes("id\xe2\x80\x8b_rsa", 9, "id\\u{200b}_rsa");
  assert_escapes("\xff\xfe", 2, "\\xff\\xfe");
  assert_escapes("\x7f", 1, "\\x7f");
  assert_escapes("a\0b", 3, "a\\x00b");
}

static void test_escape_is_injective_on_backslashes(void **state) {
  (void)state;
  assert_escapes("\\x1b", 4, "\\\\x1b");
  assert_escapes("\x1b", 1, "\\x1b");
}

static void test_utf8_refuses_what_is_not_a_character(void **state) {
  (void)state;
  static const char *const bad[] = {"\xc0\x80",         "\xed\xa0\x80", "\xf4\x90\x80\x80",
                                    "\xe2\x80",         "\x80",         "\xf8\x88\x80\x80\x80",
                                    "\xf0\x80\x80\x80", "\xe0\x9f\xbf"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
    unsigned code_point;
    assert_int_equal(utf8_decode(bad[i], strlen(bad[i]), &code_point), 0);
  }
}

static void test_shell_words_paste_back(void **state) {
  (void)state;
  static const struct {
    const char *word, *quoted;
  } rows[] = {
      {"plain", "plain"}, {"", "''"},
      {"a b", "'a b'"},   {"it's", "'it'\\''s'"},
      {"$(x)", "'$(x)'"}, {"a\nb", "$'a\\012b'"},
      {"~", "'~'"},       {"\xff'", "$'\\377\\''"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *quoted = escape_shell_word(rows[i].word);
    assert_string_equal(quoted, rows[i].quoted);
  }
}

/* No part of a name is a word of the sentence it stands in. */
static void test_names_are_one_word(void **state) {
  (void)state;
  static const struct {
    const char *name, *shown;
  } rows[] = {
      {"/a/b", "/a/b"},         {"", ""},
      {"a b", "\"a b\""},       {"a\" is b", "\"a\\x22 is b\""},
      {"a  b", "a\\x20\\x20b"}, {" a", "\\x20a"},
      {"a ", "a\\x20"},         {"a\n b", "\"a\\n b\""},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *shown = escape_name(rows[i].name);
    assert_string_equal(shown, rows[i].shown);
  }
}

/* The C library's calendar is right, and slow to start. */
static void test_utc_is_the_calendar(void **state) {
  (void)state;
  for (long long seconds = -70000000000; seconds < 253402300799; seconds += 86399 * 977LL) {
    struct tm parts;
    char expected[UTC_SIZE], text[UTC_SIZE];
    time_t time = (time_t)seconds;
    size_t length =
        strftime(expected, sizeof expected, "-%m-%dT%H:%M:%SZ", gmtime_r(&time, &parts));
    utc_format(&(struct timespec){.tv_sec = time}, 0, text);
    assert_string_equal(text + strlen(text) - length, expected);
    assert_int_equal(atoi(text), parts.tm_year + 1900);
  }
}

static void test_utc_fraction(void **state) {
  (void)state;
  static const struct {
    int digits;
    const char *text;
  } rows[] = {
      {0, "1999-12-31T23:59:59Z"},
      {6, "1999-12-31T23:59:59.000012Z"},
      {9, "1999-12-31T23:59:59.000012345Z"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    char text[UTC_SIZE];
    utc_format(&(struct timespec){946684799, 12345}, rows[i].digits, text);
    assert_string_equal(text, rows[i].text);
  }
}

static void test_path_normalize(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } rows[] = {
      {"/", "/"},      {"//a//b/", "/a/b"}, {"/a/./b", "/a/b"},     {"/a/../b", "/b"},
      {"/../..", "/"}, {"", "/"},           {"/a/b/../../..", "/"}, {"/...", "/..."},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *out = path_normalize(rows[i].in);
    assert_string_equal(out, rows[i].out);
    assert_true(path_is_normal(out));
    assert_int_equal(path_is_normal(rows[i].in), strcmp(rows[i].in, out) == 0);
  }
}

static void test_path_below_is_by_component(void **state) {
  (void)state;
  assert_true(path_is_under("/opt/sdk", "/opt/sdk"));
  assert_true(path_is_under("/opt/sdk/x", "/opt/sdk"));
  assert_false(path_is_under("/opt/sdk-evil", "/opt/sdk"));
  assert_true(path_is_under("/anything", "/"));
  assert_string_equal(path_below("/opt/sdk/x/y", "/opt/sdk"), "x/y");
  assert_string_equal(path_below("/opt", "/"), "opt");
}

static void test_path_parts(void **state) {
  (void)state;
  assert_int_equal(path_depth("/"), 0);
  assert_int_equal(path_depth("/usr/lib"), 2);
  assert_string_equal(path_base("/usr/lib"), "lib");
  _cleanup_free_ char *parent = path_parent("/usr");
  assert_string_equal(parent, "/");
}

static void test_list_is_null_terminated(void **state) {
  (void)state;
  _cleanup_strv_ struct strv list = {0};
  for (int i = 0; i < 100; i++) {
    strv_addf(&list, "%d", i);
    assert_null(list.items[list.count]);
  }
  assert_true(strv_contains(&list, "77"));
  assert_false(strv_contains(&list, "100"));
}

static void test_error_keeps_reason_and_context(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(sb_fail(&error, SB_CODE_SYSTEM, 2, "opening %s", "/x"), -1);
  sb_wrap(&error, "starting");
  sb_hint(&error, "create %s", "/x");
  assert_string_equal(error.message, "starting: opening /x: No such file or directory");
  assert_string_equal(error.hint, "create /x");
  assert_string_equal(sb_code_name(error.code), "system");
}

static void test_base64(void **state) {
  (void)state;
  static const struct {
    const char *in, *out;
  } rows[] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"\xff\xfe", "//4="}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *out = base64_encode(rows[i].in, strlen(rows[i].in));
    assert_string_equal(out, rows[i].out);
  }
}

static void test_json_paths_round_trip(void **state) {
  (void)state;
  json_t *object = json_object();
  json_set_path(object, "path", "/tmp/\xff");
  assert_string_equal(json_string_value(json_object_get(object, "path")), "/tmp/\\xff");
  assert_string_equal(json_string_value(json_object_get(object, "path_b64")), "L3RtcC//");
  json_decref(object);
}

static void test_status(void **state) {
  (void)state;
  /* A process that calls itself so. */
  static const char text[] =
      "Name:\tNSpid:\t1\t66\nState:\tS (sleeping)\nTgid:\t4711\nNSpid:\t4711\t12\n"
      "SigPnd:\t0000000000000100\nEmpty:\n";
  size_t count;
  assert_int_equal(status_innermost(text, "NSpid:", &count), 12);
  assert_int_equal(count, 2);
  assert_int_equal(status_innermost(text, "Tgid:", NULL), 4711);
  assert_int_equal(status_innermost(text, "Empty:", &count), 0);
  assert_int_equal(count, 0);
  assert_int_equal(status_innermost(text, "Missing:", &count), 0);
  assert_int_equal(status_field(text, "State:")[0], 'S');
  assert_string_equal(status_field(text, "Name:"), ""); /* its own word, and never asked for */
  assert_int_equal(strtoull(status_field(text, "SigPnd:"), NULL, 16), 0x100);
}

static void test_status_signals(void **state) {
  (void)state;
  static const struct {
    const char *text;
    bool ends;
  } rows[] = {
      {"\nSigPnd:\t0\nShdPnd:\t4000\nSigBlk:\t0\n", true},     /* SIGTERM */
      {"\nSigPnd:\t4000\nShdPnd:\t0\nSigBlk:\t4000\n", false}, /* blocked */
      {"\nSigPnd:\t2000\nShdPnd:\t0\nSigBlk:\t0\n", false},    /* SIGALRM */
      {"\nSigPnd:\t2000\nShdPnd:\t2\nSigBlk:\t0\n", true},     /* and SIGINT */
      {"", false},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_int_equal(status_ends_wait(rows[i].text), rows[i].ends);
}

/* ---- calls that end in time ---- */

static void test_what_waits_for_us_ends_in_time(void **state) {
  (void)state;
  int ends[2];
  char data[8] = "";
  assert_int_equal(pipe(ends), 0);
  assert_int_equal(in_time_read(ends[0], data, sizeof data, 20), -ETIMEDOUT); /* it is for us */
  assert_int_equal(write(ends[1], "text", 4), 4);
  close(ends[1]);
  assert_int_equal(in_time_read(ends[0], data, sizeof data, 1000), 4);
  assert_string_equal(data, "text");
  close(ends[0]);
  assert_int_equal(in_time_read(-1, data, sizeof data, 1000), -EBADF);
}

/* All that is waited for in vain has a limit; who is in time is served after that, too. */
static void test_patience_ends(void **state) {
  (void)state;
  int ends[2];
  char data[8] = "";
  struct timespec before, after;
  assert_int_equal(pipe(ends), 0);
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < 20; i++)
    assert_int_equal(in_time_read(ends[0], data, sizeof data, 1000), -ETIMEDOUT);
  clock_gettime(CLOCK_MONOTONIC, &after);
  assert_in_range(after.tv_sec - before.tv_sec, 2, 10);
  close(ends[1]);
  bool served = false;
  for (int i = 0; i < 1000 && !served; i++)
    served = in_time_read(ends[0], data, sizeof data, 1000) == 0;
  assert_true(served);
  close(ends[0]);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_escape_makes_everything_visible),
    cmocka_unit_test(test_escape_is_injective_on_backslashes),
    cmocka_unit_test(test_names_are_one_word),
    cmocka_unit_test(test_utf8_refuses_what_is_not_a_character),
    cmocka_unit_test(test_shell_words_paste_back),
    cmocka_unit_test(test_utc_is_the_calendar),
    cmocka_unit_test(test_utc_fraction),
    cmocka_unit_test(test_path_normalize),
    cmocka_unit_test(test_path_below_is_by_component),
    cmocka_unit_test(test_path_parts),
    cmocka_unit_test(test_list_is_null_terminated),
    cmocka_unit_test(test_error_keeps_reason_and_context),
    cmocka_unit_test(test_base64),
    cmocka_unit_test(test_json_paths_round_trip),
    cmocka_unit_test(test_status),
    cmocka_unit_test(test_status_signals),
    cmocka_unit_test(test_what_waits_for_us_ends_in_time),
    cmocka_unit_test(test_patience_ends),
};

UNIT_MAIN(tests)
