/* Questions: which are one, who is asked, for how long, and how many. */
#include <stdio.h>

#include "core/cleanup.h"
#include "decisions-ground.h"

/* ---- joining ---- */

static void test_identical_requests_join(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t first = ask_file(ground, "/data/a", WANT_STAT);
  uint64_t second = ask_file(ground, "/data/a", WANT_READ);
  uint64_t third = ask_file(ground, "/data/a", WANT_EXECUTE);
  assert_int_equal(ground->asked_count, 1);
  assert_int_equal(reply_with(ground, true, SCOPE_ONCE, NULL), 0);
  assert_int_equal(ground->answer_count, 3);
  assert_int_equal(ground->answers[first].scope, SCOPE_ONCE);
  assert_int_equal(ground->answers[second].answer, ANSWER_ALLOW);
  assert_string_equal(ground->answers[third].tree, "/data/a");
  /* Once is once. */
  ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(ground->asked_count, 2);
}

static void test_different_objects_do_not_join(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person("version: 1\nfilesystem: {ask_writes: true}\n");
  ask_file(ground, "/data/a", WANT_READ);
  ask_file(ground, "/data/b", WANT_READ);
  ask_file(ground, "/data/a", WANT_WRITE);
  ask_file(ground, "/data/a", WANT_CONNECT);
  struct access_request other = file("/data/a", WANT_READ);
  other.inode++; /* replaced on the host meanwhile */
  uint64_t ticket;
  assert_int_equal(ask_for(ground, &other, &ticket, NULL), ANSWER_PENDING);
  assert_int_equal(ground->asked_count, 5);
}

/* To look at a socket and to speak to it are two things; speaking is never kept. */
static void test_sockets(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  ask_file(ground, "/data/socket", WANT_STAT);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(answer_at_once(ground, "/data/socket", WANT_READ), ANSWER_ALLOW);
  ask_file(ground, "/data/socket", WANT_CONNECT);
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(answer_at_once(ground, "/data/socket", WANT_CONNECT), ANSWER_ALLOW);
  _cleanup_error_ struct sb_error error = {0};
  size_t count = 0;
  assert_int_equal(decisions_save(ground->decisions, SCOPE_USER, "ann", &count, &error), 0);
  assert_int_equal(count, 1); /* the looking */
}

/* Where the workload can rename things, an answer is for the object and not for its name. */
static void test_sockets_that_can_be_moved(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  struct answered answer;
  uint64_t ticket;
  struct access_request first = file("/data/socket", WANT_CONNECT), second, fixed;
  first.movable = true;
  second = fixed = first;
  second.inode = first.inode + 1;
  fixed.movable = false;
  assert_int_equal(ask_for(ground, &first, &ticket, &answer), ANSWER_PENDING);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ask_for(ground, &first, &ticket, &answer), ANSWER_ALLOW);
  assert_int_equal(ask_for(ground, &fixed, &ticket, &answer), ANSWER_ALLOW);
  assert_int_equal(ask_for(ground, &second, &ticket, &answer), ANSWER_PENDING);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ask_for(ground, &first, &ticket, &answer), ANSWER_ALLOW); /* beside it */
  struct access_request third = second; /* a denial is for the name, whatever has it */
  third.inode++;
  assert_int_equal(ask_for(ground, &third, &ticket, &answer), ANSWER_PENDING);
  assert_int_equal(reply_with(ground, false, SCOPE_SESSION, NULL), 0);
  third.inode++;
  assert_int_equal(ask_for(ground, &third, &ticket, &answer), ANSWER_DENY);
}

/* Nor by a folder above it. */
static void test_sockets_of_a_folder(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  static const enum grant_scope kept[] = {SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG};
  ask_file(ground, "/data/run/socket", WANT_CONNECT);
  for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
    _cleanup_error_ struct sb_error error = {0};
    struct reply reply = {.allow = true, .scope = kept[i], .tree = "/data/run", .by = "ann"};
    assert_int_equal(decisions_answer(ground->decisions, ground->asked, &reply, &error), -1);
    assert_non_null(strstr(error.message, "only for: session"));
    assert_non_null(strstr(error.hint, "network.unix_sockets"));
  }
  assert_int_equal(ground->stored.count, 0);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data/run"), 0);
  assert_int_equal(answer_at_once(ground, "/data/run/other", WANT_CONNECT), ANSWER_ALLOW);
  ask_file(ground, "/data/lib/file", WANT_READ); /* the control */
  assert_int_equal(reply_with(ground, true, SCOPE_USER, "/data/lib"), 0);
  assert_int_equal(ground->stored.count, 1);
  ask_file(ground, "/data/bad/socket", WANT_CONNECT); /* a denial may be kept */
  assert_int_equal(reply_with(ground, false, SCOPE_USER, "/data/bad"), 0);
  assert_int_equal(ground->stored.count, 2);
}

