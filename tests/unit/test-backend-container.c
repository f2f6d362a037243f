/* The words of podman and docker: paths, options, and what of a plan becomes a mount. */
#include "unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/container.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "core/text.h"

/* ---- words ---- */

static void test_windows_paths(void **state) {
  (void)state;
  static const struct {
    const char *host, *inside; /* NULL: has no place in a container */
  } rows[] = {
      {"/home/user/project", "/home/user/project"},
      {"/odd\\name:with/C:", "/odd\\name:with/C:"},
      {"C:\\Users\\name\\project", "/c/Users/name/project"},
      {"c:\\x", "/c/x"},
      {"D:/mixed\\slashes/x", "/d/mixed/slashes/x"},
      {"C:\\", "/c"},
      {"C:", "/c"},
      {"C:\\a\\..\\b\\.\\c\\", "/c/b/c"},
      {"C:\\..\\..\\x", "/x"},
      {"\\\\?\\C:\\long\\path", "/c/long/path"},
      {"\\\\.\\C:\\x", "/c/x"},
      {"C:relative", NULL},
      {"\\\\server\\share\\x", NULL},
      {"\\\\?\\UNC\\server\\share", NULL},
      {"relative\\x", NULL},
      {"1:\\x", NULL},
      {"", NULL},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *path = container_path(rows[i].host);
    if (rows[i].inside)
      assert_string_equal(path, rows[i].inside);
    else
      assert_null(path);
  }
}

static void test_fields(void **state) {
  (void)state;
  static const struct {
    const char *value, *field;
  } rows[] = {
      {"/plain path", "source=/plain path"},   {"/a,b", "\"source=/a,b\""},
      {"/a\"b", "\"source=/a\"\"b\""},         {"/a\nb", "\"source=/a\nb\""},
      {"/a,ro,\"x", "\"source=/a,ro,\"\"x\""},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *field = container_field("source", rows[i].value);
    assert_string_equal(field, rows[i].field);
  }
}

static void test_control_sockets(void **state) {
  (void)state;
  assert_true(container_is_control_socket("/var/run/docker.sock"));
  assert_true(container_is_control_socket("/run/user/1000/podman/podman.sock"));
  assert_true(container_is_control_socket("/anywhere/containerd.sock"));
  assert_false(container_is_control_socket("/run/docker.sock.d/x"));
  assert_false(container_is_control_socket("/run/mydocker.sock"));
  assert_false(container_is_control_socket("/tmp/app.sock"));
}

static void test_plain_values(void **state) {
  (void)state;
  static const char *const plain[] = {"A=b", "URL=http://x:1/y?z&a=b", "EMPTY=", "_x=1:2,3;4"};
  static const char *const others[] = {"A=b c",      "A= b",  "A=\"b\"", "A='b'", "A=b\nC=d",
                                       "A=\xc3\xbc", "A=b#c", "A=$b",    "A=\\b", "#A=b",
                                       "A",          "=b",    "A=`b`"};
  for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
    assert_true(container_plain_value(plain[i]));
  for (size_t i = 0; i < ARRAY_SIZE(others); i++)
    assert_false(container_plain_value(others[i]));
}

/* ---- a plan and what becomes of it ---- */

struct fixture {
  char base[64];
  struct host_context host;
  struct policy *policy;
  struct plan plan;
  struct limit_set limits;
  struct container_setup setup;
  struct backend_request request;
  struct wrapped wrapped;
};

static char *at(const struct fixture *fixture, const char *name) {
  return path_join(fixture->base, name);
}

static void make_tree(const struct fixture *fixture) {
  static const char *const folders[] = {"p",        "p/.git", "p/.git/hooks",
                                        "p/secret", "p/deep", "home"};
  static const char *const files[] = {"p/.env", "p/.git/config"};
  for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
    _cleanup_free_ char *path = at(fixture, folders[i]);
    assert_int_equal(mkdir(path, 0755), 0);
  }
  for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
    _cleanup_free_ char *path = at(fixture, files[i]);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
  }
}

static void add(struct fixture *fixture, enum operation_kind kind, const char *name) {
  _cleanup_free_ char *path = at(fixture, name);
  plan_add(&fixture->plan, kind, path, NULL, NULL);
}

