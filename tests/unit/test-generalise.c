/* What is proposed from what was read: never too much, never a secret in silence. */
#include "unit.h"

#include <stdbool.h>
#include <stdio.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"
#include "policy/generalise.h"
#include "policy/load.h"

static char *variables[] = {NULL};
static const struct policy_context context = {.home = "/home/ann",
                                              .project = "/home/ann/p",
                                              .config_home = "/home/ann/.config",
                                              .state_home = "/home/ann/.local/state",
                                              .org_folder = "/nonexistent",
                                              .environment = variables};

/* Paths ending in / were listed. The proposal in one line: "PATH", "PATH/" for a folder. */
static char *propose(const char *paths, struct proposal *proposal) {
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  _cleanup_free_ char *copy = xstrdup(paths);
  struct observed observed[64];
  size_t count = 0;
  for (char *rest = copy, *path; (path = strsep(&rest, " "));) {
    size_t length = strlen(path);
    bool folder = path[length - 1] == '/';
    if (folder && length > 1)
      path[length - 1] = '\0';
    observed[count++] = (struct observed){.path = path, .folder = folder};
  }
  policy_generalise(policy, &context, observed, count, proposal);
  struct text text = {0};
  text_append(&text, "");
  for (size_t i = 0; i < proposal->count; i++)
    text_appendf(&text, "%s%s%s%s", i ? " " : "", proposal->items[i].path,
                 proposal->items[i].folder ? "/" : "", proposal->items[i].secret ? "!" : "");
  STRV_FOREACH (folder, &proposal->too_broad)
    text_appendf(&text, "%s-%s", text.length ? " " : "", *folder);
  return text_steal(&text);
}

static const struct {
  const char *read, *proposed;
} cases[] = {
    {"/opt/sdk/a", "/opt/sdk/a"},
    {"/opt/sdk/a /opt/sdk/b", "/opt/sdk/a /opt/sdk/b"},
    {"/opt/sdk/a /opt/sdk/b /opt/sdk/c", "/opt/sdk/"},
    {"/opt/sdk/a /opt/sdk/a /opt/sdk/a", "/opt/sdk/a"}, /* the same one */
    /* Folders of folders. */
    {"/opt/sdk/bin/a /opt/sdk/bin/b /opt/sdk/bin/c /opt/sdk/lib/x", "/opt/sdk/bin/ /opt/sdk/lib/x"},
    {"/opt/sdk/a/1 /opt/sdk/a/2 /opt/sdk/a/3 /opt/sdk/b/1 /opt/sdk/b/2 /opt/sdk/b/3 /opt/sdk/c",
     "/opt/sdk/"},
    /* Names that only look alike. */
    {"/opt/sdk/a /opt/sdk/b /opt/sdk-evil/c", "/opt/sdk/a /opt/sdk/b /opt/sdk-evil/c"},
    {"/opt/sdk/a /opt/sdk/b /opt/sdk-x /opt/sdk/c", "/opt/sdk/ /opt/sdk-x"},
    /* Listed: needed as a whole, with what is below. */
    {"/opt/sdk/", "/opt/sdk/"},
    {"/opt/sdk/ /opt/sdk/a/b", "/opt/sdk/"},
    /* Too much, whatever was read below. */
    {"/", "-/"},
    {"/a /b /c /d", "/a /b /c /d"},
    {"/opt/a /opt/b /opt/c", "/opt/a /opt/b /opt/c"},
    {"/opt/", "-/opt"},
    {"/home/ann/a /home/ann/b /home/ann/c", "/home/ann/a /home/ann/b /home/ann/c"},
    {"/home/ann/", "-/home/ann"},
    {"/home/ /home/bob/", "-/home -/home/bob"},
    {"/home/bob/a /home/bob/b /home/bob/c", "/home/bob/a /home/bob/b /home/bob/c"},
    {"/home/ann/.config/a /home/ann/.config/b /home/ann/.config/c",
     "/home/ann/.config/a /home/ann/.config/b /home/ann/.config/c"},
    {"/home/ann/Documents/a /home/ann/Documents/b /home/ann/Documents/c /home/ann/Documents/",
     "/home/ann/Documents/a /home/ann/Documents/b /home/ann/Documents/c -/home/ann/Documents"},
    {"/home/ann/.config/tool/a /home/ann/.config/tool/b /home/ann/.config/tool/c",
     "/home/ann/.config/tool/"},
    {"/var/lib/a /var/lib/b /var/lib/c", "/var/lib/a /var/lib/b /var/lib/c"},
    /* A folder that holds a secret is not made the folder, and said if it was listed. */
    {"/home/ann/.cargo/a /home/ann/.cargo/b /home/ann/.cargo/c",
     "/home/ann/.cargo/a /home/ann/.cargo/b /home/ann/.cargo/c"},
    {"/home/ann/.cargo/", "/home/ann/.cargo/!"},
};

