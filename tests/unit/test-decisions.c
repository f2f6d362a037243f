/* Decisions: policy, cache, question; joining, scopes, floods, time, folders above, revocation. */
#include "unit.h"

#include <stdio.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/strv.h"
#include "policy/grants.h"
#include "session/ancestors.h"
#include "session/decisions.h"
#include "session/questions.h"

#define SECOND (1000ull * 1000 * 1000)

/* ---- the ground ---- */

static const struct policy_context place = {
    .home = "/home/ann",
    .project = "/home/ann/shop",
    .config_home = "/home/ann/.config",
    .state_home = "/home/ann/.local/state",
    .org_folder = "/etc/sandbox",
    .environment = (char *[]){NULL},
};

/* The control sockets of sessions, and a secret with a second name; see test_hidden_objects. */
static struct strv hidden;

struct ground {
  struct policy *policy;
  struct decisions *decisions;
  struct supervisor person;
  bool person_is_there;
  uint64_t now;
  /* What the services saw. */
  json_t *records;
  bool audit_fails, store_fails;
  struct strv notices, stored, revoked, settled;
  bool granted; /* what the gate says to a revocation */
  /* What the trigger was told. */
  struct answered answers[128]; /* by ticket; the trees are copies */
  size_t answer_count;
  char *asked; /* id of the newest question */
  size_t asked_count;
  size_t records_when_answered;
};

static int record(void *context, const char *event, json_t *fields, struct sb_error *error) {
  struct ground *ground = context;
  if (ground->audit_fails) {
    json_decref(fields);
    return sb_fail(error, SB_CODE_SYSTEM, 28, "writing the audit log");
  }
  json_object_set_new(fields, "event", json_string(event));
  json_array_append_new(ground->records, fields);
  return 0;
}

static int store(void *context, enum grant_scope scope, const struct grant *grant,
                 struct sb_error *error) {
  struct ground *ground = context;
  if (ground->store_fails)
    return sb_fail(error, SB_CODE_DENIED, 13, "writing grants");
  strv_addf(&ground->stored, "%s %s %s%s by %s", scope_name(scope), grant->allow ? "allow" : "deny",
            grant->path ? grant->path : grant->host, grant->writable ? " rw" : "", grant->by);
  return 0;
}

static int unstore(void *context, enum grant_scope scope, const char *name, size_t *ret_removed,
                   struct sb_error *error) {
  (void)error;
  struct ground *ground = context;
  *ret_removed = 0;
  for (size_t i = 0; i < ground->stored.count; i++)
    *ret_removed += strstr(ground->stored.items[i], name) &&
                    strncmp(ground->stored.items[i], scope_name(scope), 4) == 0;
  return 0;
}

static bool take_away(void *context, const char *path) {
  struct ground *ground = context;
  strv_add(&ground->revoked, path);
  return ground->granted;
}

static void notice(void *context, const char *sentence) {
  strv_add(&((struct ground *)context)->notices, sentence);
}

static uint64_t clock_now(void *context) {
  return ((struct ground *)context)->now;
}

static void on_asked(void *context, const struct question *question) {
  struct ground *ground = context;
  free(ground->asked);
  ground->asked = xstrdup(question->id);
  ground->asked_count++;
}

static void on_settled(void *context, const struct question *question, const char *how,
                       const char *by) {
  (void)question, (void)by;
  strv_add(&((struct ground *)context)->settled, how);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answer) {
  struct ground *ground = context;
  assert_true(ticket < 128);
  assert_int_equal(ground->answers[ticket].answer, ANSWER_PENDING);
  ground->answers[ticket] = *answer;
  ground->answers[ticket].tree = answer->tree ? xstrdup(answer->tree) : NULL;
  ground->answer_count++;
  ground->records_when_answered = json_array_size(ground->records);
}

static bool learning; /* for the next ground */

static struct ground *lay(const char *yaml, bool waits) {
  struct ground *ground = xcalloc(1, sizeof *ground);
  _cleanup_error_ struct sb_error error = {0};
  ground->policy = policy_new(&place);
  if (yaml) {
    char name[] = "/tmp/test-decisions-XXXXXX";
    int fd = mkstemp(name);
    assert_true(fd >= 0 && write(fd, yaml, strlen(yaml)) == (ssize_t)strlen(yaml));
    close(fd);
    if (policy_load_file(&place, name, STORE_USER, ground->policy, &error) < 0)
      fail_msg("%s", error.message);
    unlink(name);
  }
  ground->policy->mode = MODE_DYNAMIC;
  ground->policy->prompt_timeout_seconds = 60;
  ground->records = json_array();
  ground->now = 1000 * SECOND;
  struct decisions_config config = {
      .policy = ground->policy,
      .context = &place,
      .hidden = &hidden,
      .session_id = "abcdefgh",
      .waits = waits,
      .learns = learning,
      .services = {record, store, unstore, take_away, notice, clock_now, ground},
  };
  ground->decisions = decisions_new(&config);
  ground->person = (struct supervisor){.asked = on_asked, .settled = on_settled, .context = ground};
  return ground;
}

static struct ground *lay_with_person(const char *yaml) {
  struct ground *ground = lay(yaml, false);
  decisions_add_supervisor(ground->decisions, &ground->person);
  ground->person_is_there = true;
  return ground;
}

