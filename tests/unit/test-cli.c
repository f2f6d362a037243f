/* The pure half of the command line: parsing by tables, suggestions, values. */
#include "unit.h"

#include "cli/parse.h"
#include "cli/values.h"
#include "core/cleanup.h"
#include "core/suggest.h"
#include "core/text.h"

enum { FLAG, LOUD, PATH, WHEN, HOSTS, FOLDER, JSON };

static const struct option_spec options[] = {
    {FLAG, "flag", 'f', ARGUMENT_NONE, NULL, "a flag"},
    {LOUD, "loud", 'l', ARGUMENT_NONE, NULL, "another"},
    {PATH, "path", 0, ARGUMENT_REQUIRED, "PATH", "a path", COMPLETE_PATH},
    {WHEN, "when", 0, ARGUMENT_REQUIRED, "WHEN", "when", COMPLETE_WORDS, "auto always never"},
    {HOSTS, "hosts", 0, ARGUMENT_OPTIONAL, "HOST", "hosts"},
    {FOLDER, "folder", 'C', ARGUMENT_REQUIRED, "DIR", "a folder", COMPLETE_FOLDER},
    {JSON, "json", 0, ARGUMENT_NONE, NULL, "as JSON"},
    {0},
};
static const struct verb mixed = {.name = "mixed", .options = options};
static const struct verb stopping = {.name = "stop", .options = options, .stop_at_operand = true};
static const struct verb bare = {.name = "bare"};
static const struct verb secret = {.name = "__secret", .hidden = true};
static const struct verb *const table[] = {&mixed, &stopping, &bare, &secret, NULL};

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})
#define NO_WORDS   ((char *[]){NULL})

static void parse_good(const struct verb *verb, char **words, struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  int result = cli_parse(verb, words, invocation, &error);
  if (result < 0)
    print_error("%s\n", error.message);
  assert_int_equal(result, 0);
  assert_ptr_equal(invocation->verb, verb);
}

/* The message has to contain the first text, the hint the second (NULL: there is no hint). */
static void assert_refused(const struct verb *verb, char **words, const char *message,
                           const char *hint) {
  _cleanup_error_ struct sb_error error = {0};
  struct invocation untouched = {.operand_count = 42};
  assert_int_equal(cli_parse(verb, words, &untouched, &error), -1);
  assert_int_equal(error.code, SB_CODE_USAGE);
  assert_int_equal(untouched.operand_count, 42);
  assert_non_null(strstr(error.message, message));
  if (hint)
    assert_non_null(strstr(error.hint, hint));
  else
    assert_null(error.hint);
}

static void test_nothing_is_fine(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation invocation = {0};
  parse_good(&bare, NO_WORDS, &invocation);
  assert_int_equal(invocation.option_count, 0);
  assert_int_equal(invocation.operand_count, 0);
  assert_null(invocation.operands[0]);
}

static void test_long_options_take_values_both_ways(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation invocation = {0};
  parse_good(&mixed, WORDS("--path", "/a", "--path=/b=c", "--flag"), &invocation);
  assert_int_equal(invocation.option_count, 3);
  assert_string_equal(invocation.options[0].value, "/a");
  assert_string_equal(invocation.options[1].value, "/b=c");
  assert_string_equal(invocation_value(&invocation, PATH), "/b=c");
  assert_true(invocation_has(&invocation, FLAG));
  assert_null(invocation_value(&invocation, FLAG));
  assert_false(invocation_has(&invocation, LOUD));
}

static void test_optional_values_need_the_equals_sign(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation invocation = {0};
  parse_good(&mixed, WORDS("--hosts", "operand", "--hosts=a,b"), &invocation);
  assert_null(invocation.options[0].value);
  assert_string_equal(invocation.options[1].value, "a,b");
  assert_string_equal(invocation.operands[0], "operand");
}

static void test_letters_cluster_and_take_values(void **state) {
  (void)state;
  static char *const spellings[][3] = {{"-flC", "/d", NULL}, {"-flC/d", NULL}};
  for (size_t i = 0; i < ARRAY_SIZE(spellings); i++) {
    _cleanup_invocation_ struct invocation invocation = {0};
    parse_good(&mixed, (char **)spellings[i], &invocation);
    assert_int_equal(invocation.option_count, 3);
    assert_true(invocation_has(&invocation, FLAG) && invocation_has(&invocation, LOUD));
    assert_string_equal(invocation_value(&invocation, FOLDER), "/d");
  }
}