static void test_withdrawing(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t first = ask_file(ground, "/data/a", WANT_READ);
  uint64_t second = ask_file(ground, "/data/a", WANT_READ);
  decisions_withdraw(ground->decisions, first);
  assert_int_equal(ground->settled.count, 0);
  decisions_withdraw(ground->decisions, second);
  assert_string_equal(ground->settled.items[0], "withdrawn");
  decisions_withdraw(ground->decisions, second);
  /* Approved after its death: an error, and no rule. */
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), -1);
  ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(ground->answer_count, 0);
}

static void test_network(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  struct access_request request = {
      .subject = SUBJECT_NETWORK, .want = WANT_CONNECT, .host = "example.org", .port = 443};
  uint64_t first, second;
  assert_int_equal(ask_for(ground, &request, &first, NULL), ANSWER_PENDING);
  assert_int_equal(ask_for(ground, &request, &second, NULL), ANSWER_PENDING);
  assert_int_equal(ground->asked_count, 1);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, "/data"), -1);
  assert_int_equal(reply_with(ground, true, SCOPE_USER, NULL), 0);
  assert_string_equal(ground->stored.items[0], "user allow example.org by ann");
  assert_int_equal(ask_for(ground, &request, &first, NULL), ANSWER_ALLOW);
  request.port = 80;
  assert_int_equal(ask_for(ground, &request, &first, NULL), ANSWER_PENDING);
  request = (struct access_request){
      .subject = SUBJECT_NETWORK, .want = WANT_CONNECT, .host = "sub.example.org", .port = 443};
  assert_int_equal(ask_for(ground, &request, &first, NULL), ANSWER_PENDING);
}

/* ---- time, nobody ---- */

static void test_timeout_denies_once(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(decisions_next_tick(ground->decisions), ground->now + 60 * SECOND);
  ground->now += 59 * SECOND;
  decisions_tick(ground->decisions);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_PENDING);
  ground->now += SECOND;
  decisions_tick(ground->decisions);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  assert_int_equal(ground->answers[ticket].scope, SCOPE_ONCE);
  assert_string_equal(field(last_record(ground), "reason"), "timeout");
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), -1);
  ask_file(ground, "/data/a", WANT_READ); /* no rule was made of it */
}

static void test_somebody_is_expected_and_comes(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  assert_int_equal(answer_at_once(ground, "/data/b", WANT_READ), ANSWER_DENY); /* the control */
  assert_false(decisions_may_allow_hosts(ground->decisions));
  ground->expected = true;
  assert_true(decisions_may_allow_hosts(ground->decisions));
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  ground->now += SECOND;
  decisions_add_supervisor(ground->decisions, &ground->person);
  ground->person_is_there = true;
  assert_int_equal(ground->asked_count, 1);
  assert_int_equal(decisions_next_tick(ground->decisions), ground->now + 59 * SECOND);
  assert_int_equal(reply_with(ground, true, SCOPE_SESSION, NULL), 0);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_ALLOW);
}

/* Denied for that, and once is enough: a program that is stopped does not slow down every access.
 */
static void test_somebody_is_expected_in_vain(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  ground->expected = true;
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  ground->now += 3 * SECOND;
  decisions_tick(ground->decisions);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  assert_string_equal(field(last_record(ground), "reason"), "not-interactive");
  assert_int_equal(ground->notices.count, 1);
  assert_int_equal(answer_at_once(ground, "/data/b", WANT_READ), ANSWER_DENY);
  assert_false(decisions_may_allow_hosts(ground->decisions));
}

static void test_nobody_is_there(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  for (int i = 0; i < 3; i++)
    assert_int_equal(answer_at_once(ground, "/data/it's\033[2J", WANT_READ), ANSWER_DENY);
  assert_int_equal(ground->notices.count, 1);
  const char *line = ground->notices.items[0];
  assert_non_null(strstr(line, "/data/it's\\x1b[2J"));
  assert_non_null(strstr(line, "sandbox run --ro $'/data/it\\'s\\033[2J'"));
  assert_non_null(strstr(line, "filesystem: {read: [\"/data/it's"));
  assert_null(strchr(line, '\033'));
  for (int i = 0; i < 100; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    assert_int_equal(answer_at_once(ground, path, WANT_READ), ANSWER_DENY);
  }
  assert_int_equal(ground->notices.count, 20);
  ground->now += 5 * SECOND;
  decisions_tick(ground->decisions);
  assert_int_equal(ground->notices.count, 21);
  assert_string_equal(ground->notices.items[20],
                      "81 more were denied; --report or --json lists them");
  assert_int_equal(decisions_next_tick(ground->decisions), 0);
}

/* The list has an end; what is beyond it is counted all the same. */
static void test_nobody_is_there_for_very_many(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  for (int i = 0; i < 300; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    assert_int_equal(answer_at_once(ground, path, WANT_READ), ANSWER_DENY);
  }
  ground->now += 5 * SECOND;
  decisions_tick(ground->decisions);
  assert_int_equal(ground->notices.count, 21);
  assert_string_equal(ground->notices.items[20],
                      "280 more were denied; --report or --json lists a part of them");
}

