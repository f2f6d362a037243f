/* What a question looks like, which keys answer it, and what the screen is put back to. */
#include "unit.h"

#include <stdio.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "session/prompt-text.h"
#include "session/screen.h"

static const struct policy_context place = {
    .home = "/home/ann", .project = "/home/ann/shop", .environment = (char *[]){NULL}};

static struct question *ask_about(const char *path, bool folder) {
  _cleanup_policy_ struct policy *policy = policy_new(&place);
  struct access_request request = {.path = path, .folder = folder, .pid = 1};
  struct question *question = question_new(&request, policy, &place);
  question->waiter_count = 1;
  return question;
}

static char *drawn(const struct question *question, bool plain) {
  struct prompt_view view = {
      .session_id = "abcdefgh", .mark = "k7qx2m", .seconds = 60, .width = 1000, .plain = plain};
  struct text text = {0};
  prompt_append_question(&text, question, &view);
  return text_steal(&text);
}

static void test_ends(void **state) {
  (void)state;
  static const struct {
    const char *how, *by, *said;
  } rows[] = {
      {"allowed", NULL, "allowed\r\n"},
      {"denied", "uid 7 by \033x", "denied by uid 7 by \\x1bx\r\n"},
      {"timeout", "timeout", "denied: nobody has answered in time\r\n"},
      {"audit", "audit", "denied: the answer could not be written to the audit log\r\n"},
      {"withdrawn", NULL, "withdrawn: nobody waits for the answer any more\r\n"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_text_ struct text text = {0};
    prompt_append_end(&text, rows[i].how, rows[i].by);
    assert_string_equal(text_string(&text), rows[i].said);
  }
}

/* Nothing but our own line ends and attributes. */
static void check_harmless(const char *text, bool plain) {
  for (const unsigned char *at = (const unsigned char *)text; *at; at++) {
    bool sequence = *at == 033 && !plain &&
                    (strncmp((const char *)at, "\033[7m", 4) == 0 ||
                     strncmp((const char *)at, "\033[1m", 4) == 0 ||
                     strncmp((const char *)at, "\033[0m", 4) == 0 ||
                     strncmp((const char *)at, "\033[J", 3) == 0);
    bool end = *at == '\r' || (*at == '\n' && at[-1] == '\r');
    if (!sequence && !end && (*at < 0x20 || *at >= 0x7f))
      fail_msg("byte %#x in the prompt", *at);
  }
}

static void test_hostile_names(void **state) {
  (void)state;
  static const struct {
    const char *path, *shown;
  } cases[] = {
      {"/etc/passwd\033[2K\033[1A/usr/share/doc", "/etc/passwd\\x1b[2K\\x1b[1A/usr/share/doc"},
      {"/x/\u202etxt.yek_di", "/x/\\u{202e}txt.yek_di"},
      {"/x/id\u200b_rsa", "/x/id\\u{200b}_rsa"},
      {"/tmp/x\n[sandbox] approved: /tmp/x", "/tmp/x\\n[sandbox] approved: /tmp/x"},
      {"/x/\r  o  allow once", "/x/\\r\\x20\\x20o\\x20\\x20allow once"},
      {"/x/\x9b"
       "2J",
       "/x/\\x9b2J"},
      {"/x/p\u0430ypal", "/x/p\\u{430}ypal"},
      {"/x/\xff\xfe", "/x/\\xff\\xfe"},
      {"/x/a\\b", "/x/a\\\\b"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    for (int plain = 0; plain < 2; plain++) {
      struct question *question = ask_about(cases[i].path, false);
      free(question->exe);
      free(question->cwd);
      question->exe = xstrdup(cases[i].path);
      question->cwd = xstrdup(cases[i].path);
      _cleanup_free_ char *text = drawn(question, plain);
      assert_non_null(strstr(text, cases[i].shown));
      check_harmless(text, plain);
      question_free(question);
    }
  }
}

/* Columns that a line takes: sequences take none. */
static size_t columns_of(const char *line, const char *end) {
  size_t columns = 0;
  for (const char *at = line; at < end; at++) {
    if (*at == '\033')
      at += strcspn(at, "mJ");
    else
      columns++;
  }
  return columns;
}

/* Where the last letter of the filler ends; our own words may follow. */
static const char *filler_end(const char *line) {
  const char *end = line;
  for (const char *at = line; (at = strstr(at, "aaaa")); at++)
    end = at + 4;
  return end;
}

/* Every line that has something of a name in it begins with words of ours or with the name, and the
 * name ends before the terminal would end the line. */
static void check_lines(const char *text, unsigned width) {
  static const char *const beginnings[] = {
      "/p/", "\"/p/", "    | ", "  process ", "\033[1m    ", "  allow all but secrets in "};
  for (const char *line = text, *end; (end = strstr(line, "\r\n")); line = end + 2) {
    _cleanup_free_ char *copy = xstrndup(line, (size_t)(end - line));
    bool ours = !strstr(copy, "aaaa") && !strstr(copy, "share/doc");
    for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
      ours |= strncmp(line, beginnings[i], strlen(beginnings[i])) == 0;
    if (!ours || columns_of(copy, filler_end(copy)) >= width)
      fail_msg("%u columns: %s", width, copy);
  }
}

/* The command knows the width of the terminal: a name that fills a line could go on with one that
 * looks like ours. */
static void test_names_draw_no_lines_of_their_own(void **state) {
  (void)state;
  static const char *const endings[] = {
      " wants to read                                    /usr/share/doc/README",
      " allow all but secrets in /usr/share/doc: t this session",
      "  allow:  o once, /usr/share/doc"};
  static const unsigned widths[] = {40, 80, 132};
  for (size_t width = 0; width < ARRAY_SIZE(widths); width++) {
    for (size_t filler = 0; filler < 110; filler++) {
      char name[256] = "/p/aaaa";
      memset(name + 7, 'a', filler);
      snprintf(name + 7 + filler, sizeof name - 7 - filler, "%s", endings[filler % 3]);
      struct question *question = ask_about(name, false);
      free(question->exe);
      free(question->cwd);
      question->exe = xstrdup(name);
      question->cwd = xstrdup(name);
      struct prompt_view view = {
          .session_id = "abcdefgh", .mark = "k7qx2m", .width = widths[width]};
      _cleanup_text_ struct text text = {0};
      prompt_append_question(&text, question, &view);
      check_lines(text_string(&text), widths[width]);
      assert_null(strstr(strstr(text_string(&text), "asks"), "    /usr/share"));
      _cleanup_text_ struct text full = {0};
      prompt_append_full(&full, question, widths[width]);
      for (const char *line = text_string(&full) + 2, *end; (end = strstr(line, "\r\n"));
           line = end + 2)
        assert_true(strncmp(line, "    ", 4) == 0 && columns_of(line, end) < widths[width]);
      question_free(question);
    }
  }
}

static void test_names_with_spaces_are_quoted(void **state) {
  (void)state;
  static const struct {
    const char *name, *shown;
  } cases[] = {
      {"/usr/bin/cat", "\r\n/usr/bin/cat wants to "},
      {"/opt/My Tool/run", "\r\n\"/opt/My Tool/run\" wants to "},
      {"/x/cat\" wants to", "\r\n\"/x/cat\\x22 wants to\" wants to "},
      {"/x/a  b ", "\r\n/x/a\\x20\\x20b\\x20 wants to "},
  };
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    struct question *question = ask_about("/opt/sdk/a", false);
    free(question->exe);
    question->exe = xstrdup(cases[i].name);
    _cleanup_free_ char *text = drawn(question, false);
    if (!strstr(text, cases[i].shown))
      fail_msg("%s", text);
    question_free(question);
  }
}

static void test_every_byte_is_harmless(void **state) {
  (void)state;
  for (int byte = 1; byte < 256; byte++) {
    char path[16];
    snprintf(path, sizeof path, "/x/%c/y", byte);
    struct question *question = ask_about(path, false);
    _cleanup_free_ char *text = drawn(question, false);
    check_harmless(text, false);
    question_free(question);
  }
}

static void test_long_path_does_not_scroll_the_question_away(void **state) {
  (void)state;
  char path[4096];
  memset(path, 'a', sizeof path);
  path[0] = '/';
  path[sizeof path - 1] = '\0';
  struct question *question = ask_about(path, false);
  _cleanup_free_ char *text = drawn(question, false);
  assert_true(strlen(text) < 1600);
  assert_non_null(strstr(text, "[4095 bytes, sha256 "));
  assert_non_null(strstr(text, "f shows the whole path"));
  struct text full = {0};
  prompt_append_full(&full, question, 80);
  assert_true(full.length >= 4095);
  text_clear(&full);
  /* Two that differ in the middle do not look the same. */
  path[2000] = 'b';
  struct question *other = ask_about(path, false);
  _cleanup_free_ char *other_text = drawn(other, false);
  assert_string_not_equal(text, other_text);
  question_free(question);
  question_free(other);
}

static void test_keys(void **state) {
  (void)state;
  static const struct {
    char key;
    bool allow;
    enum grant_scope scope;
    const char *tree;
    bool rest;
  } cases[] = {
      {'o', true, SCOPE_ONCE, NULL, false},          {'s', true, SCOPE_SESSION, NULL, false},
      {'t', true, SCOPE_SESSION, "/opt/sdk", false}, {'p', true, SCOPE_PROJECT, NULL, false},
      {'u', true, SCOPE_USER, NULL, false},          {'P', true, SCOPE_PROJECT, "/opt/sdk", false},
      {'U', true, SCOPE_USER, "/opt/sdk", false},    {'d', false, SCOPE_ONCE, NULL, false},
      {'D', false, SCOPE_USER, NULL, false},         {'N', false, SCOPE_ONCE, NULL, true},
  };
  struct question *question = ask_about("/opt/sdk/include/a.h", false);
  struct reply reply;
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    assert_true(prompt_key_reply(question, cases[i].key, &reply));
    assert_int_equal(reply.allow, cases[i].allow);
    assert_int_equal(reply.scope, cases[i].scope);
    assert_int_equal(reply.rest, cases[i].rest);
    assert_true(!reply.tree == !cases[i].tree);
    if (reply.tree)
      assert_string_equal(reply.tree, cases[i].tree);
  }
  for (int key = 0; key < 256; key++)
    if (!strchr("ostpuPUdDN", key) || key == 0)
      assert_false(prompt_key_reply(question, (char)key, &reply));
  question_free(question);
}

