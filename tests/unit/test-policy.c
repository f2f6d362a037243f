/* Loading: what is accepted, how each error reads, merging, trust, hostile files. */
#include "unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/error.h"
#include "core/file.h"
#include "policy/export.h"
#include "policy/load.h"
#include "policy/policy.h"
#include "policy/schema.h"

/* ---- a small world on disk ---- */

struct world {
  char *root, *home, *project, *config, *state, *org;
  struct policy_context context;
};

static char *world_variables[] = {"SDK=/opt/sdk", "EMPTY=", "ODD=/opt/[x]", NULL};

static int set_up(void **state) {
  struct world *world = xcalloc(1, sizeof *world);
  char template[] = "/tmp/sandbox-test-XXXXXX";
  world->root = realpath(mkdtemp(template), NULL);
  world->home = xasprintf("%s/home", world->root);
  world->project = xasprintf("%s/home/project", world->root);
  world->config = xasprintf("%s/home/.config", world->root);
  world->state = xasprintf("%s/home/.local/state", world->root);
  world->org = xasprintf("%s/org", world->root);
  assert_int_equal(file_make_folders(world->project, 0755), 0);
  world->context = (struct policy_context){.home = world->home,
                                           .project = world->project,
                                           .config_home = world->config,
                                           .state_home = world->state,
                                           .org_folder = world->org,
                                           .environment = world_variables};
  *state = world;
  return 0;
}

static int tear_down(void **state) {
  struct world *world = *state;
  _cleanup_free_ char *command = xasprintf("rm -rf '%s'", world->root);
  assert_int_equal(system(command), 0);
  char *const texts[] = {world->root,   world->home,  world->project,
                         world->config, world->state, world->org};
  for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
    free(texts[i]);
  free(world);
  return 0;
}

static void write_file(const char *folder, const char *name, const char *text) {
  _cleanup_free_ char *path = xasprintf("%s/%s", folder, name);
  _cleanup_free_ char *parent = xstrdup(path);
  *strrchr(parent, '/') = '\0';
  assert_int_equal(file_make_folders(parent, 0755), 0);
  assert_int_equal(file_replace_at(AT_FDCWD, path, text, strlen(text), 0644), 0);
}

static struct policy *load(const struct world *world) {
  struct policy *policy = NULL;
  _cleanup_error_ struct sb_error error = {0};
  if (policy_load(&world->context, &policy, &error) < 0)
    fail_msg("%s", error.message);
  return policy;
}

static void expect_load_error(const struct world *world, const char *part) {
  struct policy *policy = NULL;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(policy_load(&world->context, &policy, &error), -1);
  assert_null(policy);
  assert_int_equal(error.code, SB_CODE_POLICY);
  if (!strstr(error.message, part))
    fail_msg("'%s' not in: %s", part, error.message);
}

/* ---- errors ---- */

static int apply_bytes(const struct policy_context *context, const char *text, size_t length,
                       struct sb_error *error) {
  _cleanup_policy_ struct policy *policy = policy_new(context);
  struct policy_source source = {
      .file = "f.yaml", .store = STORE_USER, .data = text, .length = length};
  return policy_apply(policy, context, &source, error);
}

