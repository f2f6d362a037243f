/* Grants that are kept: the file's text, merging, precedence, concurrent writers, hostile content.
 */
#include "unit.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/text.h"
#include "policy/grants.h"
#include "policy/yaml.h"

struct world {
  char *root, *home, *project, *config, *state, *org, *tree;
  struct policy_context context;
};

static char *variables[] = {"USER=ann", NULL};

static int set_up(void **state) {
  struct world *world = xcalloc(1, sizeof *world);
  char template[] = "/tmp/sandbox-test-XXXXXX";
  world->root = realpath(mkdtemp(template), NULL);
  world->home = xasprintf("%s/home", world->root);
  world->project = xasprintf("%s/home/my project", world->root);
  world->config = xasprintf("%s/home/.config", world->root);
  world->state = xasprintf("%s/home/.local/state", world->root);
  world->org = xasprintf("%s/org", world->root);
  world->tree = xasprintf("%s/sdk", world->root);
  assert_int_equal(file_make_folders(world->project, 0755), 0);
  assert_int_equal(file_make_folders(world->tree, 0755), 0);
  world->context = (struct policy_context){.home = world->home,
                                           .project = world->project,
                                           .config_home = world->config,
                                           .state_home = world->state,
                                           .org_folder = world->org,
                                           .environment = variables};
  *state = world;
  return 0;
}

static int tear_down(void **state) {
  struct world *world = *state;
  _cleanup_free_ char *command = xasprintf("rm -rf '%s'", world->root);
  assert_int_equal(system(command), 0);
  char *const texts[] = {world->root,  world->home, world->project, world->config,
                         world->state, world->org,  world->tree};
  for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
    free(texts[i]);
  free(world);
  return 0;
}

static void add(const struct world *world, enum grant_scope scope, const struct grant *grant) {
  _cleanup_error_ struct sb_error error = {0};
  if (grants_add(&world->context, scope, grant, &error) < 0)
    fail_msg("%s", error.message);
}

static struct policy *load(const struct world *world) {
  _cleanup_error_ struct sb_error error = {0};
  struct policy *policy = NULL;
  if (policy_load(&world->context, &policy, &error) < 0)
    fail_msg("%s", error.message);
  return policy;
}

static struct grant read_grant(const struct world *world) {
  return (struct grant){.allow = true, .path = world->tree, .why = "gcc asked for it"};
}

static enum verdict verdict_of(const struct policy *policy, const char *path, enum access access) {
  return policy_decide(policy, path, access).verdict;
}

/* ---- as policy ---- */

static const enum grant_scope kept[] = {SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG};

static void test_a_grant_is_a_rule_of_its_store(void **state) {
  const struct world *world = *state;
  static const enum policy_store stores[] = {STORE_PROJECT, STORE_USER, STORE_ORG};
  for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
    size_t removed;
    _cleanup_error_ struct sb_error error = {0};
    struct grant grant = read_grant(world);
    add(world, kept[i], &grant);
    _cleanup_policy_ struct policy *policy = load(world);
    policy->mode = MODE_DYNAMIC;
    struct decision decision = policy_decide(policy, world->tree, ACCESS_READ);
    assert_int_equal(decision.verdict, VERDICT_ALLOW);
    assert_int_equal(decision.rule->origin.store, stores[i]);
    assert_non_null(strstr(decision.rule->origin.file, "grants.yaml"));
    assert_true(decision.rule->origin.line > 1);
    assert_non_null(strstr(decision.rule->why, "approved by ann, 2"));
    assert_non_null(strstr(decision.rule->why, "gcc asked for it"));
    assert_int_not_equal(verdict_of(policy, world->tree, ACCESS_WRITE), VERDICT_ALLOW);
    assert_int_equal(grants_remove(&world->context, kept[i], world->tree, &removed, &error), 0);
    assert_int_equal(removed, 1);
    _cleanup_policy_ struct policy *after = load(world);
    after->mode = MODE_DYNAMIC;
    assert_int_equal(verdict_of(after, world->tree, ACCESS_READ), VERDICT_ASK);
  }
}

