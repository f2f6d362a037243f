/* Decisions that nobody is asked about: policy, secrets, learning; and which folders are proposed.
 */
#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "decisions-ground.h"
#include "session/ancestors.h"

/* ---- policy ---- */

static void test_policy_comes_first(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(
      "version: 1\nfilesystem: {read: [/opt/sdk, '/srv/*/public'], hide: [/opt/sdk/keys]}\n");
  struct answered answer;
  uint64_t ticket;
  struct access_request request = file("/opt/sdk/include/a.h", WANT_READ);
  assert_int_equal(ask_for(ground, &request, &ticket, &answer), ANSWER_ALLOW);
  assert_string_equal(answer.tree, "/opt/sdk");
  assert_false(answer.writable);
  assert_string_equal(field(last_record(ground), "by"), "policy");
  request = file("/srv/a/public/x", WANT_READ);
  assert_int_equal(ask_for(ground, &request, &ticket, &answer), ANSWER_ALLOW);
  assert_string_equal(answer.tree, "/srv/a/public/x");
  assert_int_equal(answer_at_once(ground, "/opt/sdk/keys/a", WANT_READ), ANSWER_HIDE);
  assert_int_equal(answer_at_once(ground, "/home/ann/.ssh/id_rsa", WANT_READ), ANSWER_HIDE);
  assert_string_equal(field(last_record(ground), "decision"), "hide");
  assert_int_equal(ground->asked_count, 0);
  assert_int_equal(answer_at_once(ground, "/opt/sdk-evil", WANT_READ), ANSWER_PENDING);
}

static void test_explicit_deny_never_asks(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {hide: [/data/x]}\n");
  for (int i = 0; i < 500; i++)
    assert_int_equal(answer_at_once(ground, "/data/x/file", WANT_READ), ANSWER_HIDE);
  assert_int_equal(ground->asked_count, 0);
  assert_int_equal(ground->notices.count, 0);
  assert_int_equal(decisions_counts(ground->decisions).denied, 500);
  /* In the log once each, then counted. */
  assert_true(json_array_size(ground->records) <= 201);
  ground->now += 10 * SECOND;
  decisions_tick(ground->decisions);
  assert_string_equal(field(last_record(ground), "event"), "flood");
  assert_int_equal(json_integer_value(json_object_get(last_record(ground), "not_listed")), 300);
}

