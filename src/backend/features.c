/* The one table of what a policy can ask for, and which of it a given policy and plan do ask for.
 * Pure. docs/BACKENDS.md is tested against it. */
#include <string.h>

#include "backend/backend.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "net/drivers/driver.h"

static const struct {
  const char *name, *text;
} features[FEATURE_COUNT] = {
    [FEATURE_READ_ALL] = {"read-all", "the machine's own tools and files in their places"},
    [FEATURE_ASK] = {"ask", "asking about what is not allowed (dynamic mode)"},
    [FEATURE_HIDE] = {"hide", "hidden paths and secrets"},
    [FEATURE_HIDE_IN_WRITABLE] = {"hide-in-writable",
                                  "hidden paths and secrets inside writable folders"},
    [FEATURE_PROTECT] = {"protect", "protected names, such as .git/hooks"},
    [FEATURE_PROTECT_LINKS] = {"protect-links", "protected names that are symbolic links"},
    [FEATURE_RESERVE] = {"reserve", "protected names that do not exist yet"},
    [FEATURE_READONLY_IN_WRITABLE] = {"readonly-in-writable",
                                      "read-only paths inside writable folders"},
    [FEATURE_OVERLAY] = {"overlay", "overlays"},
    [FEATURE_NETWORK_NONE] = {"network-none", "no network"},
    [FEATURE_NETWORK_FILTERED] = {"network-filtered", "network to listed hosts only"},
    [FEATURE_NETWORK_FULL] = {"network-full", "the whole network"},
    [FEATURE_NETWORK_DRIVER] = {"network-driver", "a network driver (a plain IP stack)"},
    [FEATURE_PUBLISH] = {"publish", "published ports"},
    [FEATURE_UNIX_SOCKETS] = {"unix-sockets", "UNIX sockets from the host"},
    [FEATURE_NO_LISTENING] = {"no-listening", "forbidding to listen on sockets"},
    [FEATURE_LIMIT_MEMORY] = {"limit-memory", "a memory limit"},
    [FEATURE_LIMIT_CPU] = {"limit-cpu", "a processor limit"},
    [FEATURE_LIMIT_PROCESSES] = {"limit-processes", "a limit of processes"},
    [FEATURE_LIMIT_DISK] = {"limit-disk", "a limit of disk space or of files"},
    [FEATURE_LIMIT_IO] = {"limit-io", "a limit of input and output"},
    [FEATURE_LIMIT_FILES] = {"limit-files", "limits of open files and of file size"},
    [FEATURE_LIMIT_TIME] = {"limit-time", "a time limit"},
    [FEATURE_NO_DEBUG] = {"no-debug", "forbidding ptrace"},
    [FEATURE_TIME_OFFSET] = {"time-offset", "shifted clocks"},
    [FEATURE_CONTAINERS] = {"containers", "containers inside"},
    [FEATURE_VIRTUAL_MACHINES] = {"virtual-machines", "virtual machines inside"},
    [FEATURE_SYSCALL_FILTER] = {"syscall-filter", "a system call filter"},
    [FEATURE_PRIVATE_TMP] = {"private-tmp", "private temporary folders"},
    [FEATURE_PROCESS_ISOLATION] = {"process-isolation", "processes outside are invisible"},
    [FEATURE_SIGNAL_ISOLATION] = {"signal-isolation", "processes outside cannot be signalled"},
    [FEATURE_METADATA] = {"metadata", "modes, owners and times outside writable folders stay"},
};

const char *backend_feature_name(enum backend_feature feature) {
  return features[feature].name;
}

void backend_describe_features(uint64_t set, struct strv *ret_words) {
  for (int i = 0; i < FEATURE_COUNT; i++) {
    if (set & UINT64_C(1) << i)
      strv_add(ret_words, features[i].text);
  }
}

uint64_t backend_base_features(void) {
  return FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |
         FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA);
}