static int set_up(void **state) {
  struct fixture *fixture = xcalloc(1, sizeof *fixture);
  static char *environment[] = {NULL};
  snprintf(fixture->base, sizeof fixture->base, "/tmp/sandbox-unit-XXXXXX");
  assert_non_null(mkdtemp(fixture->base));
  make_tree(fixture);
  fixture->host = (struct host_context){.user = 1000, .group = 100, .home = at(fixture, "home")};
  fixture->host.policy = (struct policy_context){.project = "/nowhere", .environment = environment};
  fixture->policy = policy_new(&fixture->host.policy);
  strv_add(&fixture->plan.arguments, "make");
  strv_add(&fixture->plan.arguments, "a b");
  strv_add(&fixture->plan.environment, "PATH=/of/the/host");
  strv_add(&fixture->plan.environment, "TOKEN=secret");
  strv_add(&fixture->plan.environment, "ODD=a b");
  fixture->plan.working_folder = at(fixture, "p");
  fixture->plan.hostname = xstrdup("sandbox-abc");
  fixture->setup = (struct container_setup){
      .program = "podman", .image = "image:1", .is_podman = true, .identity = CONTAINER_KEEP_ID};
  fixture->request = (struct backend_request){.host = &fixture->host,
                                              .policy = fixture->policy,
                                              .plan = &fixture->plan,
                                              .limits = &fixture->limits,
                                              .session_id = "abc"};
  fixture->wrapped = WRAPPED_NONE;
  *state = fixture;
  return 0;
}

static int tear_down(void **state) {
  struct fixture *fixture = *state;
  _cleanup_free_ char *command = xasprintf("rm -rf %s", fixture->base);
  assert_int_equal(system(command), 0);
  wrapped_clear(&fixture->wrapped);
  plan_clear(&fixture->plan);
  policy_free(fixture->policy);
  free(fixture->host.home);
  free(fixture);
  return 0;
}

static void wrap(struct fixture *fixture) {
  _cleanup_error_ struct sb_error error = {0};
  wrapped_clear(&fixture->wrapped);
  int result = container_wrap(&fixture->setup, &fixture->request, &fixture->wrapped, &error);
  if (result < 0)
    fail_msg("%s", error.message);
}

static void expect_refusal(struct fixture *fixture, const char *words) {
  _cleanup_error_ struct sb_error error = {0};
  wrapped_clear(&fixture->wrapped);
  assert_int_equal(container_wrap(&fixture->setup, &fixture->request, &fixture->wrapped, &error),
                   -1);
  assert_non_null(strstr(error.message, words));
  assert_non_null(error.hint);
}

static bool has_word(const struct fixture *fixture, const char *word) {
  return strv_contains(&fixture->wrapped.argv, word);
}

/* The word with "@" for the fixture's folder. */
static void expect_word(const struct fixture *fixture, const char *word, bool there) {
  _cleanup_text_ struct text text = {0};
  for (const char *letter = word; *letter; letter++) {
    if (*letter == '@')
      text_append(&text, fixture->base);
    else
      text_append_char(&text, *letter);
  }
  if (has_word(fixture, text_string(&text)) != there)
    fail_msg("%s: %s", there ? "missing" : "unexpected", text_string(&text));
}

static void test_frame(void **state) {
  struct fixture *fixture = *state;
  static const char *const always[] = {"--rm",
                                       "--pull=never",
                                       "--read-only",
                                       "--cap-drop=all",
                                       "--security-opt=no-new-privileges",
                                       "--network=none",
                                       "--name=sandbox-abc",
                                       "--userns=keep-id",
                                       "--user=1000:100",
                                       "--http-proxy=false",
                                       "--entrypoint=make",
                                       "--tmpfs=/tmp:rw,nosuid,nodev,exec,mode=1777"};
  wrap(fixture);
  for (size_t i = 0; i < ARRAY_SIZE(always); i++)
    expect_word(fixture, always[i], true);
  const struct strv *argv = &fixture->wrapped.argv;
  assert_string_equal(argv->items[argv->count - 2], "image:1");
  assert_string_equal(argv->items[argv->count - 1], "a b");
  assert_string_equal(fixture->wrapped.end_argv.items[1], "rm");
  assert_true(strv_contains(&fixture->wrapped.end_argv, "sandbox-abc"));
}