static void leave(struct ground *ground) {
  decisions_free(ground->decisions);
  policy_free(ground->policy);
  json_decref(ground->records);
  strv_clear(&ground->notices);
  strv_clear(&ground->stored);
  strv_clear(&ground->revoked);
  strv_clear(&ground->settled);
  for (size_t i = 0; i < 128; i++)
    free((char *)ground->answers[i].tree);
  free(ground->asked);
  free(ground);
}

static void cleanup_ground(struct ground **ground) {
  leave(*ground);
}
#define _ground_ __attribute__((cleanup(cleanup_ground)))

static struct access_request file(const char *path, enum want want) {
  uint64_t inode = 5381;
  for (const char *at = path; *at; at++)
    inode = inode * 33 + (unsigned char)*at;
  return (struct access_request){.subject = SUBJECT_FILE,
                                 .want = want,
                                 .path = path,
                                 .device = 1,
                                 .inode = inode,
                                 .pid = getpid()};
}

/* Asks; the answer at once, or PENDING with the ticket. */
static enum answer ask_for(struct ground *ground, const struct access_request *request,
                           uint64_t *ret_ticket, struct answered *ret_answer) {
  struct answered answer;
  *ret_ticket = decisions_ask(ground->decisions, request, on_answer, ground, &answer);
  assert_true((*ret_ticket > 0) == (answer.answer == ANSWER_PENDING));
  if (ret_answer)
    *ret_answer = answer;
  return answer.answer;
}

static uint64_t ask_file(struct ground *ground, const char *path, enum want want) {
  struct access_request request = file(path, want);
  uint64_t ticket;
  assert_int_equal(ask_for(ground, &request, &ticket, NULL), ANSWER_PENDING);
  return ticket;
}

static enum answer answer_at_once(struct ground *ground, const char *path, enum want want) {
  struct access_request request = file(path, want);
  uint64_t ticket;
  return ask_for(ground, &request, &ticket, NULL);
}

static int reply_with(struct ground *ground, bool allow, enum grant_scope scope, const char *tree) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *id = xstrdup(ground->asked);
  struct reply reply = {.allow = allow, .scope = scope, .tree = tree, .by = "ann"};
  return decisions_answer(ground->decisions, id, &reply, &error);
}

static const json_t *last_record(const struct ground *ground) {
  return json_array_get(ground->records, json_array_size(ground->records) - 1);
}

static const char *field(const json_t *object, const char *key) {
  return json_string_value(json_object_get(object, key));
}

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

/* ---- answers ---- */

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

/* ---- time, floods, nobody ---- */

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

static void test_nobody_is_there(void **state) {
  (void)state;
  _ground_ struct ground *ground = lay(NULL, false);
  for (int i = 0; i < 3; i++)
    assert_int_equal(answer_at_once(ground, "/data/it's\033[2J", WANT_READ), ANSWER_DENY);
  assert_int_equal(ground->notices.count, 1);
  const char *line = ground->notices.items[0];
  assert_non_null(strstr(line, "/data/it's\\x1b[2J"));
  assert_non_null(strstr(line, "sandbox run --ro $'/data/it\\'s\\033[2J'"));
  assert_non_null(strstr(line, "filesystem: {read: ['/data/it''s"));
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
  assert_int_equal(decisions_next_tick(ground->decisions), 0);
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

/* ---- the network ---- */

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
      {"/home/ann/.local/share/nvim/x/y", "/home/ann/.local/share/nvim"},
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_learning_asks_nobody),
    cmocka_unit_test(test_policy_comes_first),
    cmocka_unit_test(test_explicit_deny_never_asks),
    cmocka_unit_test(test_writes),
    cmocka_unit_test(test_secrets_ask_only_if_told),
    cmocka_unit_test(test_folder_does_not_open_its_secrets),
    cmocka_unit_test(test_hidden_objects),
    cmocka_unit_test(test_identical_requests_join),
    cmocka_unit_test(test_different_objects_do_not_join),
    cmocka_unit_test(test_sockets),
    cmocka_unit_test(test_withdrawing),
    cmocka_unit_test(test_scopes),
    cmocka_unit_test(test_deepest_approval_wins),
    cmocka_unit_test(test_tree_settles_what_waits_below),
    cmocka_unit_test(test_trees_that_may_not_be),
    cmocka_unit_test(test_home_itself_only_once),
    cmocka_unit_test(test_store_failure_changes_nothing),
    cmocka_unit_test(test_saving),
    cmocka_unit_test(test_first_answer_wins),
    cmocka_unit_test(test_deny_the_rest),
    cmocka_unit_test(test_timeout_denies_once),
    cmocka_unit_test(test_nobody_is_there),
    cmocka_unit_test(test_observer_is_nobody),
    cmocka_unit_test(test_closed_prompt_denies_once),
    cmocka_unit_test(test_waiting_for_somebody),
    cmocka_unit_test(test_flood),
    cmocka_unit_test(test_flood_of_withdrawn_questions),
    cmocka_unit_test(test_answers_keep_the_questions_coming),
    cmocka_unit_test(test_audited_before_it_takes_effect),
    cmocka_unit_test(test_full_disk_denies),
    cmocka_unit_test(test_revoking),
    cmocka_unit_test(test_network),
    cmocka_unit_test(test_proposals),
    cmocka_unit_test(test_proposal_avoids_stores),
    cmocka_unit_test(test_denials_are_listed),
};

UNIT_MAIN(tests)
