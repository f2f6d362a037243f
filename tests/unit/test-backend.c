/* Back ends: the tables, the choice of rights by ABI, the extra filter, and Landlock alone with
 * every ABI that the running kernel has, each attempt made free and confined. */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/landlock.h"
#include "bpf.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "engine/landlock.h"

/* ---- tables ---- */

static void test_names(void **state) {
  (void)state;
  for (int i = 0; i < FEATURE_COUNT; i++) {
    assert_non_null(backend_feature_name(i));
    _cleanup_strv_ struct strv words = {0};
    backend_describe_features(UINT64_C(1) << i, &words);
    assert_non_null(words.items[0]);
    for (int j = 0; j < i; j++)
      assert_string_not_equal(backend_feature_name(i), backend_feature_name(j));
  }
  assert_ptr_equal(backends[0], &native_backend);
}

static void test_unknown_name(void **state) {
  (void)state;
  _cleanup_error_ struct sb_error error = {0};
  assert_null(backend_find("landlok", &error));
  assert_non_null(strstr(error.hint, "'landlock'"));
  assert_ptr_equal(backend_find("native", &error), &native_backend);
}

static void test_versions(void **state) {
  (void)state;
  static const struct {
    const char *text;
    struct tool_version version;
  } rows[] = {
      {"bubblewrap 0.8.0\n", {0, 8, 0}},
      {"firejail version 0.9.72\n\nCompile time", {0, 9, 72}},
      {"Docker version 20.10.24+dfsg1, build 297e128", {20, 10, 24}},
      {"podman version 4.3.1", {4, 3, 1}},
      {"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)", {7, 2, 22}},
      {"tool 3.1", {3, 1, 0}},
  };
  struct tool_version version;
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    assert_true(tool_parse_version(rows[i].text, &version));
    assert_memory_equal(&version, &rows[i].version, sizeof version);
  }
  assert_false(tool_parse_version("no number, v2 only", &version));
  assert_true(tool_at_least((struct tool_version){0, 11, 0}, 0, 8, 9));
  assert_true(tool_at_least((struct tool_version){1, 0, 0}, 0, 11, 0));
  assert_false(tool_at_least((struct tool_version){0, 8, 0}, 0, 11, 0));
}

static void test_needs_of_a_policy(void **state) {
  (void)state;
  struct policy policy = {
      .mode = MODE_STATIC, .debug = true, .network = {NETWORK_NONE, .allow_local_binding = true}};
  struct limit_set limits = {0};
  assert_int_equal(backend_policy_features(&policy, &limits), FEATURE(NETWORK_NONE));
  policy.network.allow_local_binding = false;
  assert_int_equal(backend_policy_features(&policy, &limits),
                   FEATURE(NETWORK_NONE) | FEATURE(NO_LISTENING));
  policy.network.allow_local_binding = true;
  policy.mode = MODE_DYNAMIC;
  policy.debug = false;
  policy.network.mode = NETWORK_FILTERED;
  limits.value[LIMIT_MEMORY] = limits.value[LIMIT_INODES] = 1;
  assert_int_equal(backend_policy_features(&policy, &limits),
                   FEATURE(ASK) | FEATURE(NO_DEBUG) | FEATURE(NETWORK_FILTERED) |
                       FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_DISK));
  policy.network.driver = "pasta";
  assert_true(backend_policy_features(&policy, &limits) & FEATURE(NETWORK_DRIVER));
  policy.network.mode = NETWORK_NONE;
  assert_false(backend_policy_features(&policy, &limits) & FEATURE(NETWORK_DRIVER));
}

static void test_needs_of_a_plan(void **state) {
  (void)state;
  _cleanup_plan_ struct plan plan = {0};
  plan_add(&plan, OPERATION_WRITABLE, "/p", NULL, NULL);
  plan_add(&plan, OPERATION_MASK, "/proc/kcore", NULL, NULL);
  assert_int_equal(backend_plan_features(&plan), 0);
  plan_add(&plan, OPERATION_MASK, "/home/a/.ssh", NULL, NULL);
  assert_int_equal(backend_plan_features(&plan), FEATURE(HIDE));
  plan_add(&plan, OPERATION_MASK, "/p/.env", NULL, NULL);
  plan_add(&plan, OPERATION_PROTECT, "/p/.git/config", NULL, NULL);
  plan_add(&plan, OPERATION_PROTECT, "/p/link", NULL, NULL)->flags = OPERATION_NOFOLLOW;
  plan_add(&plan, OPERATION_READONLY, "/p/vendor", NULL, NULL);
  plan_add(&plan, OPERATION_PLACEHOLDER_FOLDER, "/p/.claude", NULL, NULL);
  assert_int_equal(backend_plan_features(&plan),
                   FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) |
                       FEATURE(PROTECT_LINKS) | FEATURE(READONLY_IN_WRITABLE) | FEATURE(RESERVE));
}

