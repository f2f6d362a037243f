/* A policy's life: defaults, key origins, release. The defaults are what a run without any policy
 * file gets. */
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "policy/load.h"
#include "policy/rules.h"
#include "policy/schema.h"

struct policy *policy_new(const struct policy_context *context) {
  struct policy *policy = xcalloc(1, sizeof *policy);
  policy->mode = MODE_DYNAMIC;
  policy->require = REQUIRE_REQUIRED;
  policy->backend = xstrdup("auto");
  policy->network.mode = NETWORK_NONE;
  policy->network.driver = xstrdup("auto");
  policy->network.allow_local_binding = true;
  policy->prompt_timeout_seconds = 60;
  policy->debug = true;
  policy->nix = xstrdup("auto");
  policy->weaker_nested = policy->commands.allow_bypass = policy->commands.auto_allow = true;
  policy->container.user = xstrdup("keep");
  policy->key_count = schema_count();
  policy->keys = xcalloc(policy->key_count, sizeof *policy->keys);
  rules_add_builtin(policy, context);
  return policy;
}

void policy_free(struct policy *policy) {
  if (!policy)
    return;
  struct strv *const lists[] = {
      &policy->network.allow,   &policy->network.deny,     &policy->network.unix_sockets,
      &policy->network.granted, &policy->network.publish,  &policy->environment_pass,
      &policy->environment_set, &policy->commands.exclude, &policy->ignored,
      &policy->protected_places};
  char *const texts[] = {policy->backend,
                         policy->network.http_proxy,
                         policy->network.socks_proxy,
                         policy->network.driver,
                         policy->nix,
                         policy->seatbelt.custom_profile,
                         policy->vm.kernel,
                         policy->container.image,
                         policy->container.runtime,
                         policy->container.user};
  for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
    strv_clear(lists[i]);
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    free(texts[i]);
  free(policy->rules);
  free(policy->keys);
  arena_clear(&policy->strings);
  free(policy);
}

static const struct schema_key *find_dotted(const char *name) {
  for (const struct schema_key *key = schema_table; key->name; key++)
    if (strcmp(key->name, name) == 0)
      return key;
  return NULL;
}

void policy_set_key_origin(struct policy *policy, const char *key, enum policy_store store,
                           const char *file, unsigned line) {
  const struct schema_key *found = find_dotted(key);
  if (found)
    policy->keys[schema_index(found)].origin = (struct origin){
        .store = store,
        .file = file ? arena_strdup(&policy->strings, file) : NULL,
        .line = line,
    };
}

const struct origin *policy_key_origin(const struct policy *policy, const char *key) {
  const struct schema_key *found = find_dotted(key);
  return found ? &policy->keys[schema_index(found)].origin : NULL;
}

const char *policy_store_name(enum policy_store store) {
  static const char *const names[STORE_COUNT] = {[STORE_BUILTIN] = "built-in",
                                                 [STORE_ORG] = "org",
                                                 [STORE_PROJECT] = "project",
                                                 [STORE_USER] = "user",
                                                 [STORE_FLAGS] = "flags"};
  return store < STORE_COUNT ? names[store] : "unknown";
}

const char *rule_kind_name(enum rule_kind kind) {
  static const char *const names[RULE_KIND_COUNT] = {
      [RULE_READ] = "read", [RULE_WRITE] = "write",     [RULE_OVERLAY] = "overlay",
      [RULE_HIDE] = "hide", [RULE_PROTECT] = "protect", [RULE_UNPROTECT] = "unprotect",
      [RULE_LIST] = "list"};
  return kind < RULE_KIND_COUNT ? names[kind] : "unknown";
}
