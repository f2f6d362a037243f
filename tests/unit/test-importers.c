/* Foreign settings as our policy: what is said, what is listed as lost, and that the result is a
 * policy that loads. */
#include "unit.h"

#include "core/alloc.h"
#include "core/cleanup.h"
#include "policy/importers/importer.h"
#include "policy/load.h"
#include "policy/policy.h"

/* The imported policy, loaded on top of the built-in one. */
static struct policy *import(const char *format, const char *file, const char *text,
                             struct import_result *ret) {
  _cleanup_error_ struct sb_error error = {0};
  static char *const environment[] = {NULL};
  static const struct policy_context context = {.home = "/home/ann",
                                                .project = "/home/ann/shop",
                                                .org_folder = "/nonexistent",
                                                .environment = environment};
  if (policy_import_foreign(format, file, text, strlen(text), ret, &error) < 0)
    fail_msg("%s", error.message);
  struct policy *policy = policy_new(&context);
  const struct policy_source source = {
      .file = "made.yaml", .store = STORE_USER, .data = ret->policy, .length = strlen(ret->policy)};
  if (policy_apply(policy, &context, &source, &error) < 0)
    fail_msg("%s\n%s", error.message, ret->policy);
  return policy;
}

static bool has_rule(const struct policy *policy, enum rule_kind kind, const char *pattern) {
  for (size_t i = 0; i < policy->rule_count; i++)
    if (policy->rules[i].kind == kind && policy->rules[i].origin.store == STORE_USER &&
        strcmp(policy->rules[i].pattern, pattern) == 0)
      return true;
  return false;
}

static bool has_line(const struct strv *lines, const char *part) {
  STRV_FOREACH (line, lines)
    if (strstr(*line, part))
      return true;
  return false;
}

static void test_dive(void **state) {
  (void)state;
  static const char text[] = "sandbox:\n"
                             "  enabled: true\n"
                             "  allow_network: false\n"
                             "  allowed_write_paths:\n"
                             "    - ~/.cache/go-build\n"
                             "    - /srv/[x]$y\n"
                             "  environment: {FOO: \"a: b\"}\n"
                             "  docker:\n"
                             "    image: \"node:20-slim\"\n"
                             "    command: podman\n"
                             "    additional_mounts: [\"/a:/a:ro\", \"/b:/b\", \"/c:/d\"]\n"
                             "    ports:\n"
                             "      - \"3000\"\n"
                             "      - \"9229\" # Node debugger\n"
                             "  seatbelt:\n"
                             "    profile: permissive\n"
                             "    custom_profile_path: ~/x.sb\n"
                             "  shiny: 1\n"
                             "agents: []\n";
  _cleanup_import_ struct import_result result = {0};
  _cleanup_policy_ struct policy *policy = import(NULL, "dive.yaml", text, &result);
  assert_string_equal(result.format, "dive");
  assert_int_equal(policy->mode, MODE_STATIC);
  assert_int_equal(policy->network.mode, NETWORK_NONE);
  assert_true(has_rule(policy, RULE_WRITE, "/home/ann/.cache/go-build"));
  assert_true(has_rule(policy, RULE_WRITE, "/srv/[x]$y"));
  assert_true(has_rule(policy, RULE_READ, "/a") && has_rule(policy, RULE_WRITE, "/b"));
  assert_true(strv_contains(&policy->environment_set, "FOO=a: b"));
  assert_true(strv_contains(&policy->network.publish, "3000:3000"));
  assert_string_equal(policy->backend, "podman");
  assert_int_equal(policy->seatbelt.profile, SEATBELT_PERMISSIVE);
  assert_string_equal(policy->seatbelt.custom_profile, "~/x.sb");
  assert_true(has_line(&result.lost, "dive.yaml:11: /c:/d: "));
  assert_true(has_line(&result.lost, "dive.yaml:18: shiny: "));
  assert_true(has_line(&result.lost, "dive.yaml:19: agents: not about the sandbox"));
  assert_true(has_line(&result.notes, "require: preferred"));
}