static void test_errors_name_place_value_and_fix(void **state) {
  const struct world *world = *state;
  static const struct {
    const char *text, *message, *hint;
  } rows[] = {
      {"", "f.yaml:1:1: the file is empty", "version: 1"},
      {"# only a comment\n", "the file is empty", "version: 1"},
      {"mode: static\n", "f.yaml:1:1: the version is missing", "version: 1"},
      {"version: 2\n", "f.yaml:1:10: version must be 1, not '2'", "version: 1"},
      {"version: one\n", "f.yaml:1:10: version must be 1, not 'one'", "version: 1"},
      {"version: [1]\n", "version must be 1, not a list", "version: 1"},
      {"[1, 2]\n", "f.yaml:1:1: a policy must be a mapping", "key: value"},
      {"version: 1\nversion: 1\n", "f.yaml:2:1: 'version' is written twice, first in line 1",
       "one"},
      {"version: 1\nmod: static\n", "f.yaml:2:1: unknown key 'mod'", "did you mean 'mode'?"},
      {"version: 1\nfilesytem: {}\n", "unknown key 'filesytem'", "did you mean 'filesystem'?"},
      {"version: 1\nread: [/x]\n", "unknown key 'read'", "did you mean 'filesystem.read'?"},
      {"version: 1\nfilesystem:\n  reed: [/x]\n", "f.yaml:3:3: unknown key 'filesystem.reed'",
       "did you mean 'filesystem.read'?"},
      {"version: 1\nxyzzy: 1\n", "unknown key 'xyzzy'", "docs/POLICY.md"},
      {"version: 1\n\"x\\e[2J\": 1\n", "unknown key 'x\\x1b[2J'", ""},
      {"version: 1\n? [a]\n: 1\n", "a key must be text, not a list", NULL},
      {"version: 1\nmode: statik\n", "f.yaml:2:7: mode must be dynamic or static, not 'statik'",
       "did you mean 'static'?"},
      {"version: 1\nnetwork: {mode: filterd}\n", "not 'filterd'", "did you mean 'filtered'?"},
      {"version: 1\nnetwork: none\n", "network must be a mapping", "key: value"},
      {"version: 1\nbackend: bubblewrap\n", "backend must be auto, native", ""},
      {"version: 1\ndebug: yes\n", "debug must be true or false, not 'yes'", ""},
      {"version: 1\ndebug: True\n", "not 'True'", "did you mean 'true'?"},
      {"version: 1\ndebug: \"true\"\n", "debug must be true or false", ""},
      {"version: 1\ndebug:\n", "debug must be true or false, not ''", ""},
      {"version: 1\nlimits: {memory_mb: 0}\n", "a whole number from 1 to", ""},
      {"version: 1\nlimits: {memory_mb: -5}\n", "not '-5'", ""},
      {"version: 1\nlimits: {memory_mb: 1e99}\n", "not '1e99'", ""},
      {"version: 1\nlimits: {memory_mb: 99999999999999999999}\n", "limits.memory_mb must be", ""},
      {"version: 1\nlimits: {memory_mb: 512M}\n", "not '512M'", ""},
      {"version: 1\nlimits: {memory_mb: \"512\"}\n", "not '512'", "without quotes"},
      {"version: 1\nlimits: {memory_mb: 1.5}\n", "not '1.5'", "without a fraction"},
      {"version: 1\nfilesystem: {list: [\"/home/*\"]}\n", "f.yaml:2:21: filesystem.list: '/home/*'",
       "name each folder"},
      {"version: 1\nfilesystem: {list: [\"~/**\"]}\n", "not a pattern", "name each folder"},
      {"version: 1\nlimits: {memory: 1}\n", "unknown key 'limits.memory'", "limits.memory_mb"},
      {"version: 1\nprompt: {timeout_seconds: null}\n", "prompt.timeout_seconds must be", ""},
      {"version: 1\nfilesystem: {read: /opt}\n", "must be a list of paths or globs, not '/opt'",
       "read: [\"/opt\"]"},
      {"version: 1\nfilesystem: {read: [[/opt]]}\n", "an entry of filesystem.read must be text",
       ""},
      {"version: 1\nfilesystem: {read: [null]}\n", "not null", ""},
      {"version: 1\nfilesystem: {read: [\"\"]}\n", "the path is empty", ""},
      {"version: 1\nfilesystem: {read: [\"/a/[b\"]}\n", "f.yaml:2:21: filesystem.read: '/a/[b'",
       "glob"},
      {"version: 1\nfilesystem: {read: [\"/a**\"]}\n", "** must stand alone", ""},
      {"version: 1\nfilesystem: {read: [$NOPE/x]}\n", "the variable $NOPE is not set", "set NOPE"},
      {"version: 1\nfilesystem: {read: [$EMPTY/x]}\n", "the variable $EMPTY is not set", ""},
      {"version: 1\nfilesystem: {read: [\"${SDK\"]}\n", "a $ is not followed", "\\$"},
      {"version: 1\nfilesystem: {read: [~root/x]}\n", "~NAME is not supported", ""},
      {"version: 1\nnetwork: {allow: [\"https://github.com\"]}\n", "with a scheme", ""},
      {"version: 1\nnetwork: {allow: [\"a b\"]}\n", "contains a space", ""},
      {"version: 1\nnetwork:\n  allow:\n  - a.org:0\n",
       "4:5: network.allow: 'a.org:0' has a wrong port", ""},
      {"version: 1\nnetwork: {deny: [b\xc3\xbc.org:1]}\n", "outside ASCII",
       "write xn--b-eha.org:1"},
      {"version: 1\nnetwork: {http_proxy: \"socks5://p:1\"}\n", "is no HTTP proxy", ""},
      {"version: 1\nnetwork: {publish: [\"99999:80\"]}\n", "is not HOST_PORT:SANDBOX_PORT", ""},
      {"version: 1\nnetwork: {unix_sockets: [docker]}\n", "is not a path", ""},
      {"version: 1\nenvironment: {pass: [\"A-B\"]}\n", "is not the name of a variable", ""},
      {"version: 1\nenvironment: {set: {A: 1, A: 2}}\n", "'A' is written twice", ""},
      {"version: 1\nenvironment: {set: {\"A=B\": 1}}\n", "is not the name of a variable", ""},
      {"version: 1\nenvironment: {set: {A: null}}\n", "the value of A must be text", "''"},
      {"version: 1\nenvironment: {set: [A]}\n", "names and their values, not a list", ""},
      /* YAML that a policy does not need */
      {"version: &a 1\n", "anchors and aliases", "write the value out"},
      {"version: 1\nmode: *a\n", "anchors and aliases", ""},
      {"version: !!int 1\n", "tags", ""},
      {"version: 1\n<<: {mode: static}\n", "unknown key '<<'", ""},
      {"version: 1\n---\nversion: 1\n", "f.yaml:2:1: a second document", "one document"},
      {"version: 1\n\tmode: static\n", "f.yaml:2:", "tabs"},
      {"version: 1\nmode: [\n", "f.yaml:3:1", ""},
      {"version: 1\nmode: \"a\\0b\"\n", "contains a NUL byte", NULL},
      {"version: 1\n\xff\xfe: 1\n", "f.yaml:2:1: invalid leading UTF-8 octet", "UTF-8"},
      {"version: 1\n\xed\xa0\x80: 1\n", "f.yaml:2:1", "UTF-8"},
      {"version: 1\nx: {a: {b: {c: {d: {e: {f: {g: {h: 1}}}}}}}}\n", "nested too deeply", NULL},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_error_ struct sb_error error = {0};
    if (apply_bytes(&world->context, rows[i].text, strlen(rows[i].text), &error) == 0)
      fail_msg("accepted: %s", rows[i].text);
    assert_int_equal(error.code, SB_CODE_POLICY);
    if (strncmp(error.message, "f.yaml:", 7) != 0 || !strstr(error.message, rows[i].message))
      fail_msg("'%s' not in: %s", rows[i].message, error.message);
    if (rows[i].hint && (!error.hint || !strstr(error.hint, rows[i].hint)))
      fail_msg("'%s' not in hint of '%s': %s", rows[i].hint, error.message, error.hint);
  }
}