static void test_a_value_may_start_with_one_dash(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation invocation = {0};
  parse_good(&mixed, WORDS("--path", "-3600", "--path=--odd", "-C", "-"), &invocation);
  assert_string_equal(invocation.options[0].value, "-3600");
  assert_string_equal(invocation.options[1].value, "--odd");
  assert_string_equal(invocation.options[2].value, "-");
}

static void test_options_and_operands_mix_unless_the_verb_stops(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation first = {0}, second = {0};
  char **words = WORDS("one", "--flag", "-", "two");
  parse_good(&mixed, words, &first);
  assert_int_equal(first.option_count, 1);
  assert_int_equal(first.operand_count, 3);
  assert_string_equal(first.operands[1], "-");
  parse_good(&stopping, words, &second);
  assert_int_equal(second.option_count, 0);
  assert_int_equal(second.operand_count, 4);
  assert_string_equal(second.operands[1], "--flag");
  assert_null(second.operands[4]);
}

static void test_two_dashes_end_the_options_once(void **state) {
  (void)state;
  _cleanup_invocation_ struct invocation first = {0}, second = {0};
  parse_good(&mixed, WORDS("-f", "--", "--flag", "--"), &first);
  assert_int_equal(first.option_count, 1);
  assert_int_equal(first.operand_count, 2);
  assert_string_equal(first.operands[1], "--");
  parse_good(&stopping, WORDS("command", "--", "x"), &second);
  assert_int_equal(second.operand_count, 3);
  assert_string_equal(second.operands[1], "--");
}

static void test_help_belongs_to_every_verb(void **state) {
  (void)state;
  const struct verb *const all[] = {&mixed, &stopping, &bare};
  for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
    _cleanup_invocation_ struct invocation first = {0}, second = {0};
    parse_good(all[i], WORDS("--help"), &first);
    assert_true(invocation_has(&first, OPTION_HELP));
    parse_good(all[i], WORDS("-h"), &second);
    assert_true(invocation_has(&second, OPTION_HELP));
  }
}

static void test_wrong_words_are_refused(void **state) {
  (void)state;
  assert_refused(&mixed, WORDS("--flga"), "unknown option '--flga'", "did you mean '--flag'?");
  assert_refused(&mixed, WORDS("--fold=x"), "unknown option '--fold'", "'--folder'");
  assert_refused(&mixed, WORDS("--fla"), "unknown option '--fla'", "'--flag'");
  assert_refused(&mixed, WORDS("--zzzzzz"), "unknown option '--zzzzzz'", "sandbox mixed --help");
  assert_refused(&mixed, WORDS("--=x"), "unknown option '--'", "sandbox mixed --help");
  assert_refused(&mixed, WORDS("-fx"), "unknown option '-x'", "sandbox mixed --help");
  assert_refused(&mixed, WORDS("--FLAG"), "unknown option '--FLAG'", "--help");
  assert_refused(&mixed, WORDS("--fl\x1b[m"), "unknown option '--fl\\x1b[m'", "--");
  assert_refused(&bare, WORDS("-f"), "unknown option '-f'", "sandbox bare --help");
}

static void test_missing_and_needless_values_are_refused(void **state) {
  (void)state;
  assert_refused(&mixed, WORDS("--path"), "option '--path' needs a value", "--path=PATH");
  assert_refused(&mixed, WORDS("--path="), "option '--path' needs a value", "--path=PATH");
  assert_refused(&mixed, WORDS("--path", ""), "option '--path' needs a value", "--path=PATH");
  assert_refused(&mixed, WORDS("--hosts="), "option '--hosts' needs a value", "--hosts=HOST");
  assert_refused(&mixed, WORDS("-fC"), "option '--folder' needs a value", "--folder=DIR");
  assert_refused(&mixed, WORDS("--when"), "needs a value", "auto always never");
  assert_refused(&mixed, WORDS("--flag=yes"), "'--flag' takes no value, but 'yes'", "--flag");
}

static void test_an_option_never_swallows_the_next(void **state) {
  (void)state;
  assert_refused(&mixed, WORDS("--path", "--flag"), "option '--path' needs a value", "--path=PATH");
  assert_refused(&stopping, WORDS("--path", "--", "ls"), "'--path' needs a value", "--path=PATH");
  assert_refused(&stopping, WORDS("-C", "--", "ls"), "'--folder' needs a value", "--folder=DIR");
}