/* What the native engine's compiler refuses and what its row of the table says must agree. */
static void test_native_features_are_true(void **state) {
  (void)state;
  _cleanup_host_ struct host_context host = {0};
  _cleanup_error_ struct sb_error error = {0};
  assert_int_equal(host_context_load(&host, &error), 0);
  static const uint64_t rows[] = {
      FEATURE(ASK),          FEATURE(NETWORK_FILTERED), FEATURE(NETWORK_FULL),    FEATURE(PUBLISH),
      FEATURE(UNIX_SOCKETS), FEATURE(CONTAINERS),       FEATURE(VIRTUAL_MACHINES)};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    _cleanup_policy_ struct policy *policy = policy_new(&host.policy);
    policy->mode = rows[i] == FEATURE(ASK) ? MODE_DYNAMIC : MODE_STATIC;
    policy->network.mode = rows[i] == FEATURE(NETWORK_FILTERED) ? NETWORK_FILTERED
                           : rows[i] == FEATURE(NETWORK_FULL)   ? NETWORK_FULL
                                                                : NETWORK_NONE;
    if (rows[i] == FEATURE(PUBLISH))
      strv_add(&policy->network.publish, "8080:80");
    if (rows[i] == FEATURE(UNIX_SOCKETS))
      strv_add(&policy->network.unix_sockets, "/run/x");
    policy->containers = rows[i] == FEATURE(CONTAINERS);
    policy->vm.enabled = rows[i] == FEATURE(VIRTUAL_MACHINES);
    struct limit_set none = {0};
    assert_int_equal(backend_policy_features(policy, &none) & rows[i], rows[i]);
    char *command[] = {"true", NULL};
    struct plan_request request = {
        .host = &host, .policy = policy, .session_id = "test", .command = command};
    _cleanup_plan_ struct plan plan = {0};
    int result = plan_begin(&request, &plan, &error);
    if ((result == 0) != ((native_backend.features & rows[i]) != 0))
      fail_msg("row %zu: the plan says %d, src/backend/native.c says otherwise", i, result);
    sb_error_clear(&error);
  }
}

/* Every shell and JSON reader must get the same bytes back. */
static void test_words_for_a_shell(void **state) {
  (void)state;
  _cleanup_wrapped_ struct wrapped wrapped = WRAPPED_NONE;
  wrapped_words(&wrapped, "printf", "a b", "it's", "$HOME", "", NULL);
  strv_add(&wrapped.environment, "X=1 2");
  wrapped_add_descriptor(&wrapped, "\0\1", 2);
  _cleanup_free_ char *text = wrapped_to_text(&wrapped);
  assert_string_equal(text, "env -i 'X=1 2' printf 'a b' 'it'\\''s' '$HOME' '' "
                            "3< <(base64 -d <<< AAE=)\n");
}

/* ---- Landlock: what each ABI can do (pure) ---- */

#define REFER    (1ULL << 13)
#define TRUNCATE (1ULL << 14)
#define IOCTL    (1ULL << 15)

static void test_rights_by_abi(void **state) {
  (void)state;
  static const struct {
    int abi;
    uint64_t has, lacks;
    bool network, scopes, signals;
  } rows[] = {
      {1, 0x1fff, REFER | TRUNCATE | IOCTL, false, false, false},
      {2, 0x1fff | REFER, TRUNCATE | IOCTL, false, false, false},
      {3, 0x1fff | REFER | TRUNCATE, IOCTL, false, false, false},
      {4, 0x1fff | REFER | TRUNCATE, IOCTL, true, false, false},
      {5, 0x1fff | REFER | TRUNCATE | IOCTL, 0, true, false, false},
      {6, 0x1fff | REFER | TRUNCATE | IOCTL, 0, true, true, true},
      {7, 0x1fff | REFER | TRUNCATE | IOCTL, 0, true, true, true},
      {99, 0x1fff | REFER | TRUNCATE | IOCTL, 0, true, true, true},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    struct landlock_rights rights = landlock_rights_of(rows[i].abi);
    assert_int_equal(rights.handled_fs & rows[i].has, rows[i].has);
    assert_int_equal(rights.handled_fs & rows[i].lacks, 0);
    assert_int_equal(rights.handled_network != 0, rows[i].network);
    assert_int_equal(rights.scoped != 0, rows[i].scopes);
    assert_int_equal((landlock_features_of(rows[i].abi) & FEATURE(SIGNAL_ISOLATION)) != 0,
                     rows[i].signals);
    /* What is lost is said, unless nothing is. */
    assert_int_equal(landlock_remark_of(rows[i].abi) != NULL, rows[i].abi < 5);
  }
  assert_int_equal(landlock_rights_of(0).handled_fs, 0);
  assert_int_equal(landlock_features_of(0), 0);
}