static void test_what_cannot_be_is_not_offered(void **state) {
  (void)state;
  struct reply reply;
  struct question *home = ask_about("/home/ann", true);
  for (const char *key = "stpuPUD"; *key; key++)
    assert_false(prompt_key_reply(home, *key, &reply));
  for (const char *key = "odN"; *key; key++)
    assert_true(prompt_key_reply(home, *key, &reply));
  home->names = true; /* as of a call that gets no more than the names in it */
  home->widest = SCOPE_ORG;
  for (const char *key = "ospudN"; *key; key++)
    assert_true(prompt_key_reply(home, *key, &reply) && !reply.tree);
  for (const char *key = "tPUD"; *key; key++)
    assert_false(prompt_key_reply(home, *key, &reply));
  _cleanup_free_ char *asked = drawn(home, false);
  assert_non_null(strstr(asked, "allow the names in it, nothing else:  o once"));
  question_free(home);
  struct question *secret = ask_about("/opt/sdk/a/b", false);
  secret->secret = "keys";
  secret->widest = SCOPE_SESSION;
  for (const char *key = "tpuPU"; *key; key++)
    assert_false(prompt_key_reply(secret, *key, &reply));
  assert_true(prompt_key_reply(secret, 'D', &reply));
  _cleanup_free_ char *text = drawn(secret, false);
  assert_non_null(strstr(text, "WARNING: this is a secret: keys"));
  question_free(secret);
  struct question *socket = ask_about("/opt/sdk/a/socket", false);
  socket->widest = SCOPE_SESSION; /* it may be spoken to, but that is not kept */
  for (const char *key = "puPU"; *key; key++)
    assert_false(prompt_key_reply(socket, *key, &reply));
  assert_true(prompt_key_reply(socket, 't', &reply));
  assert_string_equal(reply.tree, "/opt/sdk");
  question_free(socket);
  struct question *folder = ask_about("/opt/sdk/a", true);
  _cleanup_free_ char *shown = drawn(folder, false);
  assert_non_null(strstr(shown, "with everything below it"));
  question_free(folder);
}

