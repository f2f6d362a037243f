/* Splitting shell strings: what is understood, and that everything else is doubted. */
#include "unit.h"

#include "core/cleanup.h"
#include "core/shell.h"
#include "core/text.h"

/* "docker|ps;rm|x": the words of each command. */
static char *shown(const char *script) {
  _cleanup_shell_script_ struct shell_script split = {0};
  struct text text = {0};
  shell_split(script, &split);
  if (split.doubt) {
    text_append(&text, "DOUBT");
    return text_steal(&text);
  }
  for (size_t i = 0; i < split.count; i++) {
    text_append(&text, i > 0 ? ";" : "");
    STRV_FOREACH (word, &split.commands[i].words)
      text_appendf(&text, "%s%s", word == split.commands[i].words.items ? "" : "|", *word);
  }
  return text_steal(&text);
}

static void test_understood(void **state) {
  (void)state;
  static const struct {
    const char *script, *expected;
  } rows[] = {
      {"docker ps", "docker|ps"},
      {"  docker\tps  ", "docker|ps"},
      {"docker ps;rm -rf x", "docker|ps;rm|-rf|x"},
      {"a && b || c | d & e", "a;b;c;d;e"},
      {"a\nb\n\nc\n", "a;b;c"},
      {"a;", "a"},
      {"'docker' \"ps\" -a", "docker|ps|-a"},
      {"do'ck'er p\"\"s", "docker|ps"},
      {"a 'x; rm y' \"z | w\"", "a|x; rm y|z | w"},
      {"a\\ b c\\;d", "a b|c;d"},
      {"a \"q\\\"r\" \"s\\t\"", "a|q\"r|s\\t"},
      {"a ''", "a|"},
      {"a 2>&1 >/dev/null b", "a|b"},
      {"a --x=y z=1", "a|--x=y|z=1"},
      {"a | b 2>/dev/null", "a;b"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *got = shown(rows[i].script);
    assert_string_equal(got, rows[i].expected);
  }
}

static void test_doubted(void **state) {
  (void)state;
  static const char *const scripts[] = {
      "",
      " ",
      "docker $(rm -rf x)",
      "docker `rm -rf x`",
      "docker \"$(rm x)\"",
      "docker $X",
      "docker \"${X}\"",
      "docker $'x'",
      "(docker)",
      "docker <(rm x)",
      "{ docker; }",
      "docker {a,b}",
      "docker > ~/.bashrc",
      "docker >x",
      "docker >>x",
      "docker 2>x",
      "docker <x",
      "docker <<EOF\nx\nEOF",
      "docker <<<x",
      "docker >/dev/nullx",
      "docker &>x",
      ">/dev/null docker",
      "PATH=. docker",
      "LD_PRELOAD=x docker",
      "X+=1 docker",
      "if true; then docker; fi",
      "for x in a; do docker; done",
      "time docker",
      "! docker",
      "docker !x",
      "docker *",
      "docker a?",
      "docker [ab]",
      "docker ~/x",
      "docker # rm",
      "docker 'x",
      "docker \"x",
      "docker \\",
      "doc\\\nker",
      "\"do\\\ncker\"",
      "docker;;rm",
      "docker &&& rm",
      "; docker",
      "&& docker",
      "docker ||| rm",
      "docker |& rm",
      "docker() { rm; }",
      "'' x",
      "docker\rrm",
      "case x in x) docker;; esac",
  };
  for (size_t i = 0; i < ARRAY_SIZE(scripts); i++) {
    _cleanup_free_ char *got = shown(scripts[i]);
    if (strcmp(got, "DOUBT") != 0)
      fail_msg("understood: %s as %s", scripts[i], got);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_understood),
    cmocka_unit_test(test_doubted),
};

UNIT_MAIN(tests)