static void test_writes_and_denials(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  grant.writable = true;
  add(world, SCOPE_USER, &grant);
  _cleanup_policy_ struct policy *writable = load(world);
  assert_int_equal(verdict_of(writable, world->tree, ACCESS_WRITE), VERDICT_ALLOW);
  grant.allow = grant.writable = false; /* replaces it: same path */
  add(world, SCOPE_USER, &grant);
  _cleanup_policy_ struct policy *denied = load(world);
  assert_int_equal(verdict_of(denied, world->tree, ACCESS_READ), VERDICT_HIDE);
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(grants_load(&world->context, SCOPE_USER, &list, &error), 0);
  assert_int_equal(list.count, 1);
}

static void test_names(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  grant.names = true;
  add(world, SCOPE_USER, &grant);
  _cleanup_policy_ struct policy *policy = load(world);
  policy->mode = MODE_DYNAMIC;
  assert_int_equal(verdict_of(policy, world->tree, ACCESS_READ), VERDICT_ASK);
  const struct rule *rule = policy_find_list(policy, world->tree);
  assert_true(rule && rule->granted && rule->origin.store == STORE_USER);
  _cleanup_free_ char *below = xasprintf("%s/file", world->tree);
  assert_null(policy_find_list(policy, below));
  _cleanup_free_ char *said = grant_describe(&grant);
  assert_non_null(strstr(said, "allow list "));
  assert_non_null(strstr(said, "(its names, nothing else)"));
  /* What allows more takes its place. */
  grant.names = false;
  add(world, SCOPE_USER, &grant);
  _cleanup_policy_ struct policy *after = load(world);
  after->mode = MODE_DYNAMIC;
  assert_null(policy_find_list(after, world->tree));
  assert_int_equal(verdict_of(after, world->tree, ACCESS_READ), VERDICT_ALLOW);
}

static void test_hosts(void **state) {
  const struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  add(world, SCOPE_USER,
      &(struct grant){.subject = SUBJECT_NETWORK, .allow = true, .host = "a.example", .port = 443});
  add(world, SCOPE_USER, &(struct grant){.subject = SUBJECT_NETWORK, .host = "b.example"});
  add(world, SCOPE_USER,
      &(struct grant){.subject = SUBJECT_NETWORK, .allow = true, .host = "::1", .port = 80});
  _cleanup_policy_ struct policy *policy = load(world);
  assert_true(strv_contains(&policy->network.allow, "a.example:443"));
  assert_true(strv_contains(&policy->network.allow, "[::1]:80"));
  assert_true(strv_contains(&policy->network.deny, "b.example"));
  size_t removed;
  assert_int_equal(grants_remove(&world->context, SCOPE_USER, "a.example:443", &removed, &error),
                   0);
  assert_int_equal(removed, 1);
}

/* A path that is a literal name, whatever characters it has. */
static void test_any_name_round_trips(void **state) {
  const struct world *world = *state;
  static const char *const names[] = {
      "/a b",      "/a'b\"c",       "/tab\tnewline\n- decision: allow",
      "/glob*[x]", "/$HOME",        "/~",
      "/\xff\xfe", "/\xe2\x80\xae", "/# no comment",
      "/a: b"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++)
    add(world, SCOPE_PROJECT,
        &(struct grant){.allow = true, .path = (char *)names[i], .why = (char *)names[i]});
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_error_ struct sb_error error = {0};
  if (grants_load(&world->context, SCOPE_PROJECT, &list, &error) < 0)
    fail_msg("%s", error.message);
  assert_int_equal(list.count, ARRAY_SIZE(names));
  for (size_t i = 0; i < ARRAY_SIZE(names); i++)
    assert_string_equal(list.items[i].path, names[i]);
  _cleanup_policy_ struct policy *policy = load(world);
  policy->mode = MODE_DYNAMIC;
  for (size_t i = 0; i < ARRAY_SIZE(names); i++)
    assert_int_equal(verdict_of(policy, names[i], ACCESS_READ), VERDICT_ALLOW);
  assert_int_equal(verdict_of(policy, "/globbed", ACCESS_READ), VERDICT_ASK);
}

/* ---- who may bring approvals ---- */