static void test_raw_nul_and_floods_are_refused(void **state) {
  const struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  static const char nul[] = "version: 1\nmode: sta\0tic\n";
  assert_int_equal(apply_bytes(&world->context, nul, sizeof nul - 1, &error), -1);
  assert_non_null(strstr(error.message, "f.yaml:2:10"));

  size_t length = 1 << 20;
  _cleanup_free_ char *flood = xmalloc(length);
  static const char *const starts[] = {"[", "{", "- ", "? ", "a: ", "!a ", "&a ", "\"", "|"};
  for (size_t i = 0; i < ARRAY_SIZE(starts); i++) {
    for (size_t at = 0; at < length; at++)
      flood[at] = starts[i][at % strlen(starts[i])];
    assert_int_equal(apply_bytes(&world->context, flood, length, &error), -1);
  }
}

static void test_whole_schema_loads(void **state) {
  const struct world *world = *state;
  static const char text[] =
      "version: 1\n"
      "mode: dynamic\n"
      "backend: native\n"
      "require: preferred\n"
      "filesystem:\n"
      "  read: [/opt/sdk, \"$SDK/lib\", \"${ODD}/*.h\"]\n"
      "  write: [., ~/.cache/pip]\n"
      "  overlay: [/usr/local]\n"
      "  hide: [~/.aws, \"**/.env\"]\n"
      "  ask_writes: true\n"
      "  ask_secrets: true\n"
      "  list: [~, /srv]\n"
      "  protect: [Makefile]\n"
      "  unprotect: [.git/config]\n"
      "network:\n"
      "  mode: filtered\n"
      "  allow: [github.com, \"*.npmjs.org:443\", \"10.1.0.0/16:5432\"]\n"
      "  deny: [\"*.pastebin.com\"]\n"
      "  unix_sockets: [~/run/x.sock]\n"
      "  publish: [\"8080:80\", 9000]\n"
      "  http_proxy: null\n"
      "  socks_proxy: 127.0.0.1:1080\n"
      "  driver: pasta\n"
      "  allow_local_binding: false\n"
      "  unix_datagrams: true\n"
      "limits: {cpu_percent: 50.5, memory_mb: 512, disk_mb: 1024, max_processes: 50,\n"
      "         timeout_seconds: 60, io_mb_per_s: null, open_files: 100, file_size_mb: 7, inodes: 9}\n"
      "environment: {pass: [CI, \"MY_*\"], set: {FOO: bar, N: 1}}\n"
      "prompt: {timeout_seconds: 30}\n"
      "debug: false\n"
      "containers: true\n"
      "vm: {enabled: true, kvm: true, kernel: /boot/vmlinuz}\n"
      "container: {image: debian:12, runtime: runsc, user: create}\n"
      "nix: off\n"
      "weaker_nested: false\n"
      "commands: {exclude: [docker], allow_unsandboxed: true, allow_bypass: false, auto_allow: false}\n"
      "seatbelt: {profile: permissive, custom_profile: ~/x.sb}\n";
  _cleanup_policy_ struct policy *policy = policy_new(&world->context);
  _cleanup_error_ struct sb_error error = {0};
  struct policy_source source = {
      .file = "f.yaml", .store = STORE_USER, .data = text, .length = sizeof text - 1};
  if (policy_apply(policy, &world->context, &source, &error) < 0)
    fail_msg("%s", error.message);

  assert_int_equal(policy->mode, MODE_DYNAMIC);
  assert_int_equal(policy->require, REQUIRE_PREFERRED);
  assert_string_equal(policy->backend, "native");
  assert_true(policy->ask_writes && policy->ask_secrets);
  assert_int_equal(policy->network.mode, NETWORK_FILTERED);
  assert_int_equal(policy->network.allow.count, 3);
  assert_int_equal(policy->network.publish.count, 2);
  assert_null(policy->network.http_proxy);
  assert_string_equal(policy->network.socks_proxy, "127.0.0.1:1080");
  assert_string_equal(policy->network.driver, "pasta");
  assert_false(policy->network.allow_local_binding);
  assert_true(policy->network.unix_datagrams);
  _cleanup_free_ char *socket = xasprintf("%s/run/x.sock", world->home);
  assert_string_equal(policy->network.unix_sockets.items[0], socket);
  assert_true(policy->limits.cpu_percent == 50.5);
  assert_int_equal(policy->limits.memory_mb, 512);
  assert_int_equal(policy->limits.inodes, 9);
  assert_int_equal(policy->limits.io_mb_per_s, 0);
  assert_string_equal(policy->environment_set.items[1], "N=1");
  assert_int_equal(policy->prompt_timeout_seconds, 30);
  assert_true(policy->containers && policy->vm.enabled && policy->vm.kvm && !policy->debug);
  assert_string_equal(policy->nix, "off");
  assert_true(policy->commands.allow_unsandboxed);
  assert_false(policy->commands.allow_bypass || policy->commands.auto_allow ||
               policy->weaker_nested);
  assert_int_equal(policy->seatbelt.profile, SEATBELT_PERMISSIVE);
  assert_string_equal(policy->seatbelt.custom_profile, "~/x.sb");
  assert_int_equal(policy_decide(policy, "/opt/[x]/a.h", ACCESS_READ).verdict, VERDICT_ALLOW);
  assert_int_equal(policy_decide(policy, "/opt/x/a.h", ACCESS_READ).verdict, VERDICT_ASK);
  assert_int_equal(policy_key_origin(policy, "network.mode")->line, 16);
  assert_non_null(policy_find_list(policy, world->home));
  assert_null(policy_find_list(policy, "/srv/x"));
  assert_int_equal(policy_decide(policy, "/srv", ACCESS_READ).verdict, VERDICT_ASK);
  assert_null(policy_key_origin(policy, "network.nothing"));

  /* Every key of the schema is in the text above, so a new one must be added here, too. */
  for (const struct schema_key *key = schema_table; key->name; key++)
    if (key->type != SCHEMA_RULES && key->type != SCHEMA_VERSION)
      if (policy_key_origin(policy, key->name)->store != STORE_USER)
        fail_msg("%s is not tested", key->name);
}

