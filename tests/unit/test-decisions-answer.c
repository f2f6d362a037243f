/* Answers: how far one reaches, what is kept of it, the audit log before it, and taking it back. */
#include "core/alloc.h"
#include "core/cleanup.h"
#include "decisions-ground.h"
#include "session/approvals.h"

/* ---- scopes ---- */

static void test_scopes(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/data/set/a/b", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/set"), 0);
  assert_int_equal(ground->stored.count, 0);
  assert_int_equal(answer_at_once(ground, "/data/set/c", WANT_LIST), ANSWER_ALLOW);
  assert_int_equal(answer_at_once(ground, "/data/set", WANT_LIST), ANSWER_ALLOW);
  ask_file(ground, "/data/settings", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_PROJECT, NULL), 0);
  ask_file(ground, "/data/x", WANT_READ);
  assert_int_equal(reply_with(ground, false, SCOPE_USER, NULL), 0);
  assert_int_equal(ground->stored.count, 2);
  assert_string_equal(ground->stored.items[0], "project allow /data/settings by ann");
  assert_string_equal(ground->stored.items[1], "user deny /data/x by ann");
  assert_int_equal(answer_at_once(ground, "/data/x", WANT_READ), ANSWER_DENY);
  /* A file's approval is not its sibling's. */
  ask_file(ground, "/data/y/one", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  ask_file(ground, "/data/y/two", WANT_READ);
}

static void test_deepest_approval_wins(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/data/set/keys/a", WANT_READ);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, "/data/set/keys"), 0);
  ask_file(ground, "/data/set/x", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/set"), 0);
  assert_int_equal(answer_at_once(ground, "/data/set/keys/b", WANT_READ), ANSWER_DENY);
  assert_int_equal(answer_at_once(ground, "/data/set/y", WANT_READ), ANSWER_ALLOW);
}

static void test_tree_settles_what_waits_below(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t below = ask_file(ground, "/data/set/a", WANT_READ);
  uint64_t aside = ask_file(ground, "/data/other", WANT_READ);
  ask_file(ground, "/data/set/b", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/set"), 0);
  assert_int_equal(ground->answers[below].answer, ANSWER_ALLOW);
  assert_int_equal(ground->answers[aside].answer, ANSWER_PENDING);
}

static void test_trees_that_may_not_be(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/home/ann/notes/a", WANT_READ);
  static const char *const bad[] = {"/",
                                    "/home",
                                    "/home/ann",
                                    "/home/ann/note",
                                    "/etc",
                                    "notes",
                                    "/home/ann/notes/../notes",
                                    "/home/ann/notes/"};
  for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
    assert_int_equal(reply_with(ground, true, SCOPE_SESSION, bad[i]), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_ONCE, "/home/ann/notes"), -1);
  assert_int_equal(ground->answer_count, 0);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/home/ann/notes"), 0);
}

static void test_home_itself_only_once(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/home/ann", WANT_LIST);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_ONCE, NULL), 0);
  /* Nor is all that is in it denied with it; a folder in it is. */
  ask_file(ground, "/home/ann", WANT_LIST);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, NULL), -1);
  assert_int_equal(reply_with(ground, false, SCOPE_USER, NULL), -1);
  assert_int_equal(ground->stored.count, 0);
  assert_int_equal(reply_with(ground, false, SCOPE_ONCE, NULL), 0);
  ask_file(ground, "/home/ann/notes", WANT_LIST);
  assert_int_equal(reply_with(ground, false, SCOPE_USER, NULL), 0);
}

/* ---- the names in a folder, and nothing else ---- */

static enum answer list_names(struct ground *ground, const char *path, uint64_t *ret_ticket,
                              struct answered *ret_answer) {
  struct access_request request = file(path, WANT_LIST);
  request.names = request.folder = true;
  return ask_for(ground, &request, ret_ticket, ret_answer);
}