/* ---- through the wire and back ---- */

static void test_question_round_trip(void **state) {
  (void)state;
  struct question *question = ask_about("/opt/sdk/\xff\"}\n{\"cmd\":\"cmd.approve\"}", false);
  json_t *json = question_to_json(question, 0);
  _cleanup_free_ char *line = json_dumps(json, JSON_COMPACT);
  assert_null(strchr(line, '\n'));
  json_t *read = json_loads(line, 0, NULL);
  struct question *again = question_from_json(read);
  assert_non_null(again);
  assert_string_equal(again->request.path, question->request.path);
  assert_string_equal(again->id, question->id);
  assert_string_equal(again->proposal, question->proposal);
  assert_int_equal(again->widest, question->widest);
  assert_false(again->names);
  question_free(again);
  json_object_set_new(read, "names", json_true());
  again = question_from_json(read);
  assert_true(again->names);
  question_free(again);
  static const char *const broken[] = {"id", "path_b64", "op", "event"};
  for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
    json_t *copy = json_copy(read);
    json_object_del(copy, broken[i]);
    assert_null(question_from_json(copy));
    json_object_set_new(copy, broken[i], json_integer(1));
    assert_null(question_from_json(copy));
    json_decref(copy);
  }
  json_decref(read);
  json_decref(json);
  question_free(question);
}