static void test_mounts(void **state) {
  struct fixture *fixture = *state;
  add(fixture, OPERATION_WRITABLE, "p");
  add(fixture, OPERATION_PIN, "p/.git");
  add(fixture, OPERATION_PROTECT, "p/.git/hooks");
  add(fixture, OPERATION_MASK, "p/secret");
  add(fixture, OPERATION_MASK, "p/.env");
  plan_add(&fixture->plan, OPERATION_MASK, "/etc/shadow", NULL, NULL); /* the image's is shown */
  wrap(fixture);
  expect_word(fixture, "--mount=type=bind,source=@/p,destination=@/p", true);
  expect_word(fixture, "--mount=type=bind,source=@/p/.git,destination=@/p/.git", true);
  expect_word(fixture, "--mount=type=bind,source=@/p/.git/hooks,destination=@/p/.git/hooks,ro",
              true);
  expect_word(fixture, "--mount=type=tmpfs,destination=@/p/secret,tmpfs-size=65536,ro,notmpcopyup",
              true);
  expect_word(fixture, "--mount=type=bind,source=/dev/null,destination=@/p/.env,ro", true);
  expect_word(fixture, "--mount=type=bind,source=/dev/null,destination=/etc/shadow,ro", false);
  expect_word(fixture, "--tmpfs=@/home:rw,nosuid,nodev,exec,mode=1777,notmpcopyup", true);
  fixture->setup.scratch = "/scratch";
  wrap(fixture);
  expect_word(fixture, "--mount=type=bind,source=/scratch/mask,destination=@/p/.env,ro", true);
  assert_true(fixture->wrapped.files[1].unreadable);
}

/* A mask over a folder hides what was mounted below it; one mount for each path. */
static void test_later_operations_win(void **state) {
  struct fixture *fixture = *state;
  add(fixture, OPERATION_WRITABLE, "p");
  add(fixture, OPERATION_READONLY, "p/deep");
  add(fixture, OPERATION_WRITABLE, "p/secret");
  add(fixture, OPERATION_MASK, "p/secret");
  add(fixture, OPERATION_WRITABLE, "p/.git/hooks");
  add(fixture, OPERATION_PROTECT, "p/.git");
  wrap(fixture);
  expect_word(fixture, "--mount=type=bind,source=@/p/deep,destination=@/p/deep,ro", true);
  expect_word(fixture, "--mount=type=bind,source=@/p/secret,destination=@/p/secret", false);
  expect_word(fixture, "--mount=type=bind,source=@/p/.git/hooks,destination=@/p/.git/hooks,ro",
              true);
}

static void test_overlays(void **state) {
  struct fixture *fixture = *state;
  add(fixture, OPERATION_OVERLAY, "p");
  fixture->plan.operations[0].upper = xstrdup("/up/0");
  add(fixture, OPERATION_PIN, "p/.git");
  wrap(fixture);
  expect_word(fixture, "--volume=@/p:@/p:O,upperdir=/up/0/upper,workdir=/up/0/work", true);
  /* The host's folder, writable, must not come through the overlay. */
  expect_word(fixture, "--mount=type=bind,source=@/p/.git,destination=@/p/.git", false);
  fixture->setup.is_podman = false;
  wrap(fixture);
  expect_word(fixture,
              "--mount=type=volume,destination=@/p,volume-driver=local,volume-opt=type=overlay,"
              "volume-opt=device=overlay,\"volume-opt=o=lowerdir=@/p,upperdir=/up/0/upper,"
              "workdir=/up/0/work,userxattr\"",
              true);
  free(fixture->plan.operations[0].upper);
  fixture->plan.operations[0].upper = xstrdup("/up,x/0");
  expect_refusal(fixture, "cannot overlay");
}

static void test_environment(void **state) {
  struct fixture *fixture = *state;
  fixture->setup.scratch = "/scratch";
  wrap(fixture);
  expect_word(fixture, "--env=PATH=/of/the/host", false);
  expect_word(fixture, "--env=TOKEN=secret", false); /* everybody can read a command line */
  expect_word(fixture, "--env=ODD=a b", true);
  expect_word(fixture, "--env-file=/scratch/environment", true);
  const struct wrapped_file *file = &fixture->wrapped.files[fixture->wrapped.file_count - 1];
  assert_int_equal(file->size, strlen("TOKEN=secret\n"));
  assert_memory_equal(file->content, "TOKEN=secret\n", file->size);
  strv_add(&fixture->policy->environment_set, "PATH=/of/the/host");
  wrap(fixture);
  expect_word(fixture, "--env-file=/scratch/environment", true);
}

static void test_limits(void **state) {
  struct fixture *fixture = *state;
  fixture->limits.value[LIMIT_MEMORY] = 64 << 20;
  fixture->limits.value[LIMIT_CPU] = 500000000;
  fixture->limits.value[LIMIT_PROCESSES] = 50;
  fixture->limits.value[LIMIT_OPEN_FILES] = 64;
  fixture->setup.has_init = true;
  wrap(fixture);
  static const char *const words[] = {"--memory=67108864b", "--memory-swap=67108864b",
                                      "--cpus=0.500", "--pids-limit=51", "--ulimit=nofile=64:64"};
  for (size_t i = 0; i < ARRAY_SIZE(words); i++)
    expect_word(fixture, words[i], true);
  fixture->limits.value[LIMIT_DISK] = 1 << 20;
  expect_refusal(fixture, "cannot limit disk");
  fixture->request.weaken = true;
  wrap(fixture);
}