static void test_json_is_accepted(void **state) {
  const struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  static const char text[] = "{\"version\": 1, \"filesystem\": {\"read\": [\"/opt\"]}}";
  assert_int_equal(apply_bytes(&world->context, text, sizeof text - 1, &error), 0);
}

/* ---- stores ---- */

static void test_no_files_is_the_built_in_policy(void **state) {
  _cleanup_policy_ struct policy *policy = load(*state);
  assert_int_equal(policy->mode, MODE_DYNAMIC);
  assert_int_equal(policy->network.mode, NETWORK_NONE);
  assert_int_equal(policy_key_origin(policy, "mode")->store, STORE_BUILTIN);
  assert_int_equal(policy->ignored.count, 0);
}

static void test_later_stores_win_and_lists_unite(void **state) {
  const struct world *world = *state;
  write_file(world->org, "policy.yaml",
             "version: 1\nnetwork: {mode: full, allow: [a.example, b.example]}\n"
             "limits: {memory_mb: 100}\nenvironment: {set: {A: org, B: org}}\n");
  write_file(world->config, "sandbox/policy.yaml",
             "version: 1\nnetwork: {mode: filtered, allow: [b.example, c.example]}\n"
             "environment: {set: {B: user}}\n");
  write_file(world->config, "sandbox/grants.yaml", "version: 1\ngrants: []\n");
  _cleanup_policy_ struct policy *policy = load(world);
  assert_int_equal(policy->network.mode, NETWORK_FILTERED);
  assert_int_equal(policy->network.allow.count, 3);
  assert_int_equal(policy->limits.memory_mb, 100);
  assert_string_equal(policy->environment_set.items[0], "A=org");
  assert_string_equal(policy->environment_set.items[1], "B=user");
  assert_int_equal(policy_key_origin(policy, "network.mode")->store, STORE_USER);
  assert_int_equal(policy_key_origin(policy, "limits.memory_mb")->store, STORE_ORG);
  policy_set_key_origin(policy, "mode", STORE_FLAGS, NULL, 0);
  assert_int_equal(policy_key_origin(policy, "mode")->store, STORE_FLAGS);
}

