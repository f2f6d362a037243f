/* Landlock without namespaces: for hosts that forbid them, and inside containers. Landlock holds
 * the file system, seccomp the rest; see landlock.h. */
#include "backend/landlock.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/registry.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "engine/landlock.h"

#define OWN_PROGRAM "/proc/self/exe"

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  int abi = landlock_abi();
  if (abi < 1) {
    backend_missing(status, "use Linux 5.13 or newer with 'landlock' in the list of lsm=",
                    "this kernel has no usable Landlock");
    return;
  }
  const char *remark = landlock_remark_of(abi);
  status->features &= landlock_features_of(abi);
  backend_available(status, "Landlock ABI %d%s%s", abi, remark ? ": " : "", remark ? remark : "");
}

/* A folder of its own takes the place of /tmp and of the runtime folder. */
static void add_environment(struct wrapped *wrapped, const struct plan *plan,
                            const char *temporary) {
  STRV_FOREACH (entry, &plan->environment)
    strv_add(&wrapped->environment, *entry);
  plan_set_variable(&wrapped->environment, "TMPDIR", temporary);
  plan_set_variable(&wrapped->environment, "XDG_RUNTIME_DIR", temporary);
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  /* By name for who runs the words later; our own runner needs none of them. */
  _cleanup_free_ char *own = request->only_words ? NULL : xstrdup(OWN_PROGRAM);
  if (!own && file_resolve(OWN_PROGRAM, &own) < 0)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "our own program cannot be found by " OWN_PROGRAM);
  struct wrapped wrapped = WRAPPED_NONE;
  struct landlock_blob blob =
      landlock_pack(request->plan, landlock_abi(), request->policy->network.mode == NETWORK_FULL,
                    request->scratch);
  wrapped_add_folder(&wrapped, request->scratch);
  int fd = wrapped_add_descriptor(&wrapped, blob.data, blob.size);
  free(blob.data);
  wrapped_words(&wrapped, own, "__landlock", NULL);
  strv_addf(&wrapped.argv, "%d", fd);
  strv_add(&wrapped.argv, "--");
  wrapped.command_index = wrapped.argv.count;
  STRV_FOREACH (word, &request->plan->arguments)
    strv_add(&wrapped.argv, *word);
  add_environment(&wrapped, request->plan, request->scratch);
  *ret = wrapped;
  return 0;
}

static struct landlock_blob rules_of(const struct wrapped *wrapped) {
  for (size_t i = 0; i < wrapped->file_count; i++) {
    if (wrapped->files[i].fd >= 0)
      return (struct landlock_blob){wrapped->files[i].content, wrapped->files[i].size};
  }
  return (struct landlock_blob){0};
}

static int begin(const struct wrapped *wrapped) {
  struct landlock_blob rules = rules_of(wrapped);
  return landlock_new_ruleset(&rules);
}

/* The rules take as long as all the rest: half a millisecond for a hundred of them. */
static int prepare(const struct wrapped *wrapped, int begun) {
  struct landlock_blob rules = rules_of(wrapped);
  return landlock_fill(&rules, begun);
}

static int enter(const struct wrapped *wrapped, const char **ret_doing) {
  struct landlock_blob rules = rules_of(wrapped);
  return landlock_shut(&rules, ret_doing);
}

static int finish(const struct wrapped *wrapped, int begun, const char **ret_doing) {
  struct landlock_blob rules = rules_of(wrapped);
  return landlock_restrict_by(&rules, begun, ret_doing);
}

static const struct backend_entrance entrance = {begin, prepare, enter, finish};

const struct backend landlock_backend = {
    .name = "landlock",
    .summary = "Landlock and seccomp alone: no namespaces, no other program",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(NETWORK_NONE) | FEATURE(NETWORK_FULL) |
                FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) |
                FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) | FEATURE(LIMIT_TIME) | FEATURE(NO_DEBUG) |
                FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(SIGNAL_ISOLATION),
    .limits_by_group = true,
    .probe = probe,
    .wrap = wrap,
    .entrance = &entrance,
};