static void test_claude(void **state) {
  (void)state;
  static const char text[] =
      "{\n"
      "  \"$schema\": \"x\",\n"
      "  \"permissions\": {\"allow\": [\"Edit(docs/**)\", \"Bash(ls:*)\", \"WebFetch(domain:a.b)\"],\n"
      "                  \"deny\": [\"Read(./.secret)\", \"Edit(//etc/x)\"]},\n"
      "  \"hooks\": {\"PreToolUse\": [{\"hooks\": [{\"type\": \"command\"}]}]},\n"
      "  \"sandbox\": {\n"
      "    \"enabled\": true, \"failIfUnavailable\": false,\n"
      "    \"autoAllowBashIfSandboxed\": false,\n"
      "    \"excludedCommands\": [\"docker\", \"kubectl:*\", \"npm run test\"],\n"
      "    \"allowUnsandboxedCommands\": true,\n"
      "    \"enableWeakerNestedSandbox\": false,\n"
      "    \"network\": {\n"
      "      \"allowedDomains\": [\"github.com\", \"*.npmjs.org\", \"http://bad\"],\n"
      "      \"deniedDomains\": [\"evil.example\"],\n"
      "      \"allowUnixSockets\": [\"~/.ssh/agent\"], \"allowAllUnixSockets\": true,\n"
      "      \"allowLocalBinding\": false,\n"
      "      \"httpProxyPort\": 8080, \"socksProxyPort\": 1080},\n"
      "    \"filesystem\": {\"allowWrite\": [\"~/.kube\", \"//tmp/build\", \"a$b\"],\n"
      "                   \"denyWrite\": [\"Makefile\"], \"denyRead\": [\"~/.aws\", \"**/*.key\"],\n"
      "                   \"allowRead\": [\"~/.aws/config\"]},\n"
      "    \"ignoreViolations\": {}}}\n";
  _cleanup_import_ struct import_result result = {0};
  _cleanup_policy_ struct policy *policy = import(NULL, "/p/.claude/settings.json", text, &result);
  assert_string_equal(result.format, "claude");
  assert_int_equal(policy->require, REQUIRE_PREFERRED);
  assert_false(policy->commands.auto_allow || policy->weaker_nested);
  assert_true(policy->commands.allow_unsandboxed && policy->commands.allow_bypass);
  assert_int_equal(policy->commands.exclude.count, 2);
  assert_true(strv_contains(&policy->commands.exclude, "kubectl"));
  assert_int_equal(policy->network.mode, NETWORK_FILTERED);
  assert_int_equal(policy->network.allow.count, 3);
  assert_true(strv_contains(&policy->network.deny, "evil.example"));
  assert_true(strv_contains(&policy->network.unix_sockets, "/home/ann/.ssh/agent"));
  assert_false(policy->network.allow_local_binding);
  assert_string_equal(policy->network.http_proxy, "http://127.0.0.1:8080");
  assert_string_equal(policy->network.socks_proxy, "socks5://127.0.0.1:1080");
  assert_true(has_rule(policy, RULE_WRITE, "/tmp/build"));
  assert_true(has_rule(policy, RULE_WRITE, "/home/ann/shop/a$b"));
  assert_true(has_rule(policy, RULE_PROTECT, "/home/ann/shop/Makefile"));
  assert_true(has_rule(policy, RULE_HIDE, "/home/ann/shop/**/*.key"));
  assert_true(has_rule(policy, RULE_READ, "/home/ann/.aws/config"));
  assert_true(has_rule(policy, RULE_HIDE, "/home/ann/shop/.secret"));
  assert_true(has_rule(policy, RULE_PROTECT, "/etc/x"));
  static const char *const lost[] = {":3: Bash(ls:*)",  ":5: hooks",           ":9: npm run test",
                                     ":13: http://bad", "allowAllUnixSockets", "ignoreViolations"};
  for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
    if (!has_line(&result.lost, lost[i]))
      fail_msg("not listed: %s", lost[i]);
  assert_int_equal(result.lost.count, ARRAY_SIZE(lost));
}

/* Seed 001's own example. */
static void test_claude_defaults(void **state) {
  (void)state;
  _cleanup_import_ struct import_result result = {0};
  _cleanup_policy_ struct policy *policy =
      import("claude", "s.json",
             "{\"sandbox\": {\"enabled\": false, \"excludedCommands\": [\"x\"]}}", &result);
  assert_int_equal(policy->require, REQUIRE_DISABLED);
  assert_true(policy->commands.allow_unsandboxed);
  assert_int_equal(policy->network.mode, NETWORK_NONE);
  assert_int_equal(result.lost.count, 0);
  assert_int_equal(result.notes.count, 2);
}

