/* Which names have to be kept in a running session, and which new ones are hidden. */
#include "unit.h"

#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "plan/kept.h"

struct world {
  char *root, *home, *project;
  struct host_context host;
  struct policy *policy;
  struct plan plan;
  struct kept_request request;
};

static void make(const char *folder, const char *name, bool is_folder) {
  _cleanup_free_ char *path = path_join(folder, name);
  if (is_folder) {
    assert_int_equal(file_make_folders(path, 0755), 0);
    return;
  }
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fclose(file);
}

static int set_up(void **state) {
  struct world *world = xcalloc(1, sizeof *world);
  char template[] = "/var/tmp/sandbox-test-XXXXXX";
  static char *variables[] = {"USER=ann", NULL};
  world->root = realpath(mkdtemp(template), NULL);
  world->home = path_join(world->root, "home");
  world->project = path_join(world->home, "project");
  make(world->project, ".git/hooks", true);
  make(world->project, "sub/deep", true);
  make(world->project, "node_modules/package", true);
  make(world->project, ".git/config", false);
  world->host = (struct host_context){
      .policy = {.home = world->home,
                 .project = world->project,
                 .org_folder = "/nonexistent",
                 .environment = variables},
      .cwd = world->project,
      .home = world->home,
      .project = world->project,
  };
  world->policy = policy_new(&world->host.policy);
  world->policy->mode = MODE_STATIC;
  world->request =
      (struct kept_request){.plan = &world->plan, .policy = world->policy, .host = &world->host};
  *state = world;
  return 0;
}

static int tear_down(void **state) {
  struct world *world = *state;
  _cleanup_free_ char *command = xasprintf("rm -rf '%s'", world->root);
  assert_int_equal(system(command), 0);
  plan_clear(&world->plan);
  policy_free(world->policy);
  free(world->root);
  free(world->home);
  free(world->project);
  free(world);
  return 0;
}

static void add(struct world *world, enum operation_kind kind, const char *name) {
  _cleanup_free_ char *path = path_join(world->project, name);
  plan_add(&world->plan, kind, path, NULL, "test");
}

static const struct kept_name *find(const struct world *world, const struct kept_list *list,
                                    const char *name) {
  _cleanup_free_ char *path = path_join(world->project, name);
  for (size_t i = 0; i < list->name_count; i++) {
    if (strcmp(list->names[i].path, path) == 0)
      return &list->names[i];
  }
  return NULL;
}

static void plan_static(struct world *world) {
  plan_add(&world->plan, OPERATION_ROOT, "/", NULL, "test");
  plan_add(&world->plan, OPERATION_PRIVATE, "/tmp", "tmp", "test");
  plan_add(&world->plan, OPERATION_PROC, "/proc", NULL, "test");
  add(world, OPERATION_WRITABLE, ".");
}

static void test_what_is_shown(void **state) {
  struct world *world = *state;
  plan_static(world);
  assert_true(kept_is_shown(&world->request, "/etc/shadow"));
  assert_true(kept_is_shown(&world->request, world->project));
  assert_false(kept_is_shown(&world->request, "/tmp/x"));
  assert_false(kept_is_shown(&world->request, "/proc/kcore"));
  assert_true(kept_is_shown(&world->request, "/tmpfoo"));
}

static void test_behind_a_gate_only_places_are_shown(void **state) {
  struct world *world = *state;
  plan_add(&world->plan, OPERATION_GATE, "/", NULL, "test");
  add(world, OPERATION_WRITABLE, ".");
  assert_false(kept_is_shown(&world->request, world->home));
  assert_true(kept_is_shown(&world->request, world->project));
  _cleanup_strv_ struct strv granted = {0};
  strv_add(&granted, world->home);
  world->request.granted = &granted;
  assert_true(kept_is_shown(&world->request, world->home));
  assert_false(kept_is_shown(&world->request, "/etc/shadow"));
}

static void test_names_of_the_plan(void **state) {
  struct world *world = *state;
  struct kept_list list;
  plan_static(world);
  add(world, OPERATION_PLACEHOLDER_FOLDER, ".mcp.json");
  add(world, OPERATION_PIN, ".git");
  add(world, OPERATION_PROTECT, ".git/hooks");
  add(world, OPERATION_PROTECT, ".git/config");
  add(world, OPERATION_PROTECT, ".mcp.json");
  add(world, OPERATION_PROTECT, ".gitmodules");
  add(world, OPERATION_MASK, "sub/.env");
  plan_add(&world->plan, OPERATION_SEAL, "/proc/sys", NULL, "test");
  plan_add(&world->plan, OPERATION_MASK, "/proc/kcore", NULL, "test");
  kept_list_fill(&world->request, &list);
  assert_int_equal(find(world, &list, ".git")->kind, KEPT_PIN);
  const struct kept_name *hooks = find(world, &list, ".git/hooks");
  assert_int_equal(hooks->kind, KEPT_SEAL);
  assert_true(hooks->held && hooks->folder);
  const struct kept_name *config = find(world, &list, ".git/config");
  assert_true(config->held && !config->folder); /* an editor finds a file again */
  assert_true(find(world, &list, ".mcp.json")->folder);
  assert_false(find(world, &list, ".gitmodules")->held); /* creating it does no harm */
  assert_int_equal(find(world, &list, "sub/.env")->kind, KEPT_MASK);
  for (size_t i = 0; i < list.name_count; i++)
    assert_false(path_is_under(list.names[i].path, "/proc"));
  kept_list_clear(&list);
}

