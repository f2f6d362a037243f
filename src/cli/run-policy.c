/* What the command line of `sandbox run` says, on top of the stores: the policy of one run. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/run-backend.h"
#include "cli/run-options.h"
#include "cli/values.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"

static const struct {
  int option;
  enum rule_kind kind;
  const char *flag;
} path_flags[] = {
    {RUN_RW, RULE_WRITE, "--rw"},
    {RUN_RO, RULE_READ, "--ro"},
    {RUN_OVERLAY, RULE_OVERLAY, "--overlay"},
    {RUN_BLACKLIST, RULE_HIDE, "--blacklist"},
    {RUN_UNPROTECT, RULE_UNPROTECT, "--unprotect"},
};

static int apply_path_flag(struct policy *policy, const struct host_context *host,
                           const struct given_option *given, struct sb_error *error) {
  for (size_t i = 0; i < ARRAY_SIZE(path_flags); i++) {
    if (path_flags[i].option != given->spec->id)
      continue;
    /* Protected names belong to the project; paths are meant from where the caller stands. */
    const char *base = path_flags[i].kind == RULE_UNPROTECT ? host->project : host->cwd;
    return policy_add_flag(policy, &host->policy, path_flags[i].kind, base, given->value,
                           path_flags[i].flag, error);
  }
  return 0;
}

static int apply_environment_flag(struct policy *policy, const char *value,
                                  struct sb_error *error) {
  if (value[0] == '=') {
    _cleanup_free_ char *shown = escape_string(value);
    sb_fail(error, SB_CODE_USAGE, 0, "--env '%s': the name of the variable is missing", shown);
    return sb_hint(error, "write --env NAME=VALUE to set it, --env NAME to pass it");
  }
  if (strchr(value, '='))
    strv_add(&policy->environment_set, value);
  else
    strv_add(&policy->environment_pass, value);
  return 0;
}

static void apply_network_flag(struct policy *policy, const char *hosts) {
  policy->network.mode = hosts ? NETWORK_FILTERED : NETWORK_FULL;
  _cleanup_free_ char *copy = xstrdup(hosts ? hosts : "");
  char *rest = NULL;
  for (char *host = strtok_r(copy, ",", &rest); host; host = strtok_r(NULL, ",", &rest))
    strv_add(&policy->network.allow, host);
}

static void set_scalar(struct policy *policy, const char *key) {
  policy_set_key_origin(policy, key, STORE_FLAGS, NULL, 0);
}

static void set_text(struct policy *policy, const char *key, char **member, const char *value) {
  free(*member);
  *member = xstrdup(value);
  set_scalar(policy, key);
}

static int apply_scalar_flag(struct policy *policy, const struct host_context *host,
                             const struct given_option *given, struct sb_error *error) {
  switch (given->spec->id) {
  case RUN_MODE:
    policy->mode = strcmp(given->value, "static") == 0 ? MODE_STATIC : MODE_DYNAMIC;
    set_scalar(policy, "mode");
    return 0;
  case RUN_STATIC:
    policy->mode = MODE_STATIC;
    set_scalar(policy, "mode");
    return 0;
  case RUN_NO_DEBUG:
    policy->debug = false;
    set_scalar(policy, "debug");
    return 0;
  case RUN_REQUIRE:
    policy->require = (enum policy_require)value_word(given->spec->words, given->value);
    set_scalar(policy, "require");
    return 0;
  case RUN_BACKEND:
    set_text(policy, "backend", &policy->backend, given->value);
    return 0;
  case RUN_IMAGE:
    set_text(policy, "container.image", &policy->container.image, given->value);
    return 0;
  case RUN_ENV:
    return apply_environment_flag(policy, given->value, error);
  case RUN_ALLOW_NETWORK:
    apply_network_flag(policy, given->value);
    set_scalar(policy, "network.mode");
    return 0;
  case RUN_NETWORK_DRIVER:
    set_text(policy, "network.driver", &policy->network.driver, given->value);
    return 0;
  case RUN_PUBLISH:
    strv_add(&policy->network.publish, given->value);
    return 0;
  case RUN_POLICY:
    return policy_load_file(&host->policy, given->value, STORE_FLAGS, policy, error);
  default:
    return 0;
  }
}

/* Permissions say little: a container's rules for devices, or a kernel without the module, refuse
 * what they allow. */
static bool fuse_can_be_opened(void) {
  _cleanup_close_ int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  return device >= 0;
}

/* FUSE first: allowed paths then cost nothing. */
enum gate_kind run_choose_gate(const struct invocation *invocation) {
  const char *value = invocation_value(invocation, RUN_GATE);
  int asked = value ? value_word("auto fuse notify", value) : 0;
  static const enum gate_kind kinds[] = {GATE_NONE, GATE_FUSE, GATE_NOTIFY};
  if (asked > 0)
    return kinds[asked];
  return fuse_can_be_opened() ? GATE_FUSE : GATE_NOTIFY;
}

/* Only the native engine can ask. If nobody said which mode he wants, another one gets the other;
 * and who chose the engine may not know what comes with it. */
void run_settle_mode(struct policy *policy, bool elsewhere) {
  if (!elsewhere || policy_key_origin(policy, "mode")->store != STORE_BUILTIN)
    return;
  policy->mode = MODE_STATIC;
  if (strcmp(policy->backend, "auto") != 0)
    strv_addf(&policy->ignored,
              "%s cannot ask: static mode is used, in which all but secrets can be read; with "
              "--static this line is not needed",
              policy->backend);
}

int run_load_policy(const struct invocation *invocation, const struct host_context *host,
                    struct policy **ret_policy, struct sb_error *error) {
  if (policy_load(&host->policy, ret_policy, error) < 0)
    return -1;
  struct policy *policy = *ret_policy;
  for (size_t i = 0; i < invocation->option_count; i++) {
    const struct given_option *given = &invocation->options[i];
    if (apply_scalar_flag(policy, host, given, error) < 0 ||
        apply_path_flag(policy, host, given, error) < 0 ||
        run_apply_limit_flag(policy, given, error) < 0)
      return -1;
  }
  if (invocation->verb == &learn_verb) {
    policy->mode = MODE_DYNAMIC;
    set_scalar(policy, "mode");
  }
  if (policy_settle_nix(policy, &host->policy, error) < 0)
    return -1;
  STRV_FOREACH (path, &policy->network.unix_sockets) {
    if (policy_add_flag(policy, &host->policy, RULE_READ, "/", *path, "network.unix_sockets",
                        error) < 0)
      return -1;
  }
  run_settle_mode(policy, run_is_elsewhere(policy->backend));
  if (policy->mode == MODE_DYNAMIC)
    policy_add_base(policy, &host->policy);
  return 0;
}