static void test_names_of_a_home(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  struct answered answer;
  uint64_t ticket;
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_PENDING);
  /* Who says that it is the tree means more than can be allowed. */
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/home/ann"), -1);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, NULL), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_true(ground->answers[ticket].names && !ground->answers[ticket].tree);
  assert_true(json_is_true(json_object_get(last_record(ground), "names")));
  assert_null(json_object_get(last_record(ground), "tree"));
  assert_int_equal(list_names(ground, "/home/ann", &ticket, &answer), ANSWER_ALLOW);
  assert_true(answer.names && !answer.tree);
  assert_true(decisions_list(ground->decisions, "/home/ann"));
  /* Nothing else of it, nor of what is in it or above it. */
  ask_file(ground, "/home/ann", WANT_LIST);
  ask_file(ground, "/home/ann/notes", WANT_READ);
  assert_int_equal(list_names(ground, "/home/ann/notes", &ticket, NULL), ANSWER_PENDING);
  assert_int_equal(list_names(ground, "/home", &ticket, NULL), ANSWER_PENDING);
  assert_false(decisions_list(ground->decisions, "/home/ann/notes"));
  assert_int_equal(answer_at_once(ground, "/home/ann/.ssh/id_rsa", WANT_READ), ANSWER_HIDE);
  _cleanup_error_ struct sb_error error = {0};
  size_t count;
  assert_int_equal(decisions_save(ground->decisions, SCOPE_PROJECT, "ann", &count, &error), 0);
  assert_string_equal(ground->stored.items[0], "project allow /home/ann names by ann");
}

/* Whoever waits for more than the names is not answered with them. */
static void test_names_are_a_question_of_their_own(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t names, again;
  assert_int_equal(list_names(ground, "/home/ann", &names, NULL), ANSWER_PENDING);
  _cleanup_free_ char *id = xstrdup(ground->asked);
  assert_int_equal(list_names(ground, "/home/ann", &again, NULL), ANSWER_PENDING);
  uint64_t watch = ask_file(ground, "/home/ann", WANT_LIST);
  assert_int_equal(ground->asked_count, 2);
  _cleanup_error_ struct sb_error error = {0};
  struct reply reply = {.allow = true, .scope = SCOPE_USER, .by = "ann"};
  assert_int_equal(decisions_answer(ground->decisions, id, &reply, &error), 0);
  assert_int_equal(ground->answers[names].answer, ANSWER_ALLOW);
  assert_int_equal(ground->answers[again].answer, ANSWER_ALLOW);
  assert_int_equal(ground->answers[watch].answer, ANSWER_PENDING);
  assert_string_equal(ground->stored.items[0], "user allow /home/ann names by ann");
}

static void test_names_by_a_rule(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {list: [~, /data, ~/.ssh], hide: [/data]}\n");
  struct answered answer;
  uint64_t ticket;
  assert_false(decisions_list(ground->decisions, "/home/ann")); /* not yet written down */
  assert_int_equal(list_names(ground, "/home/ann", &ticket, &answer), ANSWER_ALLOW);
  assert_true(answer.names && !answer.tree && answer.scope == SCOPE_SESSION);
  assert_string_equal(field(last_record(ground), "by"), "policy");
  assert_true(decisions_list(ground->decisions, "/home/ann"));
  ask_file(ground, "/home/ann/notes", WANT_READ);
  assert_int_equal(list_names(ground, "/data", &ticket, NULL), ANSWER_HIDE);
  assert_int_equal(list_names(ground, "/home/ann/.ssh", &ticket, NULL), ANSWER_HIDE);
}

static void test_names_that_cannot_be_written_down(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {list: [~]}\n");
  uint64_t ticket;
  ground->audit_fails = true;
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_DENY);
  assert_false(decisions_list(ground->decisions, "/home/ann"));
  ground->audit_fails = false;
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_ALLOW);
}

static void test_store_failure_changes_nothing(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  ground->store_fails = true;
  assert_int_equal(reply_with(ground, true, SCOPE_ORG, NULL), -1);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_PENDING);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_ALLOW);
}