static uint64_t network_features(const struct policy *policy) {
  static const uint64_t modes[] = {[NETWORK_NONE] = FEATURE(NETWORK_NONE),
                                   [NETWORK_FILTERED] = FEATURE(NETWORK_FILTERED),
                                   [NETWORK_FULL] = FEATURE(NETWORK_FULL)};
  bool driven =
      policy->network.mode != NETWORK_NONE && net_driver_find(policy->network.driver) != NULL;
  /* Who cannot filter cannot leave out what is denied either. */
  bool denies = policy->network.mode == NETWORK_FULL && policy->network.deny.count > 0;
  return modes[policy->network.mode] | (driven ? FEATURE(NETWORK_DRIVER) : 0) |
         (denies ? FEATURE(NETWORK_FILTERED) : 0) |
         (policy->network.publish.count > 0 ? FEATURE(PUBLISH) : 0) |
         (policy->network.allow_local_binding ? 0 : FEATURE(NO_LISTENING)) |
         (policy->network.unix_sockets.count > 0 ? FEATURE(UNIX_SOCKETS) : 0);
}

static uint64_t limit_features(const struct limit_set *limits) {
  static const uint64_t kinds[LIMIT_COUNT] = {
      [LIMIT_CPU] = FEATURE(LIMIT_CPU),
      [LIMIT_MEMORY] = FEATURE(LIMIT_MEMORY),
      [LIMIT_PROCESSES] = FEATURE(LIMIT_PROCESSES),
      [LIMIT_DISK] = FEATURE(LIMIT_DISK),
      [LIMIT_INODES] = FEATURE(LIMIT_DISK),
      [LIMIT_IO] = FEATURE(LIMIT_IO),
      [LIMIT_TIME] = FEATURE(LIMIT_TIME),
      [LIMIT_OPEN_FILES] = FEATURE(LIMIT_FILES),
      [LIMIT_FILE_SIZE] = FEATURE(LIMIT_FILES),
  };
  uint64_t needed = 0;
  for (size_t i = 0; i < LIMIT_COUNT; i++)
    needed |= limits->value[i] ? kinds[i] : 0;
  return needed;
}

uint64_t backend_policy_features(const struct policy *policy, const struct limit_set *limits) {
  return network_features(policy) | limit_features(limits) |
         (policy->mode == MODE_DYNAMIC ? FEATURE(ASK) : 0) |
         (policy->debug ? 0 : FEATURE(NO_DEBUG)) | (policy->containers ? FEATURE(CONTAINERS) : 0) |
         (policy->vm.enabled || policy->vm.kvm ? FEATURE(VIRTUAL_MACHINES) : 0);
}

/* Kernel files are masked by whoever makes the kernel's file systems. */
static bool is_kernel_file(const char *path) {
  return path_is_under(path, "/proc") || path_is_under(path, "/sys");
}

static bool is_writable_place(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if ((operation->kind == OPERATION_WRITABLE || operation->kind == OPERATION_OVERLAY) &&
        path_is_under(path, operation->path))
      return true;
  }
  return false;
}

static uint64_t mask_features(const struct plan *plan, const char *path) {
  if (is_kernel_file(path))
    return 0;
  return is_writable_place(plan, path) ? FEATURE(HIDE_IN_WRITABLE) : FEATURE(HIDE);
}

static uint64_t operation_features(const struct plan *plan, const struct operation *operation) {
  switch (operation->kind) {
  case OPERATION_MASK:
    return mask_features(plan, operation->path);
  case OPERATION_PROTECT:
    return operation->flags & OPERATION_NOFOLLOW ? FEATURE(PROTECT_LINKS) : FEATURE(PROTECT);
  case OPERATION_SEAL:
    return is_kernel_file(operation->path) ? 0 : FEATURE(PROTECT);
  case OPERATION_PLACEHOLDER_FOLDER:
  case OPERATION_PLACEHOLDER_FILE:
    return FEATURE(RESERVE);
  case OPERATION_READONLY:
    return is_writable_place(plan, operation->path) ? FEATURE(READONLY_IN_WRITABLE) : 0;
  case OPERATION_OVERLAY:
    return FEATURE(OVERLAY);
  default:
    return 0;
  }
}

uint64_t backend_plan_features(const struct plan *plan) {
  uint64_t needed = plan->has_time_offset ? FEATURE(TIME_OFFSET) : 0;
  for (size_t i = 0; i < plan->operation_count; i++)
    needed |= operation_features(plan, &plan->operations[i]);
  return needed;
}