/* ---- the extra filter (pure) ---- */

/* The calls of 64-bit programs, and of 32-bit ones. */
#if defined(__x86_64__)
#define SOCKET           AUDIT_ARCH_X86_64, 41
#define SOCKETPAIR       AUDIT_ARCH_X86_64, 53
#define PRLIMIT          AUDIT_ARCH_X86_64, 302
#define TRUNCATE_FILE    AUDIT_ARCH_X86_64, 76
#define OPEN             AUDIT_ARCH_X86_64, 2
#define OPENAT           AUDIT_ARCH_X86_64, 257
#define OPENAT2          AUDIT_ARCH_X86_64, 437
#define READ             AUDIT_ARCH_X86_64, 0
#define OTHER_SOCKET     AUDIT_ARCH_I386, 359
#define OTHER_SOCKETPAIR AUDIT_ARCH_I386, 360
#define OTHER_PRLIMIT    AUDIT_ARCH_I386, 340
#define OTHER_TRUNCATE64 AUDIT_ARCH_I386, 193
#define OTHER_OPEN       AUDIT_ARCH_I386, 5
#elif defined(__aarch64__)
#define SOCKET           AUDIT_ARCH_AARCH64, 198
#define SOCKETPAIR       AUDIT_ARCH_AARCH64, 199
#define PRLIMIT          AUDIT_ARCH_AARCH64, 261
#define TRUNCATE_FILE    AUDIT_ARCH_AARCH64, 45
#define OPENAT           AUDIT_ARCH_AARCH64, 56
#define OPENAT2          AUDIT_ARCH_AARCH64, 437
#define READ             AUDIT_ARCH_AARCH64, 63
#define OTHER_SOCKET     AUDIT_ARCH_ARM, 281
#define OTHER_SOCKETPAIR AUDIT_ARCH_ARM, 288
#define OTHER_PRLIMIT    AUDIT_ARCH_ARM, 369
#define OTHER_TRUNCATE64 AUDIT_ARCH_ARM, 193
#define OTHER_OPEN       AUDIT_ARCH_ARM, 5
#endif

static uint32_t judge(bool network, bool guard, uint32_t architecture, int number, uint64_t first,
                      uint64_t second, uint64_t third) {
  struct sock_filter filter[LANDLOCK_FILTER_MAX + 1];
  struct sock_fprog program = {.filter = filter};
  program.len = (unsigned short)landlock_filter(network, guard, filter);
  assert_in_range(program.len, 1, LANDLOCK_FILTER_MAX);
  /* In the place of our own filter, which comes next. */
  filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct seccomp_data data = {.nr = number, .arch = architecture, .args = {first, second, third}};
  int loads;
  return bpf_run(&program, &data, &loads);
}

