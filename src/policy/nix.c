/* `nix: on`: the socket of Nix's daemon, so that a command can have packages made and installed
 * without a writable store. The daemon works outside of the sandbox, for whoever asks: it must
 * never be opened to a session for which it would do everything. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "policy/policy.h"
#include "policy/rules.h"

#define NIX_STATE      "/nix/var/nix"
#define NIX_SETTINGS   "/etc/nix"
#define SETTINGS_LIMIT (1 << 20)
#define INCLUDE_DEPTH  8
#define GROUPS_LIMIT   65536

static const char refused_hint[] =
    "leave nix at auto: what is in the store can be used without the daemon";

/* ---- its settings (nix.conf) ---- */

struct settings {
  char *build_group;   /* NULL: not set, so that it is "nixbld" */
  struct strv trusted; /* names and @groups; root is one in any case */
};

static void settings_clear(struct settings *settings) {
  free(settings->build_group);
  strv_clear(&settings->trusted);
}
#define _cleanup_settings_ __attribute__((cleanup(settings_clear)))

static void add_words(struct strv *list, char *words) {
  char *rest = NULL;
  for (char *word = strtok_r(words, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
    strv_add(list, word);
}

static void set_build_group(struct settings *settings, char *value) {
  free(settings->build_group);
  settings->build_group = xstrdup(value + strspn(value, " \t"));
}

static void set_trusted(struct settings *settings, char *value) {
  strv_clear(&settings->trusted);
  add_words(&settings->trusted, value);
}

static void add_trusted(struct settings *settings, char *value) {
  add_words(&settings->trusted, value);
}

static const struct {
  const char *name;
  void (*take)(struct settings *settings, char *value);
} names[] = {
    {"build-users-group", set_build_group},
    {"trusted-users", set_trusted},
    {"extra-trusted-users", add_trusted},
};

static void take_setting(struct settings *settings, const char *name, char *value) {
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (strcmp(names[i].name, name) == 0)
      names[i].take(settings, value);
  }
}

static int read_settings(struct settings *settings, const char *file, int depth,
                         struct sb_error *error);

/* "name = value", "include FILE" or "!include FILE"; what comes later counts. */
static int read_line(struct settings *settings, const char *file, char *line, int depth,
                     struct sb_error *error) {
  char *rest = NULL;
  line[strcspn(line, "#")] = '\0';
  for (char *end = line + strlen(line); end > line && strchr(" \t\r", end[-1]);)
    *--end = '\0';
  const char *name = strtok_r(line, " \t", &rest);
  if (!name)
    return 0;
  if (strcmp(name + (name[0] == '!'), "include") == 0) {
    _cleanup_free_ char *folder = path_parent(file), *path = path_join(folder, rest);
    return read_settings(settings, path, depth + 1, error);
  }
  char *value = rest + strspn(rest, " \t");
  if (value[0] == '=')
    take_setting(settings, name, value + 1);
  return 0;
}

/* One that is not there says nothing; of one that cannot be read nobody knows what it says. */
static int read_settings(struct settings *settings, const char *file, int depth,
                         struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  int result =
      depth > INCLUDE_DEPTH ? -ELOOP : file_read_at(AT_FDCWD, file, SETTINGS_LIMIT, &data, NULL);
  if (result == -ENOENT)
    return 0;
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(file);
    sb_fail(error, SB_CODE_POLICY, -result, "nix: on: reading the daemon's settings '%s'", shown);
    return sb_hint(error, "%s", refused_hint);
  }
  char *rest = NULL;
  for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    if (read_line(settings, file, line, depth, error) < 0)
      return -1;
  }
  return 0;
}

/* ---- what it would do for us ---- */

/* Of somebody who is not in the file (NSS cannot be used by a static program) we do not know the
 * name: then it may be any. */
static bool may_be_us(const char *name) {
  _cleanup_file_ FILE *file = fopen("/etc/passwd", "re");
  for (struct passwd *entry; file && (entry = fgetpwent(file));) {
    if (entry->pw_uid == geteuid() && strcmp(entry->pw_name, name) == 0)
      return true;
    if (strcmp(entry->pw_name, name) == 0)
      return false;
  }
  return true;
}