/* ---- the screen ---- */

static void feed(struct screen *screen, const char *bytes) {
  /* In every division, as reads may fall. */
  for (const char *at = bytes; *at; at++)
    screen_feed(screen, at, 1);
}

static bool restores(const struct screen *screen, const char *sequence) {
  struct text text = {0};
  screen_append_restore(screen, &text);
  bool found = strstr(text_string(&text), sequence);
  text_clear(&text);
  return found;
}

static void test_screen(void **state) {
  (void)state;
  struct screen screen = {0};
  assert_false(screen_is_alternate(&screen));
  feed(&screen, "hello\033[31mred\033[0m\033[?1049h\033[22;0;0t\033[1;24r");
  assert_true(screen_is_alternate(&screen));
  feed(&screen, "\033[?1000;1006h\033[?25l\033=");
  assert_true(restores(&screen, "\033[?1000h") && restores(&screen, "\033[?1006h"));
  assert_true(restores(&screen, "\033[?25l") && restores(&screen, "\033="));
  assert_false(restores(&screen, "1049"));
  feed(&screen, "\033[?1049l\033[?1000l\033>");
  assert_false(screen_is_alternate(&screen));
  assert_true(restores(&screen, "\033[?1000l"));
  /* Broken and endless sequences. */
  feed(&screen, "\033[?\033[?1049h");
  assert_true(screen_is_alternate(&screen));
  feed(&screen, "\033[?99999999999999999999;1;2;3;4;5;6;7;8;9;10;11;12;13;14;15;16;17;18;1049l");
  feed(&screen, "\033c");
  assert_false(screen_is_alternate(&screen));
  /* Only private modes. */
  feed(&screen, "\033[1049h\033]0;?1049h\007");
  assert_false(screen_is_alternate(&screen));
}

static bool resets(const struct screen *screen, const char *sequence) {
  _cleanup_text_ struct text text = {0};
  screen_append_reset(screen, &text);
  return strstr(text_string(&text), sequence);
}

/* Margins could swallow lines of the question; and it comes below what was there before, so nothing
 * may send the cursor to the top but between a save and a restore. */
static void test_margins(void **state) {
  (void)state;
  struct screen screen = {0};
  _cleanup_text_ struct text text = {0};
  feed(&screen, "\033[3;4r\033[?6h\033[?69h\033[2;9s");
  screen_append_reset(&screen, &text);
  const char *kept = strstr(text_string(&text), "\0337\033[r\033[?6l\0338");
  assert_non_null(kept);
  assert_null(strstr(kept + strlen("\0337\033[r\033[?6l"), "\033[?6l"));
  assert_true(resets(&screen, "\033[?69l"));
  assert_true(restores(&screen, "\033[?6h") && restores(&screen, "\033[?69h"));
  feed(&screen, "\033[?6l");
  assert_false(restores(&screen, "\033[?6l"));
}

