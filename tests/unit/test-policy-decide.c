/* The decision: specificity, stores, protection, secrets. */
#include "unit.h"

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/error.h"
#include "policy/load.h"
#include "policy/policy.h"

static char *const variables[] = {"KUBECONFIG=/srv/kube/a:/srv/kube/b",
                                  "EMPTY=",
                                  "XDG_DATA_HOME=/srv/data",
                                  "DOCKER_CONFIG=/nohome",
                                  "XDG_CONFIG_HOME=/nohome/u/.config",
                                  NULL};

static const struct policy_context context = {
    .home = "/nohome/u",
    .project = "/nohome/u/p",
    .config_home = "/nohome/u/.config",
    .state_home = "/nohome/u/.local/state",
    .org_folder = "/noorg",
    .environment = variables,
};

/* Most rows are about static mode: what no rule covers is readable. */
static struct policy *static_policy(const struct policy_context *from) {
  struct policy *policy = policy_new(from);
  policy->mode = MODE_STATIC;
  return policy;
}

static void apply(struct policy *policy, enum policy_store store, const char *text) {
  _cleanup_error_ struct sb_error error = {0};
  struct policy_source source = {
      .file = "test.yaml", .store = store, .data = text, .length = strlen(text)};
  if (policy_apply(policy, &context, &source, &error) < 0)
    fail_msg("%s", error.message);
}

struct expectation {
  const char *path;
  enum access access;
  enum verdict verdict;
};

static void expect(const struct policy *policy, const struct expectation *rows, size_t count) {
  for (size_t i = 0; i < count; i++) {
    struct decision decision = policy_decide(policy, rows[i].path, rows[i].access);
    if (decision.verdict != rows[i].verdict)
      fail_msg("%s access %d: verdict %d, expected %d, by '%s'", rows[i].path, rows[i].access,
               decision.verdict, rows[i].verdict,
               decision.rule ? decision.rule->pattern : "nothing");
  }
}

static void test_builtin(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  static const struct expectation rows[] = {
      {"/usr/bin/ls", ACCESS_READ, VERDICT_ALLOW},
      {"/usr/bin/ls", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/src/a.c", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p-evil/a.c", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/.ssh/id_ed25519", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/.ssh/id_ed25519", ACCESS_WRITE, VERDICT_HIDE},
      {"/nohome/u/.ssh-tools/x", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/server.pem", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/tests/server.pem", ACCESS_READ, VERDICT_ALLOW},
      {"/etc/shadow", ACCESS_READ, VERDICT_HIDE},
      {"/etc/ssh/ssh_host_rsa_key", ACCESS_READ, VERDICT_HIDE},
      {"/etc/ssh/ssh_host_rsa_key.pub", ACCESS_READ, VERDICT_ALLOW},
      {"/srv/kube/a", ACCESS_READ, VERDICT_HIDE},
      {"/srv/kube/b", ACCESS_READ, VERDICT_HIDE},
      {"/srv/data/keyrings/login.keyring", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/.local/share/keyrings/login.keyring", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/notes", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/p/.env", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/deep/er/.env.local", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/prod.env", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/.env.example", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/p/.env.example", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p/.env.test.example", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/p/.envrc", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/p/.envrc", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/.git/hooks/pre-commit", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/.git/index", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p/.sandbox/policy.yaml", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/.local/state/sandbox/trust", ACCESS_READ, VERDICT_HIDE},
  };
  expect(policy, rows, ARRAY_SIZE(rows));
}