static void test_proposals(void **state) {
  (void)state;
  for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
    _cleanup_proposal_ struct proposal proposal = {0};
    _cleanup_free_ char *got = propose(cases[i].read, &proposal);
    if (strcmp(got, cases[i].proposed) != 0)
      fail_msg("%s: %s, not %s", cases[i].read, got, cases[i].proposed);
  }
}

/* Whatever is proposed covers everything that was read and nothing too broad. */
static void test_random_trees_are_covered(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  static const char *const roots[] = {"/opt", "/home/ann", "/home/ann/.config", "/srv/x",
                                      "/home/bob"};
  enum { PATHS = 200 };
  unsigned seed = 12345;
  for (int round = 0; round < 50; round++) {
    struct observed observed[PATHS];
    char *paths[PATHS];
    for (int i = 0; i < PATHS; i++) {
      seed = seed * 1103515245 + 12345;
      unsigned number = seed >> 8;
      paths[i] = xasprintf("%s/d%u/e%u/f%u", roots[number % 5], number / 5 % 4, number / 20 % 4,
                           number / 80 % 5);
      observed[i] = (struct observed){.path = paths[i]};
    }
    _cleanup_proposal_ struct proposal proposal = {0};
    policy_generalise(policy, &context, observed, PATHS, &proposal);
    for (int i = 0; i < PATHS; i++) {
      size_t covering = 0;
      for (size_t j = 0; j < proposal.count; j++) {
        size_t length = strlen(proposal.items[j].path);
        bool same = strncmp(paths[i], proposal.items[j].path, length) == 0;
        covering += same && (paths[i][length] == '\0' ||
                             (proposal.items[j].folder && paths[i][length] == '/'));
      }
      assert_int_equal(covering, 1);
    }
    for (int i = 0; i < PATHS; i++)
      free(paths[i]);
  }
}

/* What is printed loads, and means what was read. */
static void test_the_file_loads(void **state) {
  (void)state;
  static const char *const paths[] = {"/opt/sdk/a",     "/opt/sdk/b",     "/opt/sdk/c",
                                      "/home/ann/x: y", "/srv/[glob]*",   "/home/ann/~tilde",
                                      "/srv/new\nline", "/srv/\xff\\xff", "/home/ann/sub/~x"};
  struct observed observed[ARRAY_SIZE(paths)];
  for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
    observed[i] = (struct observed){.path = paths[i]};
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  _cleanup_proposal_ struct proposal proposal = {0};
  _cleanup_strv_ struct strv remarks = {0};
  strv_add(&remarks, "secret\nfilesystem: {write: [/]}");
  policy_generalise(policy, &context, observed, ARRAY_SIZE(paths), &proposal);
  _cleanup_free_ char *text =
      proposal_to_yaml(&proposal, &context, "learned from: x\nfilesystem: {write: [/]}", &remarks);
  _cleanup_error_ struct sb_error error = {0};
  const struct policy_source source = {
      .file = "learned", .store = STORE_USER, .data = text, .length = strlen(text)};
  policy->mode = MODE_DYNAMIC;
  if (policy_apply(policy, &context, &source, &error) < 0)
    fail_msg("%s\n%s", error.message, text);
  for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
    if (policy_decide(policy, paths[i], ACCESS_READ).verdict != VERDICT_ALLOW)
      fail_msg("%s\n%s", paths[i], text);
  assert_int_equal(policy_decide(policy, "/opt/other", ACCESS_WRITE).verdict, VERDICT_DENY);
  assert_int_equal(policy_decide(policy, "/srv/gx", ACCESS_READ).verdict, VERDICT_ASK);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_proposals),
    cmocka_unit_test(test_random_trees_are_covered),
    cmocka_unit_test(test_the_file_loads),
};

UNIT_MAIN(tests)