static void test_filter(void **state) {
  (void)state;
  static const struct {
    bool network, guard, refused;
    uint32_t architecture;
    int number;
    uint64_t arguments[3];
  } rows[] = {
    {false, false, true, SOCKET, {AF_INET, SOCK_STREAM}},
    {false, false, true, SOCKET, {AF_INET6, SOCK_DGRAM}},
    {false, false, true, SOCKET, {AF_UNIX, SOCK_STREAM}},
    {false, false, false, SOCKET, {AF_NETLINK, SOCK_RAW}},
    {true, false, false, SOCKET, {AF_INET, SOCK_STREAM}},
    {true, false, false, SOCKET, {AF_INET6, SOCK_DGRAM}},
    {true, false, false, SOCKET, {AF_NETLINK, SOCK_RAW}},
    {true, false, true, SOCKET, {AF_UNIX, SOCK_STREAM}},
    {false, false, true, OTHER_SOCKET, {AF_INET, SOCK_STREAM}},
    {false, false, false, SOCKETPAIR, {AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC}},
    {false, false, false, SOCKETPAIR, {AF_UNIX, SOCK_SEQPACKET}},
    {false, false, true, SOCKETPAIR, {AF_UNIX, SOCK_DGRAM}},
    {false, false, true, SOCKETPAIR, {AF_UNIX, SOCK_RAW}},
    {false, false, true, OTHER_SOCKETPAIR, {AF_UNIX, SOCK_DGRAM}},
    {false, false, false, PRLIMIT, {0, 7}},
    {false, false, true, PRLIMIT, {1234, 7}},
    {false, false, true, OTHER_PRLIMIT, {1234, 7}},
    {false, false, false, TRUNCATE_FILE, {0}},
    {false, true, true, TRUNCATE_FILE, {0}},
    {false, true, true, OTHER_TRUNCATE64, {0}},
    {false, true, true, OPENAT, {0, 0, O_RDONLY | O_TRUNC}},
    {false, true, true, OTHER_OPEN, {0, O_RDONLY | O_TRUNC | O_CREAT}},
#if defined(__x86_64__)
    {false, true, true, OPEN, {0, O_RDONLY | O_TRUNC | O_CREAT}},
#endif
    {false, true, false, OPENAT, {0, 0, O_WRONLY | O_TRUNC}},
    {false, true, false, OPENAT, {0, 0, O_RDONLY}},
    {false, true, true, OPENAT2, {0}},
    {false, true, false, READ, {0}},
  };
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    uint32_t answer = judge(rows[i].network, rows[i].guard, rows[i].architecture, rows[i].number,
                            rows[i].arguments[0], rows[i].arguments[1], rows[i].arguments[2]);
    if ((answer == SECCOMP_RET_ALLOW) == rows[i].refused || answer == BPF_INVALID)
      fail_msg("row %zu: answer %#x", i, answer);
  }
}

/* ---- Landlock alone, against the running kernel ---- */

static char base[] = "/var/tmp/test-backend-XXXXXX";
static char *project, *secret, *plain_file, *temporary;

static char *make(const char *name, bool folder) {
  char *path = xasprintf("%s/%s", base, name);
  if (folder)
    assert_int_equal(mkdir(path, 0700), 0);
  else
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  return path;
}

static int set_up(void **state) {
  (void)state;
  if (!mkdtemp(base))
    return -1;
  project = make("project", true);
  temporary = make("temporary", true);
  free(make("home", true));
  free(make("home/.ssh", true));
  secret = make("home/.ssh/key", false);
  plain_file = make("home/plain", false);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  _cleanup_free_ char *command = xasprintf("rm -rf %s", base);
  free(project);
  free(temporary);
  free(secret);
  free(plain_file);
  return system(command);
}

typedef int attempt(void);

static int result_of(long value) {
  return value < 0 ? errno : 0;
}

static int try_open(const char *path, int flags) {
  int fd = open(path, flags | O_CLOEXEC, 0600);
  int result = result_of(fd);
  if (fd >= 0)
    close(fd);
  return result;
}

