/* Claude Code's settings.json and the settings of sandbox-runtime, which is below it: the keys
 * about network and files are the same. */
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "policy/importers/importer.h"

/* ---- values ---- */

/* "//x" is Claude's way to write an absolute path; the rest is as ours. */
static char *claude_glob(const char *path) {
  return import_glob(path[0] == '/' && path[1] == '/' ? path + 1 : path);
}

static void take_claude_path(struct import *import, const struct import_key *key,
                             const struct node *item) {
  _cleanup_free_ char *path = claude_glob(item->text);
  import_add(import, item, key->target, path);
}

static int take_claude_paths(struct import *import, const struct import_key *key,
                             const struct node *node) {
  return import_items(import, key, node, take_claude_path);
}

static int take_domains(struct import *import, const struct import_key *key,
                        const struct node *node) {
  if (take_texts(import, key, node) < 0)
    return -1;
  if (import_has(import, "network.allow", NULL) && !import_has(import, "network.mode", NULL))
    import_set(import, node, "network.mode", "filtered");
  return 0;
}

/* A proxy of the user's own on this machine. */
static int take_port(struct import *import, const struct import_key *key, const struct node *node) {
  long port;
  if (import_integer(import, key, node, 1, 65535, &port) < 0)
    return -1;
  bool socks = strcmp(key->target, "network.socks_proxy") == 0;
  _cleanup_free_ char *proxy = xasprintf("%s://127.0.0.1:%ld", socks ? "socks5" : "http", port);
  import_set(import, node, key->target, proxy);
  import_set(import, node, "network.mode", "filtered");
  return 0;
}

/* "docker", "docker *" and "docker:*" name a program; "npm run x" is the beginning of a text, which
 * says nothing about what is run. */
static void take_excluded_one(struct import *import, const struct import_key *key,
                              const struct node *item) {
  size_t length = strcspn(item->text, " :");
  const char *rest = item->text + length;
  if (*rest && strcmp(rest, ":*") != 0 && strcmp(rest, " *") != 0) {
    import_lose(import, item, item->text, "commands are excluded by program, not by arguments");
    return;
  }
  _cleanup_free_ char *program = xstrndup(item->text, length);
  import_add(import, item, key->target, program);
}

static int take_excluded(struct import *import, const struct import_key *key,
                         const struct node *node) {
  return import_items(import, key, node, take_excluded_one);
}

static int take_unsandboxed(struct import *import, const struct import_key *key,
                            const struct node *node) {
  bool yes;
  if (import_boolean(import, key, node, &yes) < 0)
    return -1;
  import_set(import, node, "commands.allow_unsandboxed", yes ? "true" : "false");
  import_set(import, node, "commands.allow_bypass", yes ? "true" : "false");
  return 0;
}

/* ---- permission rules: Tool(argument) ---- */

static const struct {
  const char *list, *tool, *key;
} permissions[] = {
    {"permissions.allow", "Edit", "filesystem.write"},
    {"permissions.deny", "Edit", "filesystem.protect"},
    {"permissions.allow", "Read", "filesystem.read"},
    {"permissions.deny", "Read", "filesystem.hide"},
    {"permissions.allow", "WebFetch", "network.allow"},
    {"permissions.deny", "WebFetch", "network.deny"},
};

static bool take_permission(struct import *import, const char *list, const struct node *item) {
  size_t tool = strcspn(item->text, "("), length = strlen(item->text);
  if (item->text[tool] == '\0' || item->text[length - 1] != ')')
    return false;
  _cleanup_free_ char *name = xstrndup(item->text, tool);
  _cleanup_free_ char *argument = xstrndup(item->text + tool + 1, length - tool - 2);
  for (size_t i = 0; i < ARRAY_SIZE(permissions); i++) {
    if (strcmp(permissions[i].list, list) != 0 || strcmp(permissions[i].tool, name) != 0)
      continue;
    bool host = strncmp(permissions[i].key, "network.", strlen("network.")) == 0;
    if (host && strncmp(argument, "domain:", strlen("domain:")) != 0)
      return false;
    _cleanup_free_ char *value =
        host ? xstrdup(argument + strlen("domain:")) : claude_glob(argument);
    import_add(import, item, permissions[i].key, value);
    if (host && strcmp(permissions[i].key, "network.allow") == 0)
      import_set(import, item, "network.mode", "filtered");
    return true;
  }
  return false;
}

static void take_permission_or_lose(struct import *import, const struct import_key *key,
                                    const struct node *item) {
  if (!take_permission(import, key->name, item))
    import_lose(import, item, item->text, "a permission that is not about files or hosts");
}

static int take_permissions(struct import *import, const struct import_key *key,
                            const struct node *node) {
  return import_items(import, key, node, take_permission_or_lose);
}

/* ---- tables ---- */