static void test_secrets_that_do_not_exist(void **state) {
  struct world *world = *state;
  struct kept_list list;
  plan_static(world);
  _cleanup_free_ char *ssh = path_join(world->home, ".ssh");
  plan_add(&world->plan, OPERATION_MASK, ssh, NULL, "test");
  kept_list_fill(&world->request, &list);
  assert_int_equal(find(world, &list, "../.netrc")->kind, KEPT_MASK);
  assert_false(find(world, &list, "../.netrc")->held);
  size_t count = 0;
  for (size_t i = 0; i < list.name_count; i++)
    count += strcmp(list.names[i].path, ssh) == 0;
  assert_int_equal(count, 1);
  kept_list_clear(&list);
}

static bool hides(const struct world *world, const struct kept_list *list, const char *name,
                  bool folder) {
  _cleanup_free_ char *path = path_join(world->project, name);
  return kept_hides(&world->request, list, path, folder);
}

static void test_new_names(void **state) {
  struct world *world = *state;
  struct kept_list list;
  plan_static(world);
  kept_list_fill(&world->request, &list);
  assert_true(hides(world, &list, ".env", false));
  assert_true(hides(world, &list, "sub/deep/x.env", false));
  assert_false(hides(world, &list, ".env.example", false));
  assert_false(hides(world, &list, "README.md", false));
  assert_false(hides(world, &list, ".env", true)); /* a virtual environment */
  assert_true(hides(world, &list, "../key.pem", false));
  assert_false(hides(world, &list, "sub/key.pem", false));
  kept_list_clear(&list);
}

static void test_a_rule_takes_a_name_back(void **state) {
  struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  struct kept_list list;
  plan_static(world);
  assert_int_equal(policy_add_flag(world->policy, &world->host.policy, RULE_WRITE, world->project,
                                   "**/.env", "--rw", &error),
                   0);
  kept_list_fill(&world->request, &list);
  assert_false(hides(world, &list, ".env", false));
  assert_true(hides(world, &list, ".env.local", false));
  kept_list_clear(&list);
}

static bool note_folder(void *context, const char *folder) {
  strv_add(context, folder);
  return true;
}

static void ignore_name(void *context, const char *path, bool is_folder) {
  (void)context;
  (void)path;
  (void)is_folder;
}

static void test_folders_to_watch(void **state) {
  struct world *world = *state;
  struct kept_list list;
  _cleanup_strv_ struct strv folders = {0};
  const struct kept_visitor visitor = {note_folder, ignore_name, &folders};
  plan_static(world);
  kept_list_fill(&world->request, &list);
  for (size_t i = 0; i < list.tree_count; i++)
    kept_walk(&list.trees[i], 0, &visitor);
  _cleanup_free_ char *deep = path_join(world->project, "sub/deep");
  _cleanup_free_ char *bulk = path_join(world->project, "node_modules");
  assert_true(strv_contains(&folders, world->project));
  assert_true(strv_contains(&folders, deep));
  assert_true(strv_contains(&folders, world->home)); /* for ~/…pem; nothing below it */
  assert_false(strv_contains(&folders, bulk));
  kept_list_clear(&list);
}

struct met {
  struct strv folders, names;
};

static bool meet_folder(void *context, const char *folder) {
  strv_add(&((struct met *)context)->folders, folder);
  return true;
}

static void meet_name(void *context, const char *path, bool is_folder) {
  (void)is_folder;
  strv_add(&((struct met *)context)->names, path);
}

static bool meets(struct world *world, const struct walked *walked, const char *name) {
  struct kept_list list = {0};
  struct met met = {0};
  const struct kept_visitor visitor = {meet_folder, meet_name, &met};
  _cleanup_free_ char *path = path_join(world->project, name);
  kept_list_fill(&world->request, &list);
  for (size_t i = 0; i < list.tree_count; i++)
    kept_walk_again(&list.trees[i], walked, &visitor);
  bool found = strv_contains(&met.names, path) || strv_contains(&met.folders, path);
  strv_clear(&met.folders);
  strv_clear(&met.names);
  kept_list_clear(&list);
  return found;
}

static void test_only_changed_folders_are_read_again(void **state) {
  struct world *world = *state;
  struct walked_folder folders[] = {{path_join(world->project, "sub"), 0},
                                    {path_join(world->project, "sub/deep"), 0}};
  struct walked walked = {.folders = folders, .count = ARRAY_SIZE(folders)};
  struct stat status;
  for (size_t i = 0; i < walked.count; i++) {
    assert_int_equal(stat(folders[i].path, &status), 0);
    folders[i].inode = status.st_ino;
  }
  plan_static(world);
  make(world->project, "sub/deep/.env", false);
  make(world->project, "sub/new/below", true);
  make(world->project, "sub/new/below/.env", false);
  clock_gettime(CLOCK_REALTIME, &walked.at);
  walked.at.tv_sec += 3600; /* nothing has changed since */
  assert_true(meets(world, &walked, "sub/deep"));
  assert_false(meets(world, &walked, "sub/deep/.env"));
  walked.at.tv_sec -= 7200;
  assert_true(meets(world, &walked, "sub/deep/.env"));
  assert_true(meets(world, &walked, "sub/new/below/.env"));
  walked.at.tv_sec += 7200;
  folders[1].inode++; /* another folder under the same name */
  assert_true(meets(world, &walked, "sub/deep/.env"));
  walked.failed = true;
  assert_true(meets(world, &walked, "sub/new/below/.env"));
  free(folders[0].path);
  free(folders[1].path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(test_what_is_shown, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_behind_a_gate_only_places_are_shown, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_names_of_the_plan, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_secrets_that_do_not_exist, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_new_names, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_a_rule_takes_a_name_back, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_folders_to_watch, set_up, tear_down),
    cmocka_unit_test_setup_teardown(test_only_changed_folders_are_read_again, set_up, tear_down),
};

UNIT_MAIN(tests)