static void test_specificity_and_stores(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  apply(policy, STORE_ORG,
        "version: 1\n"
        "filesystem: {hide: [/srv/vault], read: [/opt/a/b], write: [/data]}\n");
  apply(policy, STORE_USER,
        "version: 1\n"
        "filesystem:\n"
        "  read: [~/.ssh/known_hosts, ~/.aws, /srv/vault/public, vendor, \"sub/*/ok.env\"]\n"
        "  write: [packages, ~/.cache/**, \"/work/*\"]\n"
        "  hide: [/opt/a, /data/*/key]\n"
        "  unprotect: [.vscode/settings.json, .envrc, sub, packages/.git]\n"
        "  protect: [Makefile, \"**/*.lock\", sub/kept]\n");
  static const struct expectation rows[] = {
      /* an org hide is final */
      {"/srv/vault/public", ACCESS_READ, VERDICT_HIDE},
      /* deeper wins, whichever store */
      {"/opt/a/b/c", ACCESS_READ, VERDICT_ALLOW},
      {"/opt/a/c", ACCESS_READ, VERDICT_HIDE},
      {"/opt/ab", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/.ssh/known_hosts", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/.ssh/config", ACCESS_READ, VERDICT_HIDE},
      /* a tie goes to the later store */
      {"/nohome/u/.aws/config", ACCESS_READ, VERDICT_ALLOW},
      /* a writable folder does not uncover the secrets in it */
      {"/nohome/u/p/packages/.env", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/packages/a/b/c/.env", ACCESS_READ, VERDICT_HIDE},
      /* but naming more of the path does */
      {"/nohome/u/p/sub/x/ok.env", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/p/sub/x/no.env", ACCESS_READ, VERDICT_HIDE},
      /* read inside write is read-only */
      {"/nohome/u/p/vendor/x.c", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/vendor/x.c", ACCESS_READ, VERDICT_ALLOW},
      {"/nohome/u/.cache/x", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/.cache", ACCESS_WRITE, VERDICT_ALLOW},
      {"/data/x", ACCESS_WRITE, VERDICT_ALLOW},
      {"/data/x/key", ACCESS_READ, VERDICT_HIDE},
      /* protection */
      {"/nohome/u/p/Makefile", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/sub/Makefile", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p/sub/yarn.lock", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/.vscode/settings.json", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p/.vscode/tasks.json", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/.envrc", ACCESS_WRITE, VERDICT_ALLOW},
      /* a folder is taken back with the built-in names in it, not with those that somebody wrote */
      {"/nohome/u/p/packages/.git/hooks/x", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/p/packages/.vscode/x", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/p/sub/kept", ACCESS_WRITE, VERDICT_DENY},
      /* every writable place has its protected names */
      {"/data/.git/hooks/x", ACCESS_WRITE, VERDICT_DENY},
      {"/work/a/.git/hooks/x", ACCESS_WRITE, VERDICT_DENY},
      {"/work/a/src/x", ACCESS_WRITE, VERDICT_ALLOW},
      {"/work/x", ACCESS_WRITE, VERDICT_ALLOW},
      {"/work", ACCESS_WRITE, VERDICT_DENY},
  };
  expect(policy, rows, ARRAY_SIZE(rows));
}

static void test_dynamic_mode_asks(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  apply(policy, STORE_USER, "version: 1\nmode: dynamic\nfilesystem: {read: [/usr]}\n");
  static const struct expectation rows[] = {
      {"/usr/bin/ls", ACCESS_READ, VERDICT_ALLOW},
      {"/opt/x", ACCESS_READ, VERDICT_ASK},
      {"/opt/x", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/.ssh/x", ACCESS_READ, VERDICT_HIDE},
      {"/nohome/u/p/x", ACCESS_WRITE, VERDICT_ALLOW},
  };
  expect(policy, rows, ARRAY_SIZE(rows));
  policy->ask_writes = true;
  assert_int_equal(policy_decide(policy, "/opt/x", ACCESS_WRITE).verdict, VERDICT_ASK);
}

static void test_names_of_secrets(void **state) {
  (void)state;
  static const struct {
    const char *path;
    bool secret;
  } rows[] = {
      {"/srv/a/.env", true},         {"/srv/a/.env.local", true},
      {"/srv/a/prod.env", true},     {"/srv/a/id_rsa", true},
      {"/srv/.env/below", true},     {"/srv/a/.env.example", false},
      {"/srv/a/id_rsa.pub", false},  {"/srv/a/.envrc", false},
      {"/srv/a/env", false},         {"/srv/a/.env.a.sample", false},
      {"/srv/example.env/b", false}, {"/", false},
  };
  struct policy *policy = policy_new(&context);
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct decision decision = policy_decide(policy, rows[i].path, ACCESS_READ);
    if (decision.verdict != VERDICT_ASK || !decision.secret == rows[i].secret)
      fail_msg("%s: verdict %d, secret %s", rows[i].path, decision.verdict, decision.secret);
  }
  policy->mode = MODE_STATIC;
  assert_int_equal(policy_decide(policy, "/srv/a/.env", ACCESS_READ).verdict, VERDICT_ALLOW);
  policy_free(policy);
}

static void test_same_store_tie_goes_to_the_stricter(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  apply(policy, STORE_USER,
        "version: 1\nfilesystem: {hide: [/x/a], read: [/x/a, /x/b], write: [/x/b]}\n");
  assert_int_equal(policy_decide(policy, "/x/a", ACCESS_READ).verdict, VERDICT_HIDE);
  assert_int_equal(policy_decide(policy, "/x/b", ACCESS_WRITE).verdict, VERDICT_DENY);
}

static void test_decision_names_winner_and_loser(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  apply(policy, STORE_USER, "version: 1\nfilesystem:\n  read: [~/.ssh/known_hosts]\n");
  const char *path = "/nohome/u/.ssh/known_hosts";
  struct decision decision = policy_decide(policy, path, ACCESS_READ);
  assert_string_equal(decision.rule->written, "~/.ssh/known_hosts");
  assert_string_equal(decision.rule->origin.file, "test.yaml");
  assert_int_equal(decision.rule->origin.line, 3);
  assert_int_equal(decision.rule->origin.column, 10);
  assert_string_equal(policy_overridden(policy, path, ACCESS_READ, &decision)->written, "~/.ssh");
}

static void test_large_projects_are_not_writable(void **state) {
  (void)state;
  static const char *const projects[] = {"/", "/nohome", "/nohome/u"};
  for (size_t i = 0; i < ARRAY_SIZE(projects); i++) {
    struct policy_context large = context;
    large.project = projects[i];
    _cleanup_policy_ struct policy *policy = static_policy(&large);
    assert_int_equal(policy_decide(policy, "/nohome/u/x", ACCESS_WRITE).verdict, VERDICT_DENY);
    assert_int_equal(policy_decide(policy, "/nohome/u/x/.env", ACCESS_READ).verdict, VERDICT_HIDE);
  }
}

static void test_project_named_like_a_glob(void **state) {
  (void)state;
  struct policy_context odd = context;
  odd.project = "/nohome/u/[x]";
  _cleanup_policy_ struct policy *policy = static_policy(&odd);
  assert_int_equal(policy_decide(policy, "/nohome/u/[x]/.env", ACCESS_READ).verdict, VERDICT_HIDE);
  assert_int_equal(policy_decide(policy, "/nohome/u/x/.env", ACCESS_READ).verdict, VERDICT_ALLOW);
  assert_int_equal(policy_decide(policy, "/nohome/u/[x]/a", ACCESS_WRITE).verdict, VERDICT_ALLOW);
}

static const struct rule *find(const struct policy *policy, const char *pattern) {
  for (size_t i = 0; i < policy->rule_count; i++)
    if (strcmp(policy->rules[i].pattern, pattern) == 0)
      return &policy->rules[i];
  return NULL;
}

static void test_writable_home_guards_start_up_files(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  _cleanup_error_ struct sb_error error = {0};
  assert_true(find(policy, "/nohome/u/p/.bashrc")->if_present_only);
  assert_null(find(policy, "/nohome/u/.bashrc"));
  assert_int_equal(
      policy_add_flag(policy, &context, RULE_WRITE, "/nohome", "/nohome", "--rw", &error), 0);
  assert_false(find(policy, "/nohome/u/.bashrc")->if_present_only);
  assert_true(find(policy, "/nohome/.bashrc")->if_present_only);
  assert_null(find(policy, "/nohome/.local/bin"));
  assert_false(find(policy, "/nohome/u/.local/bin")->if_present_only);
  static const struct expectation rows[] = {
      {"/nohome/u/.bashrc", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/notes", ACCESS_WRITE, VERDICT_ALLOW},
      {"/nohome/u/.config/sandbox/policy.yaml", ACCESS_WRITE, VERDICT_DENY},
      {"/nohome/u/.ssh/id_rsa", ACCESS_READ, VERDICT_HIDE},
  };
  expect(policy, rows, ARRAY_SIZE(rows));
}

/* What everybody may read without a question has credentials in it, too. */
static void test_secrets_in_the_base_list(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = policy_new(&context);
  policy_add_base(policy, &context);
  static const struct {
    const char *secret, *beside; /* the control: the place as such is readable */
  } places[] = {
      {".rye/credentials", ".rye/config.toml"},
      {".conda/.condarc", ".conda/environments.txt"},
      {".config/mise/age.txt", ".config/mise/config.toml"},
      {".config/mise/github_tokens.toml", ".config/mise/config.toml"},
      {".opam/plugins/opam-publish/name.token", ".opam/config"},
      {".deno/deployctl/credentials.json", ".deno/bin/deno"},
      {".npm-global/etc/npmrc", ".npm-global/bin/tool"},
      {".julia/servers/pkg.example/auth.toml", ".julia/packages/x"},
      {".julia/logs/repl_history.jl", ".julia/logs/manifest_usage.toml"},
      {".dotnet/corefx/cryptography/x509stores/my/1.pfx", ".dotnet/dotnet"},
      {".config/fish/fish_variables", ".config/fish/config.fish"},
      {".config/composer/auth.json", ".config/composer/composer.json"},
      {".gem/credentials", ".gem/specs/x"},
      {".cargo/credentials.toml", ".cargo/config.toml"},
      {".vim/.netrwhist", ".vim/vimrc"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    _cleanup_free_ char *secret = xasprintf("%s/%s", context.home, places[i].secret);
    _cleanup_free_ char *beside = xasprintf("%s/%s", context.home, places[i].beside);
    const struct expectation rows[] = {{secret, ACCESS_READ, VERDICT_HIDE},
                                       {beside, ACCESS_READ, VERDICT_ALLOW}};
    expect(policy, rows, ARRAY_SIZE(rows));
  }
  static const struct expectation rows[] = {
      {"/srv/data/nvim/shada/main.shada", ACCESS_READ, VERDICT_HIDE},
      {"/etc/apt/auth.conf.d/private.conf", ACCESS_READ, VERDICT_HIDE},
      {"/etc/apt/sources.list", ACCESS_READ, VERDICT_ALLOW},
  };
  expect(policy, rows, ARRAY_SIZE(rows));
}

static void test_tables_are_well_formed(void **state) {
  (void)state;
  for (const struct secret *secret = secret_table; secret->pattern; secret++) {
    assert_non_null(secret->why);
    assert_non_null(strchr("~/$*", secret->pattern[0]));
    assert_null(strstr(secret->pattern, "//"));
    assert_true(secret->pattern[strlen(secret->pattern) - 1] != '/');
  }
  for (const struct protected_name *name = protected_table; name->name; name++) {
    assert_non_null(name->why);
    assert_true(name->name[0] != '/' && !strpbrk(name->name, "*?["));
    for (const struct protected_name *other = protected_table; other < name; other++)
      assert_string_not_equal(other->name, name->name);
  }
}

/* The quick answer for hundreds of rules is the one that the decision gives. */
static void test_literal_hides_of_their_own_paths(void **state) {
  (void)state;
  static const struct {
    enum policy_store store;
    const char *text;
  } stores[] = {
      {STORE_USER, "version: 1\nfilesystem: {read: ['~/.ssh', '~/.aws/config', '~/.gnupg/**', '/', "
                   "'~/*'], write: ['~/.kube'], hide: ['~/.ssh/config', '~/.kube']}\n"},
      {STORE_FLAGS, "version: 1\nfilesystem: {read: ['~/.kube', '~/.docker', '~/.netrc']}\n"},
      {STORE_ORG, "version: 1\nfilesystem: {hide: ['~/.netrc', '~/.gnupg']}\n"},
  };
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  size_t hidden = 0, shown = 0;
  for (size_t round = 0; round <= ARRAY_SIZE(stores); round++) {
    for (size_t i = 0; i < policy->rule_count; i++) {
      const struct rule *rule = &policy->rules[i];
      if (rule->kind != RULE_HIDE || rule->is_glob)
        continue;
      bool hides = policy_hides_itself(policy, rule);
      struct decision decision = policy_decide(policy, rule->pattern, ACCESS_READ);
      assert_int_equal(hides, decision.verdict == VERDICT_HIDE);
      hidden += hides;
      shown += !hides;
    }
    if (round < ARRAY_SIZE(stores))
      apply(policy, stores[round].store, stores[round].text);
  }
  assert_true(hidden > 400 && shown > 3);
}

static void test_environment(void **state) {
  (void)state;
  _cleanup_policy_ struct policy *policy = static_policy(&context);
  strv_add(&policy->environment_pass, "MY_*");
  static const struct {
    const char *name;
    bool passes;
  } rows[] = {{"PATH", true},
              {"LC_ALL", true},
              {"GITHUB_TOKEN", false},
              {"MY_FLAG", true},
              {"LD_PRELOAD", false},
              {"SSH_AUTH_SOCK", false},
              {"AWS_SECRET_ACCESS_KEY", false},
              {"PATHX", false},
              {"", false}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    assert_int_equal(environment_passes(policy, rows[i].name), rows[i].passes);
  static const char *const suspicious[] = {"TOKEN",      "SECRET", "PASSW",
                                           "CREDENTIAL", "_KEY",   "AUTH_"};
  for (const char *const *name = environment_table; *name; name++)
    for (size_t i = 0; i < ARRAY_SIZE(suspicious); i++)
      assert_null(strstr(*name, suspicious[i]));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_builtin),
    cmocka_unit_test(test_specificity_and_stores),
    cmocka_unit_test(test_dynamic_mode_asks),
    cmocka_unit_test(test_names_of_secrets),
    cmocka_unit_test(test_same_store_tie_goes_to_the_stricter),
    cmocka_unit_test(test_decision_names_winner_and_loser),
    cmocka_unit_test(test_large_projects_are_not_writable),
    cmocka_unit_test(test_project_named_like_a_glob),
    cmocka_unit_test(test_writable_home_guards_start_up_files),
    cmocka_unit_test(test_secrets_in_the_base_list),
    cmocka_unit_test(test_tables_are_well_formed),
    cmocka_unit_test(test_literal_hides_of_their_own_paths),
    cmocka_unit_test(test_environment),
};

UNIT_MAIN(tests)