static void test_srt(void **state) {
  (void)state;
  _cleanup_import_ struct import_result result = {0}, other = {0};
  _cleanup_policy_ struct policy *policy =
      import(NULL, "/home/ann/.srt-settings.json",
             "{\"network\": {\"allowedDomains\": [], \"deniedDomains\": []},\n"
             " \"filesystem\": {\"denyRead\": [\"~/.ssh\"], \"allowWrite\": [\"dist\"],\n"
             "  \"denyWrite\": []}, \"allowPty\": true, \"new\": {\"a\": 1}}",
             &result);
  assert_int_equal(policy->network.mode, NETWORK_NONE);
  /* Only what it lists is writable. */
  assert_int_equal(policy_decide(policy, "/home/ann/shop/x", ACCESS_WRITE).verdict, VERDICT_DENY);
  assert_int_equal(policy_decide(policy, "/home/ann/shop/dist/x", ACCESS_WRITE).verdict,
                   VERDICT_ALLOW);
  assert_int_equal(result.lost.count, 1);
  assert_true(has_line(&result.lost, ":3: new: "));
  _cleanup_policy_ struct policy *with =
      import("srt", "x", "{\"filesystem\": {\"allowWrite\": [\".\"]}}", &other);
  assert_int_equal(policy_decide(with, "/home/ann/shop/x", ACCESS_WRITE).verdict, VERDICT_ALLOW);
}

static void test_mycode(void **state) {
  (void)state;
  static const char text[] =
      "{\"type\": \"firejail\", \"enabled\": true, \"image\": \"x\", \"profile\": \"p\",\n"
      " \"limits\": {\"cpuPercent\": 50, \"memoryMB\": 512, \"diskMB\": 1024, \"timeoutSeconds\": 60,\n"
      "  \"maxProcesses\": 50},\n"
      " \"network\": {\"enabled\": true, \"allowedHosts\": [\"a.b\"], \"blockedPorts\": [25]},\n"
      " \"filesystem\": {\"readOnly\": [\"/opt/sdk\"], \"readWrite\": [\"/srv/x\"],\n"
      "  \"hidden\": [\"/etc/passwd\"], \"tempDir\": \"/tmp/m\"}}";
  _cleanup_import_ struct import_result result = {0};
  _cleanup_policy_ struct policy *policy = import(NULL, "sandbox.json", text, &result);
  assert_string_equal(result.format, "mycode");
  assert_string_equal(policy->backend, "firejail");
  assert_int_equal((int)policy->limits.cpu_percent, 50);
  assert_int_equal(policy->limits.memory_mb, 512);
  assert_int_equal(policy->limits.disk_mb, 1024);
  assert_int_equal(policy->limits.timeout_seconds, 60);
  assert_int_equal(policy->limits.max_processes, 50);
  assert_int_equal(policy->network.mode, NETWORK_FILTERED);
  assert_true(has_rule(policy, RULE_READ, "/opt/sdk") && has_rule(policy, RULE_WRITE, "/srv/x") &&
              has_rule(policy, RULE_HIDE, "/etc/passwd"));
  assert_true(strv_contains(&policy->network.allow, "a.b") &&
              strv_contains(&policy->network.deny, "*:25"));
  assert_int_equal(result.lost.count, 2);
  assert_true(has_line(&result.lost, ":6: filesystem.tempDir"));
  assert_true(has_line(&result.lost, ":1: profile"));
}

static void test_neuraphage(void **state) {
  (void)state;
  static const char text[] = "title = \"x\"\n"
                             "[sandbox]\n"
                             "enabled = true\n"
                             "isolate_network = false\n"
                             "extra_rw_paths = [\"/home/user/.cargo\", '/a*b']\n"
                             "extra_ro_paths = [\"/opt/tools\"] # a comment\n"
                             "when = 2026-11-15\n"
                             "[other]\nx = 1\n";
  _cleanup_import_ struct import_result result = {0}, auto_result = {0};
  _cleanup_policy_ struct policy *policy = import(NULL, "config.toml", text, &result);
  assert_int_equal(policy->require, REQUIRE_REQUIRED);
  assert_int_equal(policy->network.mode, NETWORK_FULL);
  assert_true(has_rule(policy, RULE_WRITE, "/home/user/.cargo"));
  assert_true(has_rule(policy, RULE_WRITE, "/a*b"));
  assert_true(has_rule(policy, RULE_READ, "/opt/tools"));
  assert_true(has_line(&result.lost, "config.toml:7: when: "));
  assert_true(has_line(&result.lost, "config.toml:1: title: not about"));
  assert_int_equal(result.lost.count, 3);
  _cleanup_policy_ struct policy *without =
      import("neuraphage", "c.toml", "[sandbox]\nisolate_pids = true\n", &auto_result);
  assert_int_equal(without->require, REQUIRE_PREFERRED);
  assert_int_equal(auto_result.lost.count, 0);
}