static void test_observer_is_nobody(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  ground->person.observes = true;
  decisions_add_supervisor(ground->decisions, &ground->person);
  assert_int_equal(answer_at_once(ground, "/data/a", WANT_READ), ANSWER_DENY);
  decisions_remove_supervisor(ground->decisions, &ground->person);
}

static void test_closed_prompt_denies_once(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  struct supervisor second = {.context = ground};
  decisions_add_supervisor(ground->decisions, &second);
  uint64_t ticket = ask_file(ground, "/data/a", WANT_READ);
  decisions_remove_supervisor(ground->decisions, &ground->person);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_PENDING);
  decisions_remove_supervisor(ground->decisions, &second);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_DENY);
  assert_string_equal(field(last_record(ground), "reason"), "closed");
  decisions_add_supervisor(ground->decisions, &ground->person);
  ask_file(ground, "/data/a", WANT_READ);
}

static void test_waiting_for_somebody(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, true);
  ask_file(ground, "/data/a", WANT_READ);
  assert_int_equal(ground->asked_count, 0);
  decisions_add_supervisor(ground->decisions, &ground->person);
  assert_int_equal(ground->asked_count, 1); /* told about what waits */
  assert_int_equal(reply_with(ground, true, SCOPE_ONCE, NULL), 0);
}

static void test_denials_are_listed(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  answer_at_once(ground, "/data/a", WANT_READ);
  answer_at_once(ground, "/data/a", WANT_STAT);
  answer_at_once(ground, "/home/ann/.ssh/id_rsa", WANT_READ);
  for (int i = 0; i < 1000; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    answer_at_once(ground, path, WANT_READ);
  }
  json_t *list = decisions_denials_json(ground->decisions);
  assert_int_equal(json_array_size(list), 256);
  const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
  assert_string_equal(field(first, "path"), "/data/a");
  assert_string_equal(field(first, "flag"), "--ro /data/a");
  assert_int_equal(json_integer_value(json_object_get(first, "count")), 2);
  assert_string_equal(field(second, "reason"), "hidden");
  assert_null(field(second, "flag"));
  json_decref(list);
}

/* ---- floods ---- */

static void test_flood(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  size_t pending = 0;
  for (int i = 0; i < 1000; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    pending += answer_at_once(ground, path, WANT_READ) == ANSWER_PENDING;
    ground->now += SECOND / 1000;
  }
  assert_in_range(pending, 8, 64);
  assert_int_equal(ground->asked_count, pending);
  assert_int_equal(decisions_counts(ground->decisions).flooded, 1000 - pending);
  assert_true(json_array_size(ground->records) < 300);
  ground->now += 5 * SECOND;
  decisions_tick(ground->decisions);
  bool counted = false;
  for (size_t i = 0; i < json_array_size(ground->records); i++) {
    const json_t *line = json_array_get(ground->records, i);
    counted |= json_integer_value(json_object_get(line, "not_asked")) == (int)(1000 - pending);
  }
  assert_true(counted);
  assert_int_equal(ground->notices.count, 1);
}

/* One that asks and gives up, again and again, wears a person out just as well. */
static void test_flood_of_withdrawn_questions(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  for (int i = 0; i < 1000; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    struct access_request request = file(path, WANT_READ);
    uint64_t ticket;
    if (ask_for(ground, &request, &ticket, NULL) == ANSWER_PENDING)
      decisions_withdraw(ground->decisions, ticket);
  }
  assert_in_range(ground->asked_count, 8, 64);
}

static void test_answers_keep_the_questions_coming(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay_with_person(NULL);
  for (int i = 0; i < 100; i++) {
    char path[32];
    snprintf(path, sizeof path, "/data/%d", i);
    ask_file(ground, path, WANT_READ);
    assert_int_equal(reply_with(ground, i % 2, SCOPE_ONCE, NULL), 0);
  }
  assert_int_equal(ground->asked_count, 100);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_identical_requests_join),
    cmocka_unit_test(test_different_objects_do_not_join),
    cmocka_unit_test(test_sockets),
    cmocka_unit_test(test_sockets_that_can_be_moved),
    cmocka_unit_test(test_sockets_of_a_folder),
    cmocka_unit_test(test_withdrawing),
    cmocka_unit_test(test_network),
    cmocka_unit_test(test_timeout_denies_once),
    cmocka_unit_test(test_somebody_is_expected_and_comes),
    cmocka_unit_test(test_somebody_is_expected_in_vain),
    cmocka_unit_test(test_nobody_is_there),
    cmocka_unit_test(test_nobody_is_there_for_very_many),
    cmocka_unit_test(test_observer_is_nobody),
    cmocka_unit_test(test_closed_prompt_denies_once),
    cmocka_unit_test(test_waiting_for_somebody),
    cmocka_unit_test(test_denials_are_listed),
    cmocka_unit_test(test_flood),
    cmocka_unit_test(test_flood_of_withdrawn_questions),
    cmocka_unit_test(test_answers_keep_the_questions_coming),
};

UNIT_MAIN(tests)