static void test_saving(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  _cleanup_error_ struct sb_error error = {0};
  size_t count = 0;
  ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  ask_file(ground, "/data/b", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_ONCE, NULL), 0);
  assert_int_equal(decisions_save(ground->decisions, SCOPE_PROJECT, "ann", &count, &error), 0);
  assert_int_equal(count, 1);
  assert_string_equal(ground->stored.items[0], "project allow /data/a by ann");
  assert_int_equal(decisions_save(ground->decisions, SCOPE_PROJECT, "ann", &count, &error), 0);
  assert_int_equal(count, 0);
  assert_int_equal(decisions_save(ground->decisions, SCOPE_SESSION, "ann", &count, &error), -1);
}

/* ---- the first, the rest ---- */

static void test_first_answer_wins(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  _cleanup_error_ struct sb_error error = {0};
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  _cleanup_free_ char *id = xstrdup(ground->asked);
  assert_int_equal(strlen(id), 32);
  assert_int_equal(reply_with(ground, false, SCOPE_ONCE, NULL), 0);
  struct reply reply = {.allow = true, .scope = SCOPE_SESSION, .by = "eve"};
  assert_int_equal(decisions_answer(ground->decisions, id, &reply, &error), -1);
  assert_int_equal(error.code, SB_CODE_CONFLICT);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  sb_error_clear(&error);
  /* Not the id of the next question either. */
  ask_file(ground, "/data/a", WANT_READ);
  assert_string_not_equal(ground->asked, id);
  assert_int_equal(decisions_answer(ground->decisions, id, &reply, &error), -1);
  static const char *const guesses[] = {"", "1", "00000000000000000000000000000000", "*"};
  for (size_t i = 0; i < ARRAY_SIZE(guesses); i++) {
    sb_error_clear(&error);
    assert_int_equal(decisions_answer(ground->decisions, guesses[i], &reply, &error), -1);
    assert_int_equal(error.code, SB_CODE_NOT_FOUND);
  }
  assert_int_equal(ground->answer_count, 1);
}

static void test_deny_the_rest(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {read: [/opt/sdk]}\n");
  _cleanup_error_ struct sb_error error = {0};
  uint64_t first = ask_file(ground, "/data/a", WANT_READ);
  uint64_t second = ask_file(ground, "/data/b", WANT_READ);
  struct reply reply = {.rest = true, .by = "ann"};
  assert_int_equal(decisions_answer(ground->decisions, ground->asked, &reply, &error), 0);
  assert_int_equal(ground->answers[first].answer, ANSWER_DENY);
  assert_int_equal(ground->answers[second].answer, ANSWER_DENY);
  assert_int_equal(answer_at_once(ground, "/data/c", WANT_READ), ANSWER_DENY);
  assert_int_equal(answer_at_once(ground, "/opt/sdk/a", WANT_READ), ANSWER_ALLOW);
  assert_int_equal(ground->asked_count, 2);
}

/* ---- audit ---- */

static void test_audited_before_it_takes_effect(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(json_array_size(ground->records), 0);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->records_when_answered, 1);
  const json_t *line = last_record(ground);
  assert_string_equal(field(line, "decision"), "allow");
  assert_string_equal(field(line, "scope"), "session");
  assert_string_equal(field(line, "by"), "ann");
  assert_string_equal(field(line, "path"), "/data/a");
  assert_non_null(field(line, "path_b64"));
  assert_non_null(strstr(field(line, "exe"), "test-decisions"));
}

static void test_full_disk_denies(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {read: [/opt/sdk]}\n");
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  ground->audit_fails = true;
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), -1);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  assert_int_equal(answer_at_once(ground, "/opt/sdk/a", WANT_READ), ANSWER_DENY);
  assert_non_null(strstr(ground->notices.items[0], "audit log"));
  uint64_t again = ask_file(ground, "/data/b", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), -1);
  assert_int_equal(ground->stored.count, 0); /* nothing is kept that is not in the log */
  ground->audit_fails = false;
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->answers[again].answer, ANSWER_ALLOW);
  ask_file(ground, "/data/a", WANT_READ); /* what failed made no rule */
}

/* ---- revoking ---- */

static int revoke_path(struct ground *ground, const char *path, bool stored) {
  _cleanup_error_ struct sb_error error = {0};
  size_t count = 0;
  struct revocation revocation = {.path = path, .stored = stored, .by = "ann"};
  return decisions_revoke(ground->decisions, &revocation, &count, &error);
}