/* What the stores say together is the same when one file says it. */
static void test_export_decides_the_same(void **state) {
  const struct world *world = *state;
  static const char *const paths[] = {"/srv/a", "/srv/a/b", "/srv/vault/public", "/srv/c",
                                      "/srv/d"};
  write_file(world->org, "policy.yaml",
             "version: 1\nfilesystem: {read: [/srv/a, /srv/c], hide: [/srv/vault]}\n"
             "network: {mode: full}\nlimits: {memory_mb: 100}\n");
  write_file(world->config, "sandbox/policy.yaml",
             "version: 1\nfilesystem: {hide: [/srv/a], read: [/srv/vault/public, /srv/a/b],"
             " write: [/srv/c]}\nnetwork: {mode: none}\n");
  _cleanup_policy_ struct policy *before = load(world);
  _cleanup_free_ char *text = policy_to_yaml(before, STORE_COUNT, NULL);
  assert_null(strstr(text, "/srv/vault/public"));
  _cleanup_policy_ struct policy *after = policy_new(&world->context);
  _cleanup_error_ struct sb_error error = {0};
  const struct policy_source source = {
      .file = "exported", .store = STORE_USER, .data = text, .length = strlen(text)};
  assert_int_equal(policy_apply(after, &world->context, &source, &error), 0);
  assert_int_equal(after->limits.memory_mb, 100);
  assert_int_equal(after->network.mode, NETWORK_NONE);
  for (size_t i = 0; i < ARRAY_SIZE(paths); i++)
    for (int access = ACCESS_READ; access <= ACCESS_WRITE; access++)
      assert_int_equal(policy_decide(before, paths[i], access).verdict,
                       policy_decide(after, paths[i], access).verdict);
}

static const char hostile_project[] =
    "version: 1\n"
    "mode: dynamic\n"
    "require: disabled\n"
    "backend: docker\n"
    "filesystem:\n"
    "  read: [~/.ssh]\n"
    "  write: [~]\n"
    "  overlay: [/usr]\n"
    "  list: [~]\n"
    "  unprotect: [.git/hooks]\n"
    "  hide: [private]\n"
    "  protect: [Makefile]\n"
    "  ask_writes: true\n"
    "  ask_secrets: true\n"
    "network: {mode: full, allow: [evil.example], deny: [x.example],\n"
    "          unix_sockets: [/run/docker.sock], publish: ['1:1'],\n"
    "          http_proxy: evil.example:1, driver: veth}\n"
    "limits: {memory_mb: 50, disk_mb: 999, timeout_seconds: null}\n"
    "environment: {pass: [AWS_*], set: {LD_PRELOAD: ./x.so}}\n"
    "debug: false\n"
    "containers: true\n"
    "vm: {enabled: true, kvm: true}\n"
    "nix: on\n"
    "commands: {exclude: [sh], allow_unsandboxed: true}\n"
    "seatbelt: {profile: permissive, custom_profile: evil.sb}\n";