static void test_recognised(void **state) {
  (void)state;
  static const struct {
    const char *file, *text, *format;
  } rows[] = {
      {"x", "{\"sandbox\": {\"network\": {\"allowedDomains\": []}}}", "claude"},
      {"x", "{\"sandbox\": {\"filesystem\": {\"denyRead\": []}}}", "claude"},
      {"x", "{\"filesystem\": {\"denyRead\": []}}", "srt"},
      {"x", "{\"network\": {\"allowedDomains\": []}}", "srt"},
      {"x", "{\"sandbox\": {\"type\": \"docker\"}}", "mycode"},
      {"x", "{\"limits\": {\"memoryMB\": 5}, \"filesystem\": {\"hidden\": []}}", "mycode"},
      {"x", "sandbox: {allow_network: true}", "dive"},
      {"x", "allowed_write_paths: []", "dive"},
      {"x.toml", "[sandbox]\nisolate_network = true", "neuraphage"},
      {"/home/ann/.claude/settings.json", "{}", "claude"},
      {"dive.yaml", "sandbox: {enabled: true}", "dive"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_import_ struct import_result result = {0};
    _cleanup_policy_ struct policy *policy = import(NULL, rows[i].file, rows[i].text, &result);
    assert_true(policy->key_count > 0);
    assert_string_equal(result.format, rows[i].format);
  }
}

static void test_errors_name_the_place(void **state) {
  (void)state;
  static const struct {
    const char *format, *file, *text, *message;
  } rows[] = {
      {"claude", "s.json", "{\"sandbox\": {\n\"enabled\": 1}}",
       "s.json:2:12: enabled must be true"},
      {"claude", "s.json", "{\"sandbox\": {\n\"excludedCommands\": \"x\"}}", "s.json:2:21: "},
      {"claude", "s.json", "{\"sandbox\": {\n", "s.json:2:1: "},
      {"claude", "s.json", "{\"sandbox\": {\"network\": {\"httpProxyPort\": 99999}}}",
       "from 1 to 65535"},
      {"claude", "s.json", "{\"sandbox\": {\"enabled\": true,\n \"enabled\": false}}",
       "s.json:2:2: 'enabled' is written twice"},
      {"claude", "s.json", "[]", "must be a mapping"},
      {"dive", "d.yaml", "sandbox:\n  docker: {command: rkt}\n",
       "d.yaml:2:21: docker.command must"},
      {"mycode", "m.json", "{\"limits\": {\"memoryMB\": \"much\"}}",
       "m.json:1:25: limits.memoryMB"},
      {"mycode", "m.json", "{\"limits\": {\"cpuPercent\": nan}}", "limits.cpuPercent must be"},
      {"mycode", "m.json", "{\"limits\": {\"memoryMB\": 1.5}}", "limits.memoryMB must be"},
      {"neuraphage", "c.toml", "[sandbox]\nenabled = yes\n", "c.toml:2:"},
      {"neuraphage", "c.toml", "[sandbox]\nenabled = \"yes\"\n", "c.toml:2:11: enabled must be"},
      {"nosuch", "x", "{}", "unknown format 'nosuch'"},
      {NULL, "x.json", "{\"a\": 1}", "x.json: not a format known here"},
      {NULL, "x.toml", "a = 1\n", "x.toml: not a format known here"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_import_ struct import_result result = {0};
    _cleanup_error_ struct sb_error error = {0};
    assert_int_equal(policy_import_foreign(rows[i].format, rows[i].file, rows[i].text,
                                           strlen(rows[i].text), &result, &error),
                     -1);
    if (!strstr(error.message, rows[i].message))
      fail_msg("'%s' is not in '%s'", rows[i].message, error.message);
  }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_dive),
    cmocka_unit_test(test_claude),
    cmocka_unit_test(test_claude_defaults),
    cmocka_unit_test(test_srt),
    cmocka_unit_test(test_mycode),
    cmocka_unit_test(test_neuraphage),
    cmocka_unit_test(test_recognised),
    cmocka_unit_test(test_errors_name_the_place),
};

UNIT_MAIN(tests)