static void test_revoking(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {read: [/opt/granted]}\n");
  ask_file(ground, "/data/set/a", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/set"), 0);
  assert_int_equal(revoke_path(ground, "/data/set/a", false), -1);
  assert_int_equal(answer_at_once(ground, "/data/set/a", WANT_READ), ANSWER_ALLOW);
  assert_int_equal(revoke_path(ground, "/data/set", false), 0);
  assert_string_equal(ground->revoked.items[ground->revoked.count - 1], "/data/set");
  ask_file(ground, "/data/set/a", WANT_READ);
  /* What a stored grant allowed from the start on. */
  assert_int_equal(answer_at_once(ground, "/opt/granted/x", WANT_READ), ANSWER_ALLOW);
  ground->granted = true;
  assert_int_equal(revoke_path(ground, "/opt/granted", false), 0);
  ask_file(ground, "/opt/granted/x", WANT_READ);
  assert_string_equal(field(last_record(ground), "event"), "revoke");
}

/* The names go alone: what else was allowed in the home folder stays, mounts included. */
static void test_revoking_names(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t ticket;
  ask_file(ground, "/home/ann/notes", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  for (int round = 0; round < 2; round++) { /* also what is allowed again afterwards */
    assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_PENDING);
    assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), 0);
    assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_ALLOW);
    ground->granted = true;
    assert_int_equal(revoke_path(ground, "/home/ann", true), 0);
    assert_int_equal(ground->revoked.count, 0);
    assert_true(strv_contains(&ground->unstored, "user /home/ann"));
    assert_false(decisions_list(ground->decisions, "/home/ann"));
  }
  assert_int_equal(answer_at_once(ground, "/home/ann/notes", WANT_READ), ANSWER_ALLOW);
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_PENDING);
}

static void test_revoking_kept_names(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {list: [~, /srv]}\n");
  uint64_t ticket;
  for (size_t i = 0; i < ground->policy->rule_count; i++) {
    struct rule *rule = &ground->policy->rules[i];
    rule->granted |= rule->kind == RULE_LIST && strcmp(rule->pattern, "/home/ann") == 0;
  }
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_ALLOW);
  assert_int_equal(revoke_path(ground, "/home/ann", false), 0);
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_PENDING);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(list_names(ground, "/home/ann", &ticket, NULL), ANSWER_ALLOW);
  /* What a person wrote is changed where it is written. */
  assert_int_equal(list_names(ground, "/srv", &ticket, NULL), ANSWER_ALLOW);
  assert_int_equal(revoke_path(ground, "/srv", false), -1);
  assert_int_equal(list_names(ground, "/srv", &ticket, NULL), ANSWER_ALLOW);
}

/* The grant was stored, and then the line about the decision could not be written. */
static void test_what_is_denied_after_all_is_not_kept(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  static const struct access_request host = {
      .subject = SUBJECT_NETWORK, .want = WANT_CONNECT, .host = "example.org", .port = 443};
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ), other;
  ground->audit_fails_for = "decision";
  assert_int_equal(reply_with(ground, true, SCOPE_USER, "/data"), -1);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  assert_int_equal(ground->stored.count, 1);
  assert_int_equal(ground->unstored.count, 1);
  assert_string_equal(ground->unstored.items[0], "user /data");
  assert_int_equal(ask_for(ground, &host, &other, NULL), ANSWER_PENDING);
  assert_int_equal(reply_with(ground, true, SCOPE_PROJECT, NULL), -1);
  assert_string_equal(ground->unstored.items[1], "project example.org:443");
  /* What cannot be taken back is told; a denial that was kept stays. */
  ask_file(ground, "/data/b", WANT_READ);
  ground->unstore_fails = true;
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), -1);
  assert_non_null(strstr(ground->notices.items[ground->notices.count - 1], "revoke /data/b"));
  ground->unstore_fails = false;
  ask_file(ground, "/data/c", WANT_READ);
  assert_int_equal(reply_with(ground, false, SCOPE_USER, NULL), -1);
  assert_int_equal(ground->unstored.count, 2);
}