static void check_narrowed(const struct world *world, const struct policy *policy) {
  assert_int_equal(policy->mode, MODE_DYNAMIC);
  assert_int_equal(policy->require, REQUIRE_REQUIRED);
  assert_string_equal(policy->backend, "auto");
  assert_int_equal(policy->network.mode, NETWORK_NONE);
  assert_int_equal(policy->network.allow.count, 0);
  assert_int_equal(policy->network.deny.count, 1);
  assert_int_equal(policy->network.unix_sockets.count + policy->network.publish.count, 0);
  assert_null(policy->network.http_proxy);
  assert_int_equal(policy->limits.memory_mb, 50);
  assert_int_equal(policy->limits.disk_mb, 100);
  assert_int_equal(policy->limits.timeout_seconds, 10);
  assert_int_equal(policy->environment_pass.count + policy->environment_set.count, 0);
  assert_false(policy->ask_writes || policy->ask_secrets || policy->debug || policy->containers ||
               policy->vm.enabled || policy->vm.kvm || policy->commands.allow_unsandboxed);
  assert_int_equal(policy->commands.exclude.count, 0);
  assert_int_equal(policy->seatbelt.profile, SEATBELT_RESTRICTIVE);
  assert_null(policy->seatbelt.custom_profile);
  assert_string_equal(policy->nix, "auto");
  assert_null(policy_find_list(policy, world->home));
  static const struct {
    const char *name;
    enum access access;
    enum verdict verdict;
  } rows[] = {
      {".ssh/id_rsa", ACCESS_READ, VERDICT_HIDE},
      {"notes", ACCESS_WRITE, VERDICT_DENY},
      {"project/private", ACCESS_READ, VERDICT_HIDE},
      {"project/Makefile", ACCESS_WRITE, VERDICT_DENY},
      {"project/.git/hooks/x", ACCESS_WRITE, VERDICT_DENY},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *path = xasprintf("%s/%s", world->home, rows[i].name);
    assert_int_equal(policy_decide(policy, path, rows[i].access).verdict, rows[i].verdict);
  }
}

static void test_untrusted_project_only_narrows(void **state) {
  const struct world *world = *state;
  write_file(world->org, "policy.yaml",
             "version: 1\nlimits: {disk_mb: 100, timeout_seconds: 10}\n");
  write_file(world->project, ".sandbox/policy.yaml", hostile_project);
  _cleanup_policy_ struct policy *policy = load(world);
  check_narrowed(world, policy);
  assert_int_equal(policy->ignored.count, 27);
  assert_non_null(strstr(policy->ignored.items[0], "policy.yaml:3: require: disabled is not"));
  assert_non_null(strstr(policy->ignored.items[0], "sandbox policy trust"));
}

/* A permission that the organisation took away stays away; one it gave can be taken. */
static void test_the_organisation_is_final_about_commands(void **state) {
  const struct world *world = *state;
  static const char loose[] =
      "version: 1\ncommands: {allow_bypass: true, allow_unsandboxed: true}\n";
  write_file(world->config, "sandbox/policy.yaml", loose);
  _cleanup_policy_ struct policy *alone = load(world);
  assert_true(alone->commands.allow_bypass && alone->commands.allow_unsandboxed);
  write_file(world->org, "policy.yaml",
             "version: 1\ncommands: {allow_bypass: false, allow_unsandboxed: false}\n");
  _cleanup_policy_ struct policy *under = load(world);
  assert_false(under->commands.allow_bypass || under->commands.allow_unsandboxed);
  assert_int_equal(under->ignored.count, 2);
  assert_non_null(strstr(under->ignored.items[0], "the organisation says otherwise"));
}

static void test_trust_is_by_content_and_project(void **state) {
  const struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  write_file(world->project, ".sandbox/policy.yaml", "version: 1\nnetwork: {mode: full}\n");
  assert_int_equal(policy_trust(&world->context, NULL, &error), 0);
  assert_int_equal(policy_trust(&world->context, NULL, &error), 0);
  {
    _cleanup_policy_ struct policy *policy = load(world);
    assert_int_equal(policy->network.mode, NETWORK_FULL);
    assert_int_equal(policy->ignored.count, 0);
  }
  _cleanup_strv_ struct strv entries = {0};
  assert_int_equal(policy_trust_list(&world->context, &entries, &error), 0);
  assert_int_equal(entries.count, 1);
  _cleanup_free_ char *list = xasprintf("%s/sandbox/trust", world->state);
  struct stat status;
  assert_int_equal(stat(list, &status), 0);
  assert_int_equal(status.st_mode & 0777, 0600);

  struct policy_context elsewhere = world->context;
  elsewhere.project = "/elsewhere";
  static const char text[] = "version: 1\nnetwork: {mode: full}\n";
  assert_int_equal(policy_is_trusted(&world->context, text, sizeof text - 1), 1);
  assert_int_equal(policy_is_trusted(&elsewhere, text, sizeof text - 1), 0);
  assert_int_equal(policy_is_trusted(&world->context, text, sizeof text - 2), 0);

  write_file(world->project, ".sandbox/policy.yaml", "version: 1\nnetwork: {mode: filtered}\n");
  {
    _cleanup_policy_ struct policy *policy = load(world);
    assert_int_equal(policy->network.mode, NETWORK_NONE);
    assert_int_equal(policy->ignored.count, 1);
  }
  assert_int_equal(policy_trust_revoke(&world->context, &error), 1);
  assert_int_equal(policy_trust_revoke(&world->context, &error), 0);
  assert_int_equal(policy_is_trusted(&world->context, text, sizeof text - 1), 0);
}