static void test_identities(void **state) {
  struct fixture *fixture = *state;
  fixture->setup.is_podman = false;
  fixture->setup.identity = CONTAINER_SAME_IDS;
  wrap(fixture);
  expect_word(fixture, "--user=1000:100", true);
  expect_word(fixture, "--userns=keep-id", false);
  fixture->setup.identity = CONTAINER_AS_ROOT;
  wrap(fixture);
  expect_word(fixture, "--user=0:0", true);
  fixture->setup.identity = CONTAINER_CREATE;
  wrap(fixture);
  const struct strv *argv = &fixture->wrapped.argv;
  assert_non_null(strstr(argv->items[argv->count - 1], "useradd -o -u 1000"));
  assert_non_null(strstr(argv->items[argv->count - 1], "exec make '\\''a b'\\'''"));
}

static void test_runtime(void **state) {
  struct fixture *fixture = *state;
  wrap(fixture);
  expect_word(fixture, "--runtime=runsc", false);
  fixture->setup.runtime = "runsc";
  wrap(fixture);
  expect_word(fixture, "--runtime=runsc", true);
}

static void test_network(void **state) {
  struct fixture *fixture = *state;
  strv_add(&fixture->policy->network.publish, "8080:80");
  expect_refusal(fixture, "publish");
  fixture->policy->network.mode = NETWORK_FULL;
  wrap(fixture);
  expect_word(fixture, "--network=none", false);
  expect_word(fixture, "--publish=127.0.0.1:8080:80", true);
  strv_add(&fixture->policy->network.publish, "9000");
  strv_add(&fixture->policy->network.publish, "0.0.0.0:81:82");
  strv_add(&fixture->policy->network.publish, "[::1]:83:84");
  wrap(fixture);
  expect_word(fixture, "--publish=127.0.0.1:9000:9000", true);
  expect_word(fixture, "--publish=0.0.0.0:81:82", true);
  expect_word(fixture, "--publish=[::1]:83:84", true);
  fixture->policy->network.mode = NETWORK_FILTERED;
  expect_refusal(fixture, "filter");
}

static void test_refusals(void **state) {
  struct fixture *fixture = *state;
  fixture->setup.image = "--privileged";
  expect_refusal(fixture, "--privileged");
  fixture->setup.image = "image:1";
  strv_add(&fixture->policy->network.unix_sockets, "/var/run/docker.sock");
  expect_refusal(fixture, "docker.sock");
  strv_clear(&fixture->policy->network.unix_sockets);
  plan_add(&fixture->plan, OPERATION_WRITABLE, "/run/podman/podman.sock", NULL, NULL);
  expect_refusal(fixture, "podman.sock");
  plan_clear(&fixture->plan);
  strv_add(&fixture->plan.arguments, "make");
  fixture->plan.working_folder = xstrdup("/");
  add(fixture, OPERATION_WRITABLE, "p");
  add(fixture, OPERATION_PROTECT, "p/.git/hooks");
  fixture->plan.operations[1].flags = OPERATION_NOFOLLOW;
  expect_refusal(fixture, "symbolic link");
}

/* A socket that lies below a mounted folder by accident is hidden. */
static void test_sockets_below_mounts(void **state) {
  struct fixture *fixture = *state;
  _cleanup_strv_ struct strv sockets = {0};
  _cleanup_free_ char *path = at(fixture, "p/.env"); /* a file of any name */
  strv_add(&sockets, path);
  fixture->setup.control_sockets = &sockets;
  add(fixture, OPERATION_WRITABLE, "p");
  wrap(fixture);
  expect_word(fixture, "--mount=type=bind,source=/dev/null,destination=@/p/.env,ro", true);
  add(fixture, OPERATION_WRITABLE, "p/.env");
  expect_refusal(fixture, "container engine");
}

#define WITH_PLAN(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_windows_paths),
    cmocka_unit_test(test_fields),
    cmocka_unit_test(test_control_sockets),
    cmocka_unit_test(test_plain_values),
    WITH_PLAN(test_frame),
    WITH_PLAN(test_mounts),
    WITH_PLAN(test_later_operations_win),
    WITH_PLAN(test_overlays),
    WITH_PLAN(test_environment),
    WITH_PLAN(test_limits),
    WITH_PLAN(test_identities),
    WITH_PLAN(test_runtime),
    WITH_PLAN(test_network),
    WITH_PLAN(test_refusals),
    WITH_PLAN(test_sockets_below_mounts),
};

UNIT_MAIN(tests)