/* A key that is told as a sequence would be no answer. */
static void test_keys_are_bytes(void **state) {
  (void)state;
  struct screen screen = {0};
  assert_true(resets(&screen, "\033[>4;0m"));
  assert_false(resets(&screen, "u") || restores(&screen, "u") || restores(&screen, "\033[>4"));
  feed(&screen, "\033[>4;2m\033[>1u\033[>8u");
  assert_true(resets(&screen, "\033[=0;1u") && resets(&screen, "\033[>4;0m"));
  assert_true(restores(&screen, "\033[=8;1u") && restores(&screen, "\033[>4;2m"));
  feed(&screen, "\033[<u\033[>4m");
  assert_true(restores(&screen, "\033[=1;1u"));
  assert_false(restores(&screen, "\033[>4"));
  feed(&screen, "\033[=30;2u\033[=2;3u");
  assert_true(restores(&screen, "\033[=29;1u"));
  feed(&screen, "\033[?1049h"); /* the other screen has its own */
  assert_true(restores(&screen, "\033[=0;1u"));
  feed(&screen, "\033[>3u\033[?1049l");
  assert_true(restores(&screen, "\033[=29;1u"));
  for (int i = 0; i < 100; i++)
    feed(&screen, "\033[>5u");
  assert_true(restores(&screen, "\033[=5;1u"));
  feed(&screen, "\033[<99999u");
  assert_true(restores(&screen, "\033[=0;1u"));
  feed(&screen, "\033[8u\033[?8u\033[4;2m"); /* a cursor, a question, a colour */
  assert_true(restores(&screen, "\033[=0;1u") && !restores(&screen, "\033[>4"));
}

/* Neither over nor below the question, nor may it be squeezed into one line. Nothing of that is
 * sent to a terminal that may not know it. */
static void test_nothing_lies_over_it(void **state) {
  (void)state;
  static const char *const images[] = {"\033_Gf=24,s=1,v=1;AAAA\033\\", "\xc2\x9fGa=T;\xc2\x9c",
                                       "\033[3\xc2\x9fGa=T\033\\", "\033\033_G\033\\"};
  struct screen screen = {0};
  feed(&screen, "text _G \xc3\x9f \xc2\xa9_ \033[1$q\033[2$~\033[1}");
  assert_false(resets(&screen, "\033_") || resets(&screen, "$}") || restores(&screen, "$}"));
  for (size_t i = 0; i < ARRAY_SIZE(images); i++) {
    struct screen covered = {0};
    feed(&covered, images[i]);
    assert_true(resets(&covered, "\033_Ga=d,q=2\033\\"));
  }
  feed(&screen, "\033[1$}");
  assert_true(resets(&screen, "\030\033\\\033[0$}") && restores(&screen, "\033[1$}"));
  feed(&screen, "\033[$}");
  assert_true(resets(&screen, "\033[0$}") && !restores(&screen, "$}"));
  assert_true(resets(&screen, "\033]105\033\\")); /* the colour of what is bold */
}

static void test_reset_comes_first(void **state) {
  (void)state;
  struct text text = {0};
  screen_append_reset(&(struct screen){0}, &text);
  assert_int_equal(text.data[0], 030);
  assert_non_null(strstr(text.data, "\033[?25h"));
  assert_non_null(strstr(text.data, "\033[?1003l"));
  assert_null(strstr(text.data, "1049"));
  text_clear(&text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_ends),
    cmocka_unit_test(test_hostile_names),
    cmocka_unit_test(test_names_draw_no_lines_of_their_own),
    cmocka_unit_test(test_names_with_spaces_are_quoted),
    cmocka_unit_test(test_every_byte_is_harmless),
    cmocka_unit_test(test_long_path_does_not_scroll_the_question_away),
    cmocka_unit_test(test_keys),
    cmocka_unit_test(test_what_cannot_be_is_not_offered),
    cmocka_unit_test(test_question_round_trip),
    cmocka_unit_test(test_screen),
    cmocka_unit_test(test_margins),
    cmocka_unit_test(test_keys_are_bytes),
    cmocka_unit_test(test_nothing_lies_over_it),
    cmocka_unit_test(test_reset_comes_first),
};

UNIT_MAIN(tests)