static int read_plain(void) {
  return try_open(plain_file, O_RDONLY);
}
static int read_secret(void) {
  return try_open(secret, O_RDONLY);
}
static int list_secret(void) {
  _cleanup_free_ char *folder = xasprintf("%s/home/.ssh", base);
  return try_open(folder, O_RDONLY | O_DIRECTORY);
}
static int write_plain(void) {
  return try_open(plain_file, O_WRONLY);
}
static int truncate_plain(void) {
  return result_of(truncate(plain_file, 0));
}
static int truncate_plain_by_open(void) {
  return try_open(plain_file, O_RDONLY | O_TRUNC);
}
static int create_outside(void) {
  _cleanup_free_ char *path = xasprintf("%s/home/new", base);
  return try_open(path, O_WRONLY | O_CREAT);
}
static int work_in_project(void) {
  _cleanup_free_ char *path = xasprintf("%s/file", project);
  _cleanup_free_ char *moved = xasprintf("%s/moved", project);
  int result = try_open(path, O_RDWR | O_CREAT | O_TRUNC);
  if (result == 0)
    result = result_of(rename(path, moved));
  return result == 0 ? result_of(unlink(moved)) : result;
}
static int work_in_temporary(void) {
  _cleanup_free_ char *path = xasprintf("%s/file", temporary);
  return try_open(path, O_RDWR | O_CREAT);
}
static int open_host_tmp(void) {
  return try_open("/tmp", O_RDONLY | O_DIRECTORY);
}
static int use_network(void) {
  return result_of(socket(AF_INET, SOCK_STREAM, 0));
}
static int use_udp(void) {
  return result_of(socket(AF_INET6, SOCK_DGRAM, 0));
}
static int use_unix_sockets(void) {
  return result_of(socket(AF_UNIX, SOCK_STREAM, 0));
}
static int use_pairs(void) {
  int pair[2];
  return result_of(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
}
static int signal_outside(void) {
  return result_of(kill(getppid(), 0));
}
static int use_null(void) {
  return try_open("/dev/null", O_RDWR);
}

static const struct row {
  const char *name;
  attempt *attempt;
  int expected;  /* confined; free it is 0 */
  int since_abi; /* expected from this ABI on; before: 0 */
} rows[] = {
    {"read a plain file", read_plain, 0, 1},
    {"read a secret", read_secret, EACCES, 1},
    {"list a hidden folder", list_secret, EACCES, 1},
    {"write a plain file", write_plain, EACCES, 1},
    {"truncate a plain file", truncate_plain, EACCES, 1},
    {"truncate it by open", truncate_plain_by_open, EACCES, 1},
    {"create outside", create_outside, EACCES, 1},
    {"work in the project", work_in_project, 0, 1},
    {"work in the temporary folder", work_in_temporary, 0, 1},
    {"open the host's /tmp", open_host_tmp, EACCES, 1},
    {"use TCP", use_network, EACCES, 1},
    {"use UDP", use_udp, EACCES, 1},
    {"use UNIX sockets", use_unix_sockets, EACCES, 1},
    {"use socket pairs", use_pairs, 0, 1},
    {"open /dev/null", use_null, 0, 1},
    {"signal a process outside", signal_outside, EPERM, 6},
};

static struct landlock_blob pack_for(int abi) {
  _cleanup_plan_ struct plan plan = {0};
  _cleanup_free_ char *hidden = xasprintf("%s/home/.ssh", base);
  plan_add(&plan, OPERATION_ROOT, "/", NULL, NULL);
  plan_add(&plan, OPERATION_PRIVATE, "/tmp", "tmp", NULL);
  plan_add(&plan, OPERATION_PRIVATE_SEALED, "/dev", "dev", NULL);
  plan_add(&plan, OPERATION_DEVICE, "/dev/null", NULL, NULL);
  plan_add(&plan, OPERATION_WRITABLE, project, NULL, NULL);
  plan_add(&plan, OPERATION_MASK, hidden, NULL, NULL);
  return landlock_pack(&plan, abi, false, temporary);
}

/* In a child: its exit status is the errno. */
static int outcome(attempt *tried, const struct landlock_blob *blob) {
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    const char *doing;
    if (blob && landlock_confine(blob, &doing) < 0)
      _exit(255);
    _exit(tried());
  }
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 254;
}

static void test_every_abi(void **state) {
  (void)state;
  int newest = landlock_abi();
  if (newest < 1) {
    print_message("# skipped: this kernel has no Landlock\n");
    skip();
  }
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
    if (outcome(rows[i].attempt, NULL) != 0)
      fail_msg("control: %s does not work without confinement", rows[i].name);
  }
  for (int abi = 1; abi <= newest && abi <= 7; abi++) {
    struct landlock_blob blob = pack_for(abi);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
      int expected = abi >= rows[i].since_abi ? rows[i].expected : 0;
      int found = outcome(rows[i].attempt, &blob);
      if (found != expected)
        fail_msg("ABI %d: %s: %s instead of %s", abi, rows[i].name, strerror(found),
                 strerror(expected));
    }
    free(blob.data);
  }
}

static void test_torn_rules(void **state) {
  (void)state;
  if (landlock_abi() < 1)
    skip();
  struct landlock_blob blob = pack_for(1);
  for (size_t size = 0; size < blob.size; size += 7) {
    const char *doing;
    pid_t pid = fork();
    if (pid == 0)
      _exit(landlock_confine(&(struct landlock_blob){blob.data, size}, &doing) == -EINVAL ? 0 : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  free(blob.data);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_unknown_name),
      cmocka_unit_test(test_versions),
      cmocka_unit_test(test_needs_of_a_policy),
      cmocka_unit_test(test_needs_of_a_plan),
      cmocka_unit_test(test_native_features_are_true),
      cmocka_unit_test(test_words_for_a_shell),
      cmocka_unit_test(test_rights_by_abi),
      cmocka_unit_test(test_filter),
      cmocka_unit_test(test_every_abi),
      cmocka_unit_test(test_torn_rules),
  };
  cmocka_set_message_output(CM_OUTPUT_TAP);
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