static bool has_group(gid_t group) {
  _cleanup_free_ gid_t *groups = xcalloc(GROUPS_LIMIT, sizeof *groups);
  int count = getgroups(GROUPS_LIMIT, groups);
  for (int i = 0; i < count; i++) {
    if (groups[i] == group)
      return true;
  }
  return getegid() == group;
}

static bool lists_us(const struct group *group) {
  for (char **member = group->gr_mem; *member; member++) {
    if (may_be_us(*member))
      return true;
  }
  return false;
}

static bool may_be_ours(const char *name) {
  _cleanup_file_ FILE *file = fopen("/etc/group", "re");
  for (struct group *entry; file && (entry = fgetgrent(file));) {
    if (strcmp(entry->gr_name, name) == 0)
      return has_group(entry->gr_gid) || lists_us(entry);
  }
  return true;
}

static bool may_trust_us(const struct settings *settings) {
  STRV_FOREACH (name, &settings->trusted) {
    if (strcmp(*name, "*") == 0 || ((*name)[0] == '@' ? may_be_ours(*name + 1) : may_be_us(*name)))
      return true;
  }
  return geteuid() == 0;
}

static int refuse(const char *why, struct sb_error *error) {
  sb_fail(error, SB_CODE_POLICY, 0, "nix: on: %s", why);
  return sb_hint(error, "%s", refused_hint);
}

static bool is_own_daemon(const struct policy_context *context) {
  return context_variable(context, "NIX_DAEMON_SOCKET_PATH") ||
         context_variable(context, "NIX_STATE_DIR");
}

static int check_daemon(const struct policy_context *context, struct sb_error *error) {
  _cleanup_settings_ struct settings settings = {0};
  /* Who names other settings, but asks the machine's own daemon, says nothing about that one. */
  const char *folder = is_own_daemon(context) ? context_variable(context, "NIX_CONF_DIR") : NULL;
  _cleanup_free_ char *file = path_join(folder ? folder : NIX_SETTINGS, "nix.conf");
  if (read_settings(&settings, file, 0, error) < 0)
    return -1;
  if (settings.build_group && settings.build_group[0] == '\0')
    return refuse("the daemon builds as root, for whoever reaches it (build-users-group is empty)",
                  error);
  if (may_trust_us(&settings))
    return refuse("the daemon trusts this user (trusted-users), for whom it runs anything as root",
                  error);
  return 0;
}

/* ---- the key ---- */

static char *socket_path(const struct policy_context *context) {
  const char *named = context_variable(context, "NIX_DAEMON_SOCKET_PATH");
  const char *state = context_variable(context, "NIX_STATE_DIR");
  return named ? xstrdup(named) : path_join(state ? state : NIX_STATE, "daemon-socket/socket");
}

static int open_daemon(struct policy *policy, const struct policy_context *context,
                       struct sb_error *error) {
  static const char *const passed[] = {"NIX_DAEMON_SOCKET_PATH", "NIX_STATE_DIR", "NIX_STORE_DIR",
                                       "NIX_CONF_DIR"};
  struct stat status;
  _cleanup_free_ char *path = socket_path(context), *shown = escape_string(path);
  if (stat(path, &status) < 0 || !S_ISSOCK(status.st_mode)) {
    sb_fail(error, SB_CODE_POLICY, 0, "nix: on: no daemon has its socket at '%s'", shown);
    return sb_hint(error, "start nix-daemon, or %s", refused_hint);
  }
  if (check_daemon(context, error) < 0)
    return -1;
  strv_add(&policy->network.unix_sockets, path);
  for (size_t i = 0; i < ARRAY_SIZE(passed); i++)
    strv_add(&policy->environment_pass, passed[i]);
  strv_add(&policy->environment_set, "NIX_REMOTE=daemon"); /* it would try to write to the store */
  return 0;
}

int policy_settle_nix(struct policy *policy, const struct policy_context *context,
                      struct sb_error *error) {
  if (strcmp(policy->nix, "on") == 0)
    return open_daemon(policy, context, error);
  if (strcmp(policy->nix, "off") == 0)
    return policy_add_flag(policy, context, RULE_HIDE, "/", "/nix", "nix: off", error);
  return 0;
}