static void test_only_valid_policies_can_be_trusted(void **state) {
  const struct world *world = *state;
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(policy_trust(&world->context, NULL, &error), -1);
  assert_int_equal(error.code, SB_CODE_NOT_FOUND);
  write_file(world->project, ".sandbox/policy.yaml", "version: 1\nnonsense: 1\n");
  assert_int_equal(policy_trust(&world->context, NULL, &error), -1);
  assert_int_equal(error.code, SB_CODE_POLICY);
}

/* ---- hostile names ---- */

static void test_project_policy_must_be_a_regular_file(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *folder = xasprintf("%s/.sandbox", world->project);
  _cleanup_free_ char *file = xasprintf("%s/policy.yaml", folder);
  assert_int_equal(symlink("/etc", folder), 0);
  expect_load_error(world, "this is a symbolic link, not a folder");
  unlink(folder);
  assert_int_equal(mkdir(folder, 0755), 0);

  assert_int_equal(mkfifo(file, 0644), 0);
  expect_load_error(world, "this is a FIFO, not a regular file");
  unlink(file);
  assert_int_equal(symlink("/etc/passwd", file), 0);
  expect_load_error(world, "this is a symbolic link, not a regular file");
  unlink(file);
  assert_int_equal(mkdir(file, 0755), 0);
  expect_load_error(world, "this is a folder, not a regular file");
  rmdir(file);
  write_file(folder, "policy.yaml", "");
  assert_int_equal(truncate(file, POLICY_FILE_MAX + 1), 0);
  expect_load_error(world, "larger than 1 MiB");
  if (geteuid() != 0) {
    assert_int_equal(truncate(file, 0) | chmod(file, 0), 0);
    expect_load_error(world, "Permission denied");
  }
}

static void test_user_policy_may_be_a_link_but_no_fifo(void **state) {
  const struct world *world = *state;
  write_file(world->home, "dotfiles/policy.yaml", "version: 1\nmode: dynamic\n");
  _cleanup_free_ char *target = xasprintf("%s/dotfiles/policy.yaml", world->home);
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", world->config);
  _cleanup_free_ char *file = xasprintf("%s/policy.yaml", folder);
  assert_int_equal(file_make_folders(folder, 0755), 0);
  assert_int_equal(symlink(target, file), 0);
  {
    _cleanup_policy_ struct policy *policy = load(world);
    assert_int_equal(policy->mode, MODE_DYNAMIC);
  }
  unlink(target);
  assert_int_equal(mkfifo(target, 0644), 0);
  expect_load_error(world, "this is a FIFO");
}

static void test_hidden_links_cover_both_names(void **state) {
  const struct world *world = *state;
  write_file(world->root, "vault/key", "secret");
  write_file(world->config, "sandbox/policy.yaml", "version: 1\nfilesystem: {hide: [~/vault]}\n");
  _cleanup_free_ char *link = xasprintf("%s/vault", world->home);
  _cleanup_free_ char *target = xasprintf("%s/vault", world->root);
  assert_int_equal(symlink(target, link), 0);
  _cleanup_policy_ struct policy *policy = load(world);
  _cleanup_free_ char *key = xasprintf("%s/key", target);
  assert_int_equal(policy_decide(policy, key, ACCESS_READ).verdict, VERDICT_HIDE);
  assert_int_equal(policy_decide(policy, link, ACCESS_READ).verdict, VERDICT_HIDE);
}

static void test_built_in_secrets_resolve_on_request(void **state) {
  const struct world *world = *state;
  write_file(world->root, "keys/id_rsa", "secret");
  _cleanup_free_ char *link = xasprintf("%s/.ssh", world->home);
  _cleanup_free_ char *target = xasprintf("%s/keys", world->root);
  assert_int_equal(symlink(target, link), 0);
  _cleanup_policy_ struct policy *policy = load(world);
  _cleanup_free_ char *key = xasprintf("%s/config", target);
  assert_int_equal(policy_decide(policy, key, ACCESS_READ).verdict, VERDICT_ASK);
  policy_resolve(policy);
  assert_int_equal(policy_decide(policy, key, ACCESS_READ).verdict, VERDICT_HIDE);
}

static void test_links_do_not_lead_out_of_the_project(void **state) {
  const struct world *world = *state;
  _cleanup_free_ char *link = xasprintf("%s/build", world->project);
  assert_int_equal(symlink(world->home, link), 0);
  write_file(world->config, "sandbox/policy.yaml", "version: 1\nfilesystem: {write: [build/x]}\n");
  expect_load_error(world, "it leads out of the project through a symbolic link");
  _cleanup_policy_ struct policy *policy = policy_new(&world->context);
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(
      policy_add_flag(policy, &world->context, RULE_WRITE, world->project, "build", "--rw", &error),
      -1);
  assert_int_equal(error.code, SB_CODE_USAGE);
  assert_non_null(strstr(error.message, "--rw 'build': it leads out"));
}