#define SAME_DOMAINS                                                                               \
  {"network.allowedDomains", take_domains, "network.allow"},                                       \
      {"network.deniedDomains", take_texts, "network.deny"},                                       \
      {"network.allowUnixSockets", take_paths, "network.unix_sockets"},                            \
      {"network.allowAllUnixSockets", take_boolean, .if_false = "",                                \
       .why = "sockets of the host are allowed one by one"},                                       \
      {"network.allowLocalBinding", take_boolean, "network.allow_local_binding", "true", "false"}, \
      {"network.httpProxyPort", take_port, "network.http_proxy"},                                  \
      {"network.socksProxyPort", take_port, "network.socks_proxy"},                                \
      {"network.allowMachLookup", take_lost, .why = "services of macOS cannot be listed"},         \
      {"filesystem.allowWrite", take_claude_paths, "filesystem.write"},                            \
      {"filesystem.denyWrite", take_claude_paths, "filesystem.protect"},                           \
      {"filesystem.denyRead", take_claude_paths, "filesystem.hide"},                               \
      {"filesystem.allowRead", take_claude_paths, "filesystem.read"},                              \
      {"enableWeakerNestedSandbox", take_boolean, "weaker_nested", "true", "false"},               \
      {"enableWeakerNetworkIsolation", take_boolean, .if_false = "",                               \
       .why = "there is no weaker isolation of the network"},                                      \
      {"ignoreViolations", take_lost,                                                              \
       .why = "refusals are errors of the command's own calls; there is nothing to ignore"},       \
  {                                                                                                \
    "ripgrep", take_nothing                                                                        \
  }

static const struct import_key claude_keys[] = {
    {"enabled", take_boolean, "require", NULL, "disabled"},
    {"failIfUnavailable", take_boolean, "require", "required", "preferred"},
    {"autoAllowBashIfSandboxed", take_boolean, "commands.auto_allow", "true", "false"},
    {"excludedCommands", take_excluded, "commands.exclude"},
    {"allowUnsandboxedCommands", take_unsandboxed},
    {"network.allowManagedDomainsOnly", take_lost,
     .why = "put the domains into the organisation's policy"},
    {"filesystem.allowManagedReadPathsOnly", take_lost,
     .why = "put the paths into the organisation's policy"},
    {"credentials", take_lost, .why = "hide files with filesystem.hide; variables pass by a list"},
    SAME_DOMAINS,
    {0},
};

static const struct import_key claude_beside[] = {
    {"permissions.allow", take_permissions},
    {"permissions.deny", take_permissions},
    {"permissions.ask", take_lost, .why = "Claude Code asks, not the sandbox"},
    {"permissions.defaultMode", take_lost, .why = "Claude Code's own"},
    {"permissions.additionalDirectories", take_claude_paths, "filesystem.write"},
    {"$schema", take_nothing},
    {0},
};

static const struct import_key srt_keys[] = {
    SAME_DOMAINS,
    {"mandatoryDenySearchDepth", take_nothing},
    {"allowPty", take_nothing},
    {"network.mitmProxy", take_lost, .why = "connections are not taken apart"},
    {0},
};

/* Where nothing is excluded or said, theirs differs from ours. */
static int finish_claude(struct import *import) {
  if (import_has(import, "commands.exclude", NULL) &&
      !import_has(import, "commands.allow_unsandboxed", NULL)) {
    import_set(import, NULL, "commands.allow_unsandboxed", "true");
    import_note(import, "excluded commands run without a sandbox, as Claude Code runs them by "
                        "default; remove commands.allow_unsandboxed to refuse them");
  }
  if (!import_has(import, "require", NULL))
    import_note(import, "where no sandbox can be had the command is not run; Claude Code would go "
                        "on without one (require: preferred)");
  if (!import_has(import, "network.mode", NULL))
    import_note(import, "no host is listed, so there is no network; Claude Code would ask");
  return 0;
}

/* sandbox-runtime writes nowhere but where it is told; we write to the project. */
static int finish_srt(struct import *import) {
  if (!import_has(import, "filesystem.write", ".") && !import_has(import, "filesystem.write", "./"))
    import_add(import, NULL, "filesystem.read", ".");
  return 0;
}

/* Below Claude Code's `sandbox` these stand, too; without that they are sandbox-runtime's. */
#define SAME_MARKS                                                                                 \
  "network.allowedDomains", "network.deniedDomains", "network.allowUnixSockets",                   \
      "network.allowLocalBinding", "network.httpProxyPort", "network.socksProxyPort",              \
      "filesystem.allowWrite", "filesystem.denyWrite", "filesystem.denyRead",                      \
      "filesystem.allowRead", "enableWeakerNestedSandbox", "ignoreViolations", NULL

static const char *const claude_marks[] = {"autoAllowBashIfSandboxed", "excludedCommands",
                                           "allowUnsandboxedCommands", "failIfUnavailable",
                                           SAME_MARKS};
static const char *const srt_marks[] = {"mandatoryDenySearchDepth", "allowPty", SAME_MARKS};

const struct importer claude_importer = {
    .name = "claude",
    .summary = "Claude Code",
    .root = "sandbox",
    .keys = claude_keys,
    .beside = claude_beside,
    .recognised_by = claude_marks,
    .file_name = ".claude/settings.json",
    .finish = finish_claude,
};

const struct importer srt_importer = {
    .name = "srt",
    .summary = "sandbox-runtime",
    .keys = srt_keys,
    .recognised_by = srt_marks,
    .file_name = ".srt-settings.json",
    .finish = finish_srt,
};