static void test_words_are_checked(void **state) {
  (void)state;
  assert_refused(&mixed, WORDS("--when=alway"), "'alway' is not a value of --when",
                 "--when=always");
  assert_refused(&mixed, WORDS("--when=xyzzy"), "one of: auto always never", "--when=auto");
  assert_refused(&mixed, WORDS("--when=auto always"), "'auto always' is not", "--when=auto");
}

static void test_verbs_are_found_or_suggested(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  const struct verb *verb = NULL;
  assert_int_equal(cli_find_verb(table, "__secret", &verb, &error), 0);
  assert_ptr_equal(verb, &secret);
  assert_int_equal(cli_find_verb(table, "mixd", &verb, &error), -1);
  assert_ptr_equal(verb, &secret);
  assert_string_equal(error.message, "unknown verb 'mixd'");
  assert_string_equal(error.hint, "did you mean 'sandbox mixed'?");
  assert_int_equal(cli_find_verb(table, "__secre", &verb, &error), -1);
  assert_null(strstr(error.hint, "__secret'"));
  assert_int_equal(cli_find_verb(table, "rm -rf", &verb, &error), -1);
  assert_string_equal(error.hint, "to run a command, write: sandbox run 'rm -rf'");
}

static void test_json_is_noticed_in_bad_words(void **state) {
  (void)state;
  assert_true(cli_wants_json(&mixed, WORDS("--bogus", "--json")));
  assert_false(cli_wants_json(&mixed, WORDS("--bogus", "--", "--json")));
  assert_false(cli_wants_json(&bare, WORDS("--json")));
}

static void test_suggestions(void **state) {
  (void)state;
  static const char *const candidates[] = {"run", "policy", "doctor", NULL, "allow-network", "rw"};
  static const struct {
    const char *word, *nearest;
  } rows[] = {
      {"rn", "run"},
      {"rnu", "run"},
      {"runn", "run"},
      {"polcy", "policy"},
      {"docotr", "doctor"},
      {"allow-netwrk", "allow-network"},
      {"allow", "allow-network"},
      {"network", NULL},
      {"r", NULL},
      {"", NULL},
      {"ls", NULL},
      {"xyzzy", NULL},
      {"rww", "rw"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    const char *nearest = suggest_nearest(rows[i].word, candidates, ARRAY_SIZE(candidates));
    if (rows[i].nearest)
      assert_string_equal(nearest, rows[i].nearest);
    else
      assert_null(nearest);
  }
}

static void test_suggestions_bear_long_words(void **state) {
  (void)state;
  char word[5000], candidate[64 + 1];
  memset(word, 'a', sizeof word);
  word[sizeof word - 1] = '\0';
  memset(candidate, 'a', sizeof candidate);
  candidate[sizeof candidate - 1] = '\0';
  const char *const candidates[] = {candidate, word};
  assert_null(suggest_nearest(word, candidates, 2));
  candidate[63] = '\0';
  word[62] = '\0';
  assert_ptr_equal(suggest_nearest(word, candidates, 1), candidate);
}

typedef int parse_function(const char *, const char *, uint64_t *, struct sb_error *);

static void assert_value(parse_function *parse, const char *value, uint64_t expected) {
  _cleanup_error_ struct sb_error error = {0};
  uint64_t amount = 0;
  assert_int_equal(parse("--limit", value, &amount, &error), 0);
  assert_true(amount == expected);
}

/* The error names the option, quotes the value and gives an example. */
static void assert_bad_value(parse_function *parse, const char *value) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_text_ struct text quoted = {0};
  text_appendf(&quoted, "'%s'", value);
  uint64_t amount = 42;
  assert_int_equal(parse("--limit", value, &amount, &error), -1);
  assert_true(amount == 42);
  assert_int_equal(error.code, SB_CODE_USAGE);
  assert_non_null(strstr(error.message, "--limit"));
  assert_non_null(strstr(error.message, text_string(&quoted)));
  assert_non_null(strstr(error.hint, "for example --limit "));
}

