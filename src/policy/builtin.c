/* The built-in store: the tables as rules, and the defaults. Runs at every start, so it copies no
 * more than it must and reads nothing from disk. */
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "policy/glob.h"
#include "policy/rules.h"

static void hide(struct policy *policy, const struct secret *secret, const char *pattern,
                 bool is_glob) {
  rules_push(policy, &(struct rule){.kind = RULE_HIDE,
                                    .pattern = pattern,
                                    .is_glob = is_glob,
                                    .has_exceptions = is_glob,
                                    .written = secret->pattern,
                                    .why = secret->why});
}

/* Below a folder whose own name may contain wildcards, which then are no wildcards. */
static void hide_below(struct policy *policy, const struct secret *secret, const char *folder,
                       const char *rest) {
  bool is_glob = glob_has_wildcards(rest);
  if (strcmp(folder, "/") == 0)
    folder = "";
  _cleanup_free_ char *escaped = is_glob && strpbrk(folder, "*?[\\") ? glob_escape(folder) : NULL;
  hide(policy, secret, arena_concat(&policy->strings, escaped ? escaped : folder, rest), is_glob);
}

/* "$NAME": where the user moved a credential file to; several, separated by colons. */
static void hide_variable(struct policy *policy, const struct policy_context *context,
                          const struct secret *secret) {
  const char *value = context_variable(context, secret->pattern + 1);
  while (value && *value) {
    size_t length = strcspn(value, ":");
    _cleanup_free_ char *part = xstrndup(value, length);
    _cleanup_free_ char *path = path_normalize(part);
    /* A relative or top-level value would hide by accident what nobody meant. */
    if (part[0] == '/' && strcmp(path, "/") != 0)
      hide(policy, secret, arena_strdup(&policy->strings, path), false);
    value += length + (value[length] == ':');
  }
}

static void hide_at_home(struct policy *policy, const struct policy_context *context,
                         const struct secret *secret) {
  static const char config[] = "~/.config";
  if (!context->home)
    return;
  hide_below(policy, secret, context->home, secret->pattern + 1);
  const char *rest = path_below(secret->pattern, config);
  /* $XDG_CONFIG_HOME elsewhere: both places, for not every tool follows it. */
  if (rest && context->config_home && path_below(context->config_home, context->home) &&
      strcmp(path_below(context->config_home, context->home), ".config") == 0)
    return;
  if (rest && context->config_home)
    hide_below(policy, secret, context->config_home, secret->pattern + strlen(config));
}

static void add_secrets(struct policy *policy, const struct policy_context *context) {
  for (const struct secret *secret = secret_table; secret->pattern; secret++) {
    if (secret->pattern[0] == '~')
      hide_at_home(policy, context, secret);
    else if (secret->pattern[0] == '$')
      hide_variable(policy, context, secret);
    else if (secret->pattern[0] == '/')
      hide(policy, secret, secret->pattern, glob_has_wildcards(secret->pattern));
    else
      hide_below(policy, secret, context->project,
                 arena_concat(&policy->strings, "/", secret->pattern));
  }
}

/* Our own files: whoever could edit them inside would be free at the next start. */
static void add_own_files(struct policy *policy, const struct policy_context *context) {
  const struct {
    const char *folder, *name, *why;
    enum rule_kind kind;
  } own[] = {
      {context->config_home, "/sandbox", "the user's own policy and grants", RULE_PROTECT},
      {context->org_folder, "", "the organisation's policy", RULE_PROTECT},
      {context->state_home, "/sandbox", "trust decisions and audit logs", RULE_HIDE},
  };
  for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
    if (!own[i].folder)
      continue;
    const char *pattern = arena_concat(&policy->strings, own[i].folder, own[i].name);
    rules_push(policy,
               &(struct rule){
                   .kind = own[i].kind, .pattern = pattern, .written = pattern, .why = own[i].why});
  }
}

/* Places that the session has for itself. Sharing a whole one would bring back the sockets of the
 * host that live there (X11, tmux, ssh-agent). */
static bool holds_private_place(const char *folder) {
  static const char *const places[] = {"/tmp", "/var/tmp", "/run", "/dev/shm"};
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    if (path_is_under(places[i], folder))
      return true;
  }
  return false;
}

/* "." is writable, unless it is so large a place that nobody could have meant it. */
static void add_project(struct policy *policy, const struct policy_context *context) {
  bool too_large = holds_private_place(context->project) ||
                   (context->home && path_is_under(context->home, context->project));
  if (too_large)
    return;
  rules_push(policy, &(struct rule){.kind = RULE_WRITE,
                                    .pattern = arena_strdup(&policy->strings, context->project),
                                    .written = ".",
                                    .why = "the project"});
  rules_protect_place(policy, context, context->project);
}

void rules_add_builtin(struct policy *policy, const struct policy_context *context) {
  add_secrets(policy, context);
  add_own_files(policy, context);
  add_project(policy, context);
}