static void write_text(const char *folder, const char *name, const char *text) {
  _cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
  assert_int_equal(file_make_folders(folder, 0755), 0);
  assert_int_equal(file_replace_at(AT_FDCWD, path, text, strlen(text), 0644), 0);
}

static void test_a_repository_cannot_bring_grants(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *folder = xasprintf("%s/.sandbox", world->project);
  _cleanup_free_ char *text =
      xasprintf("version: 1\nproject: \"%s\"\ngrants:\n  - decision: allow\n    path: \"%s\"\n",
                world->project, world->tree);
  write_text(folder, "grants.yaml", text);
  _cleanup_policy_ struct policy *policy = load(world);
  policy->mode = MODE_DYNAMIC;
  assert_int_equal(verdict_of(policy, world->tree, ACCESS_READ), VERDICT_ASK);
  /* The control: the same text in its place counts. */
  _cleanup_free_ char *file = grants_file(&world->context, SCOPE_PROJECT);
  *strrchr(file, '/') = '\0';
  write_text(file, "grants.yaml", text);
  _cleanup_policy_ struct policy *granted = load(world);
  granted->mode = MODE_DYNAMIC;
  assert_int_equal(verdict_of(granted, world->tree, ACCESS_READ), VERDICT_ALLOW);
}

static void test_nothing_is_written_into_the_project(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  add(world, SCOPE_PROJECT, &grant);
  assert_int_equal(rmdir(world->project), 0); /* it is still empty */
}

static void test_projects_do_not_share(void **state) {
  struct world *world = *state;
  struct grant grant = read_grant(world);
  add(world, SCOPE_PROJECT, &grant);
  _cleanup_free_ char *other = xasprintf("%s/home/other", world->root);
  struct world elsewhere = *world;
  elsewhere.context.project = other;
  _cleanup_policy_ struct policy *policy = load(&elsewhere);
  policy->mode = MODE_DYNAMIC;
  assert_int_equal(verdict_of(policy, world->tree, ACCESS_READ), VERDICT_ASK);
}

/* The approved name leads elsewhere today. */
static void test_a_link_in_its_place_is_not_approved(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *secret = xasprintf("%s/secret", world->root);
  _cleanup_free_ char *inside = xasprintf("%s/inside", world->project);
  assert_int_equal(mkdir(secret, 0755), 0);
  struct grant outside_grant = read_grant(world);
  add(world, SCOPE_USER, &outside_grant);
  add(world, SCOPE_PROJECT, &(struct grant){.allow = true, .path = inside});
  assert_int_equal(rmdir(world->tree), 0);
  assert_int_equal(symlink(secret, world->tree), 0);
  assert_int_equal(symlink(secret, inside), 0);
  _cleanup_policy_ struct policy *policy = load(world);
  policy->mode = MODE_DYNAMIC;
  assert_int_equal(verdict_of(policy, secret, ACCESS_READ), VERDICT_ASK);
  assert_int_equal(policy->ignored.count, 2);
}

static void test_org_needs_permission(void **state) {
  struct world *world = *state;
  world->context.org_folder = "/sys/kernel/sandbox";
  struct grant grant = read_grant(world);
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(grants_add(&world->context, SCOPE_ORG, &grant, &error), -1);
  assert_int_equal(error.code, SB_CODE_DENIED);
  assert_non_null(strstr(error.hint, "administrator"));
}

static void test_short_scopes_are_not_kept(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  static const enum grant_scope scopes[] = {SCOPE_ONCE, SCOPE_SESSION};
  for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
    _cleanup_error_ struct sb_error error = {0};
    assert_int_equal(grants_add(&world->context, scopes[i], &grant, &error), -1);
  }
}

/* ---- files ---- */

static void test_files_are_private(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  for (size_t i = 0; i < ARRAY_SIZE(kept); i++) {
    struct stat status;
    add(world, kept[i], &grant);
    _cleanup_free_ char *file = grants_file(&world->context, kept[i]);
    assert_int_equal(stat(file, &status), 0);
    assert_int_equal(status.st_mode & 0777, kept[i] == SCOPE_ORG ? 0644 : 0600);
  }
}