static void test_writes(void **state) {
  (void)state;
  _ground_ struct ground *closed = lay_with_person(NULL);
  assert_int_equal(answer_at_once(closed, "/data/new", WANT_WRITE), ANSWER_DENY);
  assert_int_equal(closed->notices.count, 1);
  assert_non_null(strstr(closed->notices.items[0], "--rw /data/new"));
  _ground_ struct ground *open = lay_with_person("version: 1\nfilesystem: {ask_writes: true}\n");
  uint64_t ticket = ask_file(open, "/data/new", WANT_WRITE);
  assert_int_equal(reply_with(open, true, SCOPE_SESSION, NULL), 0);
  assert_true(open->answers[ticket].writable);
  /* Reading is part of it; a read elsewhere does not become a write. */
  assert_int_equal(answer_at_once(open, "/data/new", WANT_READ), ANSWER_ALLOW);
  ask_file(open, "/data/old", WANT_READ);
  assert_int_equal(reply_with(open, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(answer_at_once(open, "/data/old", WANT_STAT), ANSWER_ALLOW);
  ask_file(open, "/data/old", WANT_WRITE);
  assert_null(decisions_pending(open->decisions, 0)->proposal);
  assert_int_equal(reply_with(open, true, SCOPE_SESSION, "/data"), -1);
  /* What runs later, and our own policy, are not for asking. */
  static const char *const guarded[] = {"/data/repo/.git/hooks/x",
                                        "/data/repo/.git/hooks",
                                        "/home/ann/.config/sandbox/p",
                                        "/home/ann/.config",
                                        "/home/ann/.bashrc",
                                        "/home/ann/.local/state/sandbox",
                                        "/home/ann/shop/.sandbox/x.yaml",
                                        "/etc/sandbox/policy",
                                        "/home/ann/work/.vscode"};
  for (size_t i = 0; i < ARRAY_SIZE(guarded); i++)
    assert_true(answer_at_once(open, guarded[i], WANT_WRITE) >= ANSWER_DENY);
  ask_file(open, "/data/repo/.git/hooks-of-others", WANT_WRITE);
}

/* ---- secrets ---- */

static void test_secrets_ask_only_if_told(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {ask_secrets: true, hide: [~/.aws]}\n");
  assert_int_equal(answer_at_once(ground, "/home/ann/.aws/credentials", WANT_READ), ANSWER_HIDE);
  uint64_t ticket = ask_file(ground, "/home/ann/.ssh/config", WANT_READ);
  const struct question *question = decisions_pending(ground->decisions, 0);
  assert_non_null(question->secret);
  assert_null(question->proposal);
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/home/ann/.ssh"), -1);
  assert_int_equal(ground->answer_count, 0);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_ALLOW);
  assert_int_equal(answer_at_once(ground, "/home/ann/.ssh/config", WANT_READ), ANSWER_ALLOW);
  ask_file(ground, "/home/ann/.ssh/id_rsa", WANT_READ);
  /* Nor by writing. */
  assert_int_equal(answer_at_once(ground, "/home/ann/.ssh/rc", WANT_WRITE), ANSWER_HIDE);
  size_t count = 9;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(decisions_save(ground->decisions, SCOPE_USER, "ann", &count, &error), 0);
  assert_int_equal(count, 0);
}

static void test_folder_does_not_open_its_secrets(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {ask_secrets: true}\n");
  ask_file(ground, "/home/ann/.docker/cli/x", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/home/ann/.docker"), 0);
  assert_int_equal(answer_at_once(ground, "/home/ann/.docker/cli/y", WANT_READ), ANSWER_ALLOW);
  ask_file(ground, "/home/ann/.docker/config.json", WANT_READ);
}

/* Outside the project no rule hides them, but nobody means them by a folder. */
static void test_names_of_secrets(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {read: [/opt/sdk, /data/app/b.env]}\n");
  ask_file(ground, "/data/app/x", WANT_READ);
  assert_null(decisions_pending(ground->decisions, 0)->secret);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/app"), 0);
  assert_int_equal(answer_at_once(ground, "/data/app/.env.example", WANT_READ), ANSWER_ALLOW);
  uint64_t ticket = ask_file(ground, "/data/app/.env", WANT_READ);
  assert_string_equal(decisions_pending(ground->decisions, 0)->secret,
                      "settings file with secrets");
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/app"), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_ALLOW);
  assert_int_equal(answer_at_once(ground, "/data/app/.env", WANT_READ), ANSWER_ALLOW);
  /* A written rule is as it was written. */
  assert_int_equal(answer_at_once(ground, "/opt/sdk/.env", WANT_READ), ANSWER_ALLOW);
  assert_int_equal(answer_at_once(ground, "/data/app/b.env", WANT_READ), ANSWER_ALLOW);
}

static void test_hidden_objects(void **state) {
  (void)state;
  char folder[] = "/tmp/test-decisions-XXXXXX";
  assert_non_null(mkdtemp(folder));
  _cleanup_free_ char *secret = xasprintf("%s/secret", folder);
  _cleanup_free_ char *link_name = xasprintf("%s/link", folder);
  _cleanup_free_ char *other = xasprintf("%s/other", folder);
  _cleanup_free_ char *other_link = xasprintf("%s/other-link", folder);
  const char *const files[] = {secret, other};
  for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
    FILE *made = fopen(files[i], "w");
    assert_non_null(made);
    fclose(made);
  }
  assert_int_equal(link(secret, link_name), 0);
  assert_int_equal(link(other, other_link), 0);
  strv_add(&hidden, "/data/run");
  strv_add(&hidden, secret);
  {
    _ground_ struct ground *ground =
        lay_with_person("version: 1\nfilesystem: {read: [/data/run/shared, /data]}\n");
    /* Neither asked about nor opened by a rule for what surrounds it. */
    assert_int_equal(answer_at_once(ground, "/data/run/sid/control.sock", WANT_READ), ANSWER_HIDE);
    assert_int_equal(answer_at_once(ground, "/data/run", WANT_LIST), ANSWER_HIDE);
    assert_int_equal(answer_at_once(ground, "/data/run/sid/control.sock", WANT_CONNECT),
                     ANSWER_HIDE);
    assert_int_equal(answer_at_once(ground, "/data/run/shared/x", WANT_READ), ANSWER_ALLOW);
    assert_int_equal(answer_at_once(ground, "/data/x", WANT_READ), ANSWER_ALLOW);
    assert_int_equal(answer_at_once(ground, link_name, WANT_READ), ANSWER_HIDE);
    assert_int_equal(answer_at_once(ground, other_link, WANT_READ), ANSWER_PENDING);
    /* Nor does the answer for a folder above. */
    assert_int_equal(reply_with(ground, true, SCOPE_SESSION, folder), 0);
    assert_int_equal(answer_at_once(ground, other, WANT_READ), ANSWER_ALLOW);
    assert_int_equal(answer_at_once(ground, link_name, WANT_READ), ANSWER_HIDE);
    assert_int_equal(answer_at_once(ground, secret, WANT_READ), ANSWER_HIDE);
  }
  strv_clear(&hidden);
  const char *const made[] = {secret, link_name, other, other_link};
  for (size_t i = 0; i < ARRAY_SIZE(made); i++)
    unlink(made[i]);
  rmdir(folder);
}

/* ---- learning ---- */

static void test_learning_asks_nobody(void **state) {
  (void)state;
  learning = true;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {ask_writes: true, hide: [/srv/x]}\n");
  learning = false;
  static const struct {
    const char *path;
    enum want want;
    bool folder;
    enum answer answer;
    enum grant_scope scope;
  } cases[] = {
      {"/opt/sdk/a", WANT_READ, false, ANSWER_ALLOW, SCOPE_SESSION},
      {"/opt/sdk/a", WANT_STAT, false, ANSWER_ALLOW, SCOPE_SESSION},
      {"/opt/sdk", WANT_LIST, true, ANSWER_ALLOW, SCOPE_ONCE},
      {"/opt/sdk/tool", WANT_EXECUTE, false, ANSWER_ALLOW, SCOPE_SESSION},
      {"/opt/sdk/a", WANT_WRITE, false, ANSWER_DENY, 0},
      {"/opt/sdk/socket", WANT_CONNECT, false, ANSWER_DENY, 0},
      {"/home/ann/.ssh/id_rsa", WANT_READ, false, ANSWER_HIDE, 0},
      {"/srv/x/y", WANT_READ, false, ANSWER_HIDE, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    struct access_request request = file(cases[i].path, cases[i].want);
    struct answered answer;
    uint64_t ticket;
    request.folder = cases[i].folder;
    assert_int_equal(ask_for(ground, &request, &ticket, &answer), cases[i].answer);
    if (cases[i].answer == ANSWER_ALLOW) {
      assert_int_equal(answer.scope, cases[i].scope);
      assert_false(answer.writable);
    }
  }
  assert_int_equal(ground->asked_count, 0);
  assert_int_equal(json_array_size(ground->records), sizeof cases / sizeof cases[0]);
  const json_t *first = json_array_get(ground->records, 0);
  assert_string_equal(json_string_value(json_object_get(first, "by")), "learn");
  /* Secrets that policy would ask about are no exception. */
  ground->policy->ask_secrets = true;
  struct access_request secret = file("/home/ann/.ssh/id_rsa", WANT_READ);
  struct answered answer;
  uint64_t ticket;
  assert_int_equal(ask_for(ground, &secret, &ticket, &answer), ANSWER_DENY);
}

/* ---- folders above ---- */

static void test_proposals(void **state) {
  (void)state;
  static const struct {
    const char *path, *tree;
  } cases[] = {
      {"/opt/sdk/include/a/b.h", "/opt/sdk"},
      {"/opt/file", NULL},
      {"/home/ann/.pyenv/versions/3.11/lib/os.py", "/home/ann/.pyenv"},
      {"/home/ann/.config/tool/sub/x", "/home/ann/.config/tool"},
      {"/home/ann/.local/share/tool/x/y", "/home/ann/.local/share/tool"},
      {"/home/ann/work/a/b/c", "/home/ann/work"},
      {"/home/ann/notes.txt", NULL},
      {"/home/ann", NULL},
      {"/home/bob/work/a/b", "/home/bob/work"},
      {"/home/bob/x", NULL},
      {"/data/sets/one/two", "/data/sets"},
      {"/data/file", NULL},
      {"/file", NULL},
      {"/", NULL},
      {"/var/lib/tool/x", "/var/lib/tool"},
      {"/media/ann/stick/a/b", "/media/ann/stick"},
      /* Secrets: deeper, beside them; or nothing. */
      {"/home/ann/.docker/cli-plugins/x", "/home/ann/.docker/cli-plugins"},
      {"/home/ann/.docker/x", NULL},
      {"/home/ann/.cargo/registry/a/b", "/home/ann/.cargo/registry"},
      {"/home/ann/.ssh/keys/a/b", NULL},
      {"/home/ann/shop/a/b", NULL}, /* project: .env files may be anywhere */
  };
  _cleanup_policy_ struct policy *policy = policy_new(&place);
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    _cleanup_free_ char *tree = ancestor_propose(policy, &place, cases[i].path);
    if (!cases[i].tree != !tree || (tree && strcmp(tree, cases[i].tree) != 0))
      fail_msg("%s: %s, not %s", cases[i].path, tree, cases[i].tree);
  }
}

static void test_proposal_avoids_stores(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {hide: [/opt/sdk/private, '/srv/**/*.key']}\n");
  _cleanup_free_ char *first = ancestor_propose(ground->policy, &place, "/opt/sdk/a/b/c");
  _cleanup_free_ char *second = ancestor_propose(ground->policy, &place, "/srv/a/b/c");
  assert_string_equal(first, "/opt/sdk/a");
  assert_null(second);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_policy_comes_first),
    cmocka_unit_test(test_explicit_deny_never_asks),
    cmocka_unit_test(test_writes),
    cmocka_unit_test(test_secrets_ask_only_if_told),
    cmocka_unit_test(test_folder_does_not_open_its_secrets),
    cmocka_unit_test(test_names_of_secrets),
    cmocka_unit_test(test_hidden_objects),
    cmocka_unit_test(test_learning_asks_nobody),
    cmocka_unit_test(test_proposals),
    cmocka_unit_test(test_proposal_avoids_stores),
};

UNIT_MAIN(tests)
