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

/* A variable's value that covers the home folder or the project would hide everything. */
static bool is_too_large(const struct policy_context *context, const char *path) {
  return path_is_under(context->project, path) ||
         (context->home && path_is_under(context->home, path)) ||
         (context->account_home && path_is_under(context->account_home, path));
}

/* "$NAME": where the user moved a credential file to; several, separated by colons. */
static void hide_variable(struct policy *policy, const struct policy_context *context,
                          const struct secret *secret) {
  const char *value = context_variable(context, secret->pattern + 1);
  while (value && *value) {
    size_t length = strcspn(value, ":");
    _cleanup_free_ char *part = xstrndup(value, length);
    _cleanup_free_ char *path = path_normalize(part);
    if (part[0] == '/' && !is_too_large(context, path))
      hide(policy, secret, arena_strdup(&policy->strings, path), false);
    value += length + (value[length] == ':');
  }
}

/* Folders of the home folder that a variable may move elsewhere. */
static const struct {
  const char *prefix, *variable;
} movable[] = {
    {"~/.config", "XDG_CONFIG_HOME"},
    {"~/.local/share", "XDG_DATA_HOME"},
    {"~/.local/state", "XDG_STATE_HOME"},
    {"~/.cache", "XDG_CACHE_HOME"},
};

struct moved {
  const char *folder[ARRAY_SIZE(movable)]; /* NULL where it is in its usual place */
};

static struct moved find_moved(const struct policy_context *context) {
  struct moved moved = {0};
  for (size_t i = 0; context->home && i < ARRAY_SIZE(movable); i++) {
    const char *value = context_variable(context, movable[i].variable);
    const char *below = value && *value == '/' ? path_below(value, context->home) : NULL;
    bool usual = below && strcmp(below, movable[i].prefix + strlen("~/")) == 0;
    moved.folder[i] = value && *value == '/' && !usual ? value : NULL;
  }
  return moved;
}

/* Both in the usual place and in the other, for not every tool follows the variable. */
static void hide_at_home(struct policy *policy, const struct policy_context *context,
                         const struct secret *secret, const struct moved *moved) {
  /* Whoever runs us with another $HOME still has the secrets of the real one. */
  if (context->account_home)
    hide_below(policy, secret, context->account_home, secret->pattern + 1);
  if (!context->home)
    return;
  hide_below(policy, secret, context->home, secret->pattern + 1);
  for (size_t i = 0; i < ARRAY_SIZE(movable); i++)
    if (moved->folder[i] && path_below(secret->pattern, movable[i].prefix))
      hide_below(policy, secret, moved->folder[i], secret->pattern + strlen(movable[i].prefix));
}

static void add_secrets(struct policy *policy, const struct policy_context *context) {
  const struct moved moved = find_moved(context);
  for (const struct secret *secret = secret_table; secret->pattern; secret++) {
    if (secret->pattern[0] == '~')
      hide_at_home(policy, context, secret, &moved);
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

/* Parts of the system, with all that is below them; and folders of folders, by themselves. */
static const char *const system_folders[] = {"/bin",   "/boot",  "/dev", "/etc",  "/lib",
                                             "/lib32", "/lib64", "/nix", "/proc", "/run",
                                             "/sbin",  "/sys",   "/usr"};
static const char *const containers[] = {"/home", "/media", "/mnt", "/opt",     "/root",
                                         "/srv",  "/tmp",   "/var", "/var/lib", "/var/tmp"};
/* Below the system, but where people do keep sources. */
static const char *const source_folders[] = {"/usr/src", "/usr/local/src"};

static bool is_system_folder(const char *path) {
  for (size_t i = 0; i < ARRAY_SIZE(containers); i++) {
    if (strcmp(path, containers[i]) == 0)
      return true;
  }
  for (size_t i = 0; i < ARRAY_SIZE(source_folders); i++) {
    const char *below = path_below(path, source_folders[i]);
    if (below && below[0])
      return false;
  }
  for (size_t i = 0; i < ARRAY_SIZE(system_folders); i++) {
    if (path_is_under(path, system_folders[i]))
      return true;
  }
  return false;
}

bool policy_has_project(const struct policy_context *context) {
  const char *project = context->project;
  return strcmp(project, "/") != 0 && !is_system_folder(project) &&
         !(context->home && path_is_under(context->home, project)) &&
         !(context->account_home && path_is_under(context->account_home, project));
}

/* "." is writable: root standing in /etc does not mean to hand /etc to the command. */
static void add_project(struct policy *policy, const struct policy_context *context) {
  if (!policy_has_project(context))
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