static const struct {
  const char *text, *message;
} wrong[] = {
    {"grants: []\n", ":1:1: the version is missing"},
    {"version: 2\ngrants: []\n", "the version is missing or not 1"},
    {"version: 1\nfilesystem: {read: [/]}\n", ":2:1: unknown key 'filesystem'"},
    {"version: 1\ngrants: {}\n", "grants must be a list"},
    {"version: 1\ngrants: [x]\n", ":2:10: a grant must be a mapping"},
    {"version: 1\ngrants:\n  - {decision: allow}\n", ":3:5: the grant has neither"},
    {"version: 1\ngrants:\n  - {path: /x}\n", "no decision"},
    {"version: 1\ngrants:\n  - {decision: maybe, path: /x}\n", "allow or deny, not 'maybe'"},
    {"version: 1\ngrants:\n  - {decision: allow, path: x}\n", "absolute path"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /a/../b}\n", "absolute path"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /x, host: y}\n", "one path or one host"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /x, path: /y}\n", "twice"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /x, acess: read}\n", "unknown key 'acess'"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /x, access: all}\n",
     "read, write or list, not 'all'"},
    {"version: 1\ngrants:\n  - {decision: deny, path: /x, access: list}\n", "or not at all"},
    {"version: 1\ngrants:\n  - {decision: allow, host: a, access: list}\n", "a host has no access"},
    {"version: 1\ngrants:\n  - {decision: allow, path: /x, port: 1}\n", "a path has no port"},
    {"version: 1\ngrants:\n  - {decision: allow, host: a, port: 0}\n", "1 to 65535"},
    {"version: 1\ngrants:\n  - {decision: allow, host: a, port: 65536}\n", "1 to 65535"},
    {"version: 1\ngrants:\n  - {decision: allow, path_b64: \"!\"}\n", "Base64"},
    {"version: 1\ngrants:\n  - {decision: allow, path: [/x]}\n", "key: text"},
    {"version: 1\ngrants:\n  - &a {decision: allow, path: /x}\n  - *a\n", "anchors"},
    {"", "empty"},
};

static void test_wrong_files_are_errors(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", world->config);
  for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
    _cleanup_error_ struct sb_error error = {0}, adding = {0};
    struct policy *policy = NULL;
    write_text(folder, "grants.yaml", wrong[i].text);
    assert_int_equal(policy_load(&world->context, &policy, &error), -1);
    if (!strstr(error.message, wrong[i].message) || !strstr(error.message, "grants.yaml:"))
      fail_msg("%s: %s", wrong[i].text, error.message);
    /* And it is never overwritten. */
    struct grant grant = read_grant(world);
    assert_int_equal(grants_add(&world->context, SCOPE_USER, &grant, &adding), -1);
    _cleanup_free_ char *path = xasprintf("%s/grants.yaml", folder), *data = NULL;
    assert_int_equal(file_read_at(AT_FDCWD, path, 1 << 20, &data, NULL), 0);
    assert_string_equal(data, wrong[i].text);
  }
}

static void test_concurrent_writers_lose_nothing(void **state) {
  const struct world *world = *state;
  enum { WRITERS = 20, EACH = 5 };
  for (int i = 0; i < WRITERS; i++)
    if (fork() == 0) {
      for (int number = 0; number < EACH; number++) {
        _cleanup_free_ char *path = xasprintf("/writer/%d/%d", i, number);
        add(world, SCOPE_USER, &(struct grant){.allow = true, .path = path});
      }
      _exit(0);
    }
  int status, failed = 0;
  for (int i = 0; i < WRITERS; i++)
    if (wait(&status) < 0 || status != 0)
      failed++;
  assert_int_equal(failed, 0);
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(grants_load(&world->context, SCOPE_USER, &list, &error), 0);
  assert_int_equal(list.count, WRITERS * EACH);
  _cleanup_verdict_ struct audit_verdict verdict = {0};
  assert_int_equal(audit_verify(world->state, NULL, &verdict, &error), 0);
  assert_int_equal(verdict.problem_count, 0);
  assert_int_equal(verdict.chain_count, WRITERS * EACH); /* each is in the audit log */
}