static void test_sizes(void **state) {
  (void)state;
  assert_value(value_size, "1", 1);
  assert_value(value_size, "4096", 4096);
  assert_value(value_size, "512M", 512ull << 20);
  assert_value(value_size, "512m", 512ull << 20);
  assert_value(value_size, "1GiB", 1ull << 30);
  assert_value(value_size, "8388607T", 8388607ull << 40);
  assert_value(value_size, "9223372036854775807", INT64_MAX);
  static const char *const bad[] = {"",
                                    "0",
                                    "0M",
                                    "-1",
                                    "-1M",
                                    "+1",
                                    "M",
                                    "1X",
                                    "1MB",
                                    "1M ",
                                    " 1M",
                                    "1 M",
                                    "1.5G",
                                    "0x10",
                                    "1e3",
                                    "1G1",
                                    "8388608T",
                                    "9223372036854775808",
                                    "18446744073709551616",
                                    "99999999999999999999999999",
                                    "16777216T",
                                    "5s",
                                    "50%"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_bad_value(value_size, bad[i]);
}

static void test_durations(void **state) {
  (void)state;
  assert_value(value_duration, "60", 60000);
  assert_value(value_duration, "60s", 60000);
  assert_value(value_duration, "500ms", 500);
  assert_value(value_duration, "5m", 300000);
  assert_value(value_duration, "1h", 3600000);
  assert_value(value_duration, "3650d", 3650ull * 86400000);
  static const char *const bad[] = {"",
                                    "0",
                                    "0s",
                                    "-5",
                                    "5M",
                                    "5 m",
                                    "1h30m",
                                    "1w",
                                    "1G",
                                    "3651d",
                                    "1.5h",
                                    "m",
                                    "18446744073709551615d"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_bad_value(value_duration, bad[i]);
}

static void test_counts(void **state) {
  (void)state;
  assert_value(value_count, "1", 1);
  assert_value(value_count, "050", 50);
  assert_value(value_count, "2147483647", 2147483647);
  static const char *const bad[] = {"", "0", "-1", "1K", "two", "2147483648", "1.0"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_bad_value(value_count, bad[i]);
}

static void test_offsets(void **state) {
  (void)state;
  static const struct {
    const char *value;
    int64_t seconds;
  } rows[] = {{"0", 0}, {"86400", 86400}, {"-3600", -3600}, {"+2d", 172800}, {"-1h", -3600}};
  _cleanup_error_ struct sb_error error = {0};
  int64_t seconds = 0;
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    assert_int_equal(value_offset("--time-offset", rows[i].value, &seconds, &error), 0);
    assert_true(seconds == rows[i].seconds);
  }
  static const char *const bad[] = {"", "-", "+", "--5", "5ms", "36501d", "-99999999999999999999"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_int_equal(value_offset("--time-offset", bad[i], &seconds, &error), -1);
}

static void test_bad_values_are_shown_escaped(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  uint64_t amount;
  assert_int_equal(value_size("--limit", "1\x1b[2J", &amount, &error), -1);
  assert_non_null(strstr(error.message, "'1\\x1b[2J'"));
}

static void test_word_positions(void **state) {
  (void)state;
  assert_int_equal(value_word("auto always never", "auto"), 0);
  assert_int_equal(value_word("auto always never", "never"), 2);
  assert_int_equal(value_word("auto always never", "nev"), -1);
  assert_int_equal(value_word("auto always never", ""), -1);
  assert_int_equal(value_word("auto always never", "auto always"), -1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_nothing_is_fine),
    cmocka_unit_test(test_long_options_take_values_both_ways),
    cmocka_unit_test(test_optional_values_need_the_equals_sign),
    cmocka_unit_test(test_letters_cluster_and_take_values),
    cmocka_unit_test(test_a_value_may_start_with_one_dash),
    cmocka_unit_test(test_options_and_operands_mix_unless_the_verb_stops),
    cmocka_unit_test(test_two_dashes_end_the_options_once),
    cmocka_unit_test(test_help_belongs_to_every_verb),
    cmocka_unit_test(test_wrong_words_are_refused),
    cmocka_unit_test(test_missing_and_needless_values_are_refused),
    cmocka_unit_test(test_an_option_never_swallows_the_next),
    cmocka_unit_test(test_words_are_checked),
    cmocka_unit_test(test_verbs_are_found_or_suggested),
    cmocka_unit_test(test_json_is_noticed_in_bad_words),
    cmocka_unit_test(test_suggestions),
    cmocka_unit_test(test_suggestions_bear_long_words),
    cmocka_unit_test(test_sizes),
    cmocka_unit_test(test_durations),
    cmocka_unit_test(test_counts),
    cmocka_unit_test(test_offsets),
    cmocka_unit_test(test_bad_values_are_shown_escaped),
    cmocka_unit_test(test_word_positions),
};

UNIT_MAIN(tests)