static void test_flags_take_existing_names_literally(void **state) {
  const struct world *world = *state;
  write_file(world->project, "[slug]/x", "");
  write_file(world->project, "$HOME/x", "");
  _cleanup_policy_ struct policy *policy = policy_new(&world->context);
  _cleanup_error_ struct sb_error error = {0};
  static const char *const names[] = {"[slug]", "$HOME"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = xasprintf("%s/%s", world->project, names[i]);
    assert_int_equal(policy_add_flag(policy, &world->context, RULE_READ, world->project, names[i],
                                     "--ro", &error),
                     0);
    struct decision decision = policy_decide(policy, path, ACCESS_WRITE);
    assert_int_equal(decision.verdict, VERDICT_DENY);
    assert_int_equal(decision.rule->origin.store, STORE_FLAGS);
    assert_false(decision.rule->is_glob);
  }
}

static void test_expand(void **state) {
  const struct world *world = *state;
  static const struct {
    const char *text, *path;
  } rows[] = {{"/a//b/../c/", "/a/c"},
              {"$SDK/x", "/opt/sdk/x"},
              {"${SDK}x", "/opt/sdkx"},
              {"a/b", "/base/a/b"},
              {".", "/base"},
              {"\\$SDK", "/base/$SDK"},
              {"\\~x", "/base/~x"},
              {"a~", "/base/a~"},
              {"\\xfF\\x80", "/base/\xff\x80"},
              {"\\x7f\\xf\\xg0\\x", "/base/x7fxfxg0x"}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_free_ char *path = NULL;
    _cleanup_error_ struct sb_error error = {0};
    assert_int_equal(policy_expand(&world->context, "/base", rows[i].text, &path, &error), 0);
    assert_string_equal(path, rows[i].path);
  }
}

static void test_check_of_one_file(void **state) {
  const struct world *world = *state;
  _cleanup_policy_ struct policy *policy = policy_new(&world->context);
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(policy_load_file(&world->context, "/no/such", STORE_USER, policy, &error), -1);
  assert_int_equal(error.code, SB_CODE_NOT_FOUND);
}

/* ---- showing ---- */

static void test_show(void **state) {
  const struct world *world = *state;
  write_file(world->config, "sandbox/policy.yaml",
             "version: 1\nmode: dynamic\nnetwork: {allow: [a.example]}\n"
             "filesystem: {read: [\"/opt/\\e]2J\"]}\n");
  _cleanup_policy_ struct policy *policy = load(world);
  _cleanup_free_ char *text = policy_to_text(policy);
  assert_non_null(strstr(text, "mode: dynamic "));
  assert_non_null(strstr(text, "sandbox/policy.yaml:2:7\n"));
  assert_non_null(strstr(text, "\nnetwork:\n"));
  assert_non_null(strstr(text, "    - a.example\n"));
  assert_non_null(strstr(text, "\\x1b]2J"));
  assert_null(strchr(text, '\x1b'));

  json_t *json = policy_to_json(policy);
  json_t *settings = json_object_get(json, "policy");
  assert_string_equal(json_string_value(json_object_get(settings, "mode")), "dynamic");
  assert_true(json_is_null(json_object_get(json_object_get(settings, "limits"), "memory_mb")));
  assert_int_equal(json_array_size(json_object_get(json, "rules")), policy->rule_count);
  json_decref(json);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    WITH_WORLD(test_errors_name_place_value_and_fix),
    WITH_WORLD(test_raw_nul_and_floods_are_refused),
    WITH_WORLD(test_whole_schema_loads),
    WITH_WORLD(test_json_is_accepted),
    WITH_WORLD(test_no_files_is_the_built_in_policy),
    WITH_WORLD(test_later_stores_win_and_lists_unite),
    WITH_WORLD(test_export_decides_the_same),
    WITH_WORLD(test_untrusted_project_only_narrows),
    WITH_WORLD(test_the_organisation_is_final_about_commands),
    WITH_WORLD(test_trust_is_by_content_and_project),
    WITH_WORLD(test_only_valid_policies_can_be_trusted),
    WITH_WORLD(test_project_policy_must_be_a_regular_file),
    WITH_WORLD(test_user_policy_may_be_a_link_but_no_fifo),
    WITH_WORLD(test_hidden_links_cover_both_names),
    WITH_WORLD(test_built_in_secrets_resolve_on_request),
    WITH_WORLD(test_links_do_not_lead_out_of_the_project),
    WITH_WORLD(test_flags_take_existing_names_literally),
    WITH_WORLD(test_expand),
    WITH_WORLD(test_check_of_one_file),
    WITH_WORLD(test_show),
};

UNIT_MAIN(tests)