/* Killed between the new file and its name: the next writer tidies up. */
static void test_leftovers_of_a_killed_writer_go(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", world->config);
  _cleanup_free_ char *left = xasprintf("%s/grants.yaml.%d.tmp", folder, (int)getpid());
  _cleanup_free_ char *mine = xasprintf("%s/policy.yaml", folder);
  write_text(folder, "policy.yaml", "version: 1\n");
  assert_int_equal(rename(mine, left), 0);
  write_text(folder, "policy.yaml", "version: 1\n");
  struct grant grant = read_grant(world);
  add(world, SCOPE_USER, &grant);
  assert_int_not_equal(access(left, F_OK), 0);
  assert_int_equal(access(mine, F_OK), 0);
}

static void test_what_cannot_be_audited_is_not_kept(void **state) {
  struct world *world = *state;
  struct grant grant = read_grant(world);
  _cleanup_error_ struct sb_error error = {0};
  world->context.state_home = "/proc/none";
  assert_int_equal(grants_add(&world->context, SCOPE_USER, &grant, &error), -1);
  _cleanup_free_ char *file = grants_file(&world->context, SCOPE_USER);
  assert_int_not_equal(access(file, F_OK), 0);
}

/* Another of ours that was stopped in the middle of a change. */
static void test_a_lock_that_is_held_is_told(void **state) {
  const struct world *world = *state;
  struct grant grant = read_grant(world);
  add(world, SCOPE_USER, &grant);
  _cleanup_free_ char *file = xasprintf("%s/sandbox/grants.lock", world->state);
  _cleanup_close_ int lock = open(file, O_RDONLY | O_CLOEXEC);
  assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(grants_add(&world->context, SCOPE_ORG, &grant, &error), -1);
  assert_int_equal(error.code, SB_CODE_CONFLICT);
  assert_non_null(strstr(error.hint, "try again"));
  assert_int_equal(flock(lock, LOCK_UN), 0);
  add(world, SCOPE_ORG, &grant);
}

static void test_no_place_for_a_lock_keeps_nothing(void **state) {
  struct world *world = *state;
  struct grant grant = read_grant(world);
  _cleanup_error_ struct sb_error error = {0};
  world->context.state_home = NULL;
  assert_int_equal(grants_add(&world->context, SCOPE_USER, &grant, &error), -1);
  assert_int_equal(error.code, SB_CODE_NOT_FOUND);
}

static void test_yaml_words_are_quoted(void **state) {
  (void)state;
  static const struct {
    const char *value, *text;
  } cases[] = {
      {"/opt/sdk", "/opt/sdk"},
      {"true", "\"true\""},
      {"12", "\"12\""},
      {"", "\"\""},
      {"a: b", "\"a: b\""},
      {"~/x", "\"~/x\""},
      {"a\"b", "\"a\\\"b\""},
      {"\xc3\xa9", "\"\\xE9\""},
      {"\xf0\x9f\x98\x80", "\"\\U0001F600\""},
  };
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    _cleanup_text_ struct text text = {0};
    assert_true(yaml_append_text(&text, cases[i].value));
    assert_string_equal(text_string(&text), cases[i].text);
  }
  _cleanup_text_ struct text text = {0};
  assert_false(yaml_append_text(&text, "\xff"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    TEST(test_a_grant_is_a_rule_of_its_store),
    TEST(test_writes_and_denials),
    TEST(test_names),
    TEST(test_hosts),
    TEST(test_any_name_round_trips),
    TEST(test_a_repository_cannot_bring_grants),
    TEST(test_nothing_is_written_into_the_project),
    TEST(test_projects_do_not_share),
    TEST(test_a_link_in_its_place_is_not_approved),
    TEST(test_org_needs_permission),
    TEST(test_short_scopes_are_not_kept),
    TEST(test_files_are_private),
    TEST(test_wrong_files_are_errors),
    TEST(test_concurrent_writers_lose_nothing),
    TEST(test_leftovers_of_a_killed_writer_go),
    TEST(test_what_cannot_be_audited_is_not_kept),
    TEST(test_a_lock_that_is_held_is_told),
    TEST(test_no_place_for_a_lock_keeps_nothing),
    TEST(test_yaml_words_are_quoted),
};

UNIT_MAIN(tests)