/* Asked about again, the answer counts, and not the rule that was taken back. */
static void test_denying_what_was_revoked(void **state) {
  (void)state;
  _ground_ struct ground *ground =
      lay_with_person("version: 1\nfilesystem: {read: [/opt/granted, /opt/other]}\n");
  ground->granted = true;
  assert_int_equal(revoke_path(ground, "/opt/granted", false), 0);
  ask_file(ground, "/opt/granted/x", WANT_READ);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, NULL), 0);
  assert_int_equal(answer_at_once(ground, "/opt/granted/x", WANT_READ), ANSWER_DENY);
  ask_file(ground, "/opt/granted/y", WANT_READ);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(answer_at_once(ground, "/opt/granted/y", WANT_READ), ANSWER_ALLOW);
  ask_file(ground, "/opt/granted/z", WANT_READ);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, "/opt/granted"), 0);
  assert_int_equal(answer_at_once(ground, "/opt/granted/z", WANT_READ), ANSWER_DENY);
  assert_int_equal(answer_at_once(ground, "/opt/granted/y", WANT_READ), ANSWER_ALLOW);
  assert_int_equal(answer_at_once(ground, "/opt/other/z", WANT_READ), ANSWER_ALLOW);
}

static enum approval_verdict verdict_of(const struct approvals *approvals, const char *path) {
  struct access_request request = file(path, WANT_READ);
  const struct approval *found = approvals_find(approvals, &request);
  return found ? found->verdict : APPROVAL_ASK;
}

/* What is forgotten for want of room must not allow anything. */
static void test_too_many_approvals(void **state) {
  (void)state;
  struct approvals approvals = {0};
  struct access_request revoked = file("/opt/granted/x", WANT_READ);
  approvals_add(&approvals,
                &(struct approval){.verdict = APPROVAL_ASK, .path = (char *)"/opt/granted"});
  approvals_add(&approvals,
                &(struct approval){.verdict = APPROVAL_DENY, .path = (char *)"/data/9/secret"});
  for (size_t i = 0; i < APPROVALS_LIMIT; i++) {
    _cleanup_free_ char *path = xasprintf("/data/%zu", i);
    approvals_add(&approvals, &(struct approval){.path = path});
  }
  assert_int_equal(approvals.count, APPROVALS_LIMIT);
  assert_true(approvals_is_revoked(&approvals, &revoked));
  assert_int_equal(verdict_of(&approvals, "/data/9/secret/key"), APPROVAL_DENY);
  assert_int_equal(verdict_of(&approvals, "/data/9/other"), APPROVAL_ALLOW);
  assert_int_equal(verdict_of(&approvals, "/data/0/x"), APPROVAL_ASK); /* the oldest of them */
  approvals_clear(&approvals);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_scopes),
    cmocka_unit_test(test_deepest_approval_wins),
    cmocka_unit_test(test_tree_settles_what_waits_below),
    cmocka_unit_test(test_trees_that_may_not_be),
    cmocka_unit_test(test_home_itself_only_once),
    cmocka_unit_test(test_names_of_a_home),
    cmocka_unit_test(test_names_are_a_question_of_their_own),
    cmocka_unit_test(test_names_by_a_rule),
    cmocka_unit_test(test_names_that_cannot_be_written_down),
    cmocka_unit_test(test_store_failure_changes_nothing),
    cmocka_unit_test(test_saving),
    cmocka_unit_test(test_first_answer_wins),
    cmocka_unit_test(test_deny_the_rest),
    cmocka_unit_test(test_audited_before_it_takes_effect),
    cmocka_unit_test(test_full_disk_denies),
    cmocka_unit_test(test_revoking),
    cmocka_unit_test(test_revoking_names),
    cmocka_unit_test(test_revoking_kept_names),
    cmocka_unit_test(test_denying_what_was_revoked),
    cmocka_unit_test(test_what_is_denied_after_all_is_not_kept),
    cmocka_unit_test(test_too_many_approvals),
};

UNIT_MAIN(tests)
