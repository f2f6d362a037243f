/* Landlock rules: planned while we may still allocate, applied between clone and exec. Rights that
 * the running kernel does not know are left out, never guessed. */
#include "engine/landlock.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"

/* What Debian 12's headers (6.1, ABI 2) do not have yet. */
#define RIGHT_TRUNCATE      (1ULL << 14) /* ABI 3 */
#define RIGHT_IOCTL_DEVICE  (1ULL << 15) /* ABI 5 */
#define SCOPE_ABSTRACT_UNIX (1ULL << 0)  /* ABI 6 */
#define SCOPE_SIGNAL        (1ULL << 1)  /* ABI 6 */
#define LOG_SUBDOMAINS_OFF  (1U << 2)    /* ABI 7, a flag of landlock_restrict_self */

/* struct landlock_ruleset_attr as of ABI 6; older kernels accept the longer one if the rest is 0.
 */
struct ruleset_attributes {
  uint64_t handled_fs, handled_network, scoped;
};

/* Writing in all its forms, but neither reading nor executing: those are the mounts' job. */
#define WRITE_RIGHTS                                                                               \
  (LANDLOCK_ACCESS_FS_WRITE_FILE | LANDLOCK_ACCESS_FS_REMOVE_DIR |                                 \
   LANDLOCK_ACCESS_FS_REMOVE_FILE | LANDLOCK_ACCESS_FS_MAKE_CHAR | LANDLOCK_ACCESS_FS_MAKE_DIR |   \
   LANDLOCK_ACCESS_FS_MAKE_REG | LANDLOCK_ACCESS_FS_MAKE_SOCK | LANDLOCK_ACCESS_FS_MAKE_FIFO |     \
   LANDLOCK_ACCESS_FS_MAKE_BLOCK | LANDLOCK_ACCESS_FS_MAKE_SYM | LANDLOCK_ACCESS_FS_REFER)

/* Rights that mean something for a path that is not a folder; others are EINVAL there. */
#define FILE_RIGHTS (LANDLOCK_ACCESS_FS_WRITE_FILE | RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE)

static const uint64_t rights_of_use[] = {
    [LANDLOCK_USE_WRITE] = WRITE_RIGHTS | RIGHT_TRUNCATE,
    [LANDLOCK_USE_DEVICE] = FILE_RIGHTS,
};

/* What each ABI can handle. ABI 1 refuses every rename and link between folders, with no right to
 * allow it, which breaks git and more: with it there is no second wall. */
static const struct {
  uint64_t handled_fs, scoped;
  uint32_t flags;
} abis[] = {
    [0] = {0},
    [1] = {0},
    [2] = {WRITE_RIGHTS},
    [3] = {WRITE_RIGHTS | RIGHT_TRUNCATE},
    [4] = {WRITE_RIGHTS | RIGHT_TRUNCATE},
    [5] = {WRITE_RIGHTS | RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE},
    [6] = {WRITE_RIGHTS | RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE, SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL},
    /* A workload that sandboxes itself must not fill the host's audit log with its denials. Our own
     * are not logged after exec anyway. */
    [7] = {WRITE_RIGHTS | RIGHT_TRUNCATE | RIGHT_IOCTL_DEVICE, SCOPE_ABSTRACT_UNIX | SCOPE_SIGNAL,
           LOG_SUBDOMAINS_OFF},
};

/* A younger kernel than we know still has everything that ours had. */
static size_t abi_index(int abi) {
  if (abi < 0)
    return 0;
  return (size_t)abi < ARRAY_SIZE(abis) ? (size_t)abi : ARRAY_SIZE(abis) - 1;
}

int landlock_abi(void) {
  long abi = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi < 0 ? 0 : (int)abi;
}

struct landlock_plan landlock_plan_new(int abi) {
  size_t index = abi_index(abi);
  return (struct landlock_plan){
      .abi = abi, .handled_fs = abis[index].handled_fs, .scoped = abis[index].scoped};
}

static void leave_out(struct landlock_plan *plan, uint64_t rights) {
  plan->lenient |= plan->handled_fs & rights;
  plan->handled_fs &= ~rights;
}

void landlock_skip_files(struct landlock_plan *plan) {
  if (plan->scoped)
    leave_out(plan, plan->handled_fs);
}

void landlock_skip_truncation(struct landlock_plan *plan) {
  leave_out(plan, RIGHT_TRUNCATE);
}

bool landlock_has_domain(const struct landlock_plan *plan) {
  return plan->handled_fs || plan->scoped;
}

void landlock_allow(struct landlock_plan *plan, const char *path, enum landlock_use use) {
  uint64_t access = rights_of_use[use] & plan->handled_fs;
  if (!access)
    return;
  if (plan->rule_count == plan->rule_capacity) {
    plan->rule_capacity = plan->rule_capacity ? 2 * plan->rule_capacity : 16;
    plan->rules = xreallocarray(plan->rules, plan->rule_capacity, sizeof *plan->rules);
  }
  plan->rules[plan->rule_count++] = (struct landlock_rule){xstrdup(path), access};
}

void landlock_plan_clear(struct landlock_plan *plan) {
  for (size_t i = 0; i < plan->rule_count; i++)
    free((char *)plan->rules[i].path);
  free(plan->rules);
  *plan = (struct landlock_plan){0};
}

static int add_rule(int ruleset, const struct landlock_rule *rule) {
  _cleanup_close_ int fd = open(rule->path, O_PATH | O_CLOEXEC);
  if (fd < 0)
    return errno == ENOENT || errno == ENOTDIR ? 0 : -errno;
  struct landlock_path_beneath_attr beneath = {.allowed_access = rule->access, .parent_fd = fd};
  if (syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) == 0)
    return 0;
  if (errno != EINVAL) /* rights that only a folder can have: it is none */
    return -errno;
  beneath.allowed_access &= FILE_RIGHTS;
  if (!beneath.allowed_access)
    return 0;
  return syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0
             ? -errno
             : 0;
}

int landlock_prepare(const struct landlock_plan *plan, int *ret_ruleset, const char **ret_failed) {
  *ret_ruleset = -1;
  *ret_failed = NULL;
  if (!landlock_has_domain(plan))
    return 0;

  struct ruleset_attributes attributes = {.handled_fs = plan->handled_fs, .scoped = plan->scoped};
  _cleanup_close_ int ruleset =
      (int)syscall(SYS_landlock_create_ruleset, &attributes, sizeof attributes, 0);
  if (ruleset < 0)
    return -errno;
  for (size_t i = 0; i < plan->rule_count; i++) {
    int result = add_rule(ruleset, &plan->rules[i]);
    if (result < 0) {
      *ret_failed = plan->rules[i].path;
      return result;
    }
  }
  *ret_ruleset = steal_fd(&ruleset);
  return 0;
}

int landlock_restrict(const struct landlock_plan *plan, int ruleset) {
  if (!landlock_has_domain(plan))
    return 0;
  _cleanup_close_ int owned = ruleset;
  unsigned flags = abis[abi_index(plan->abi)].flags;
  return syscall(SYS_landlock_restrict_self, owned, flags) < 0 ? -errno : 0;
}
