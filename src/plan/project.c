/* Finds out who runs us, where, and which folder is the project. Must never follow what a
 * repository says about itself: the project is decided by where the caller stands. */
#include "plan/project.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

#define PASSWD_LIMIT ((size_t)16 << 20)

extern char **environ;

/* In /tmp and its like, a marker can be anybody's. */
static bool is_everybodys(int folder) {
  struct stat status;
  return fstat(folder, &status) == 0 && (status.st_mode & S_IWOTH);
}

static bool has_marker(int folder) {
  static const char *const markers[] = {".git", ".sandbox"};
  if (is_everybodys(folder))
    return false;
  for (size_t i = 0; i < ARRAY_SIZE(markers); i++) {
    if (faccessat(folder, markers[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
      return true;
  }
  return false;
}

/* Finds the project root of a canonical folder; never the home folder itself nor "/" unless the
 * search starts there (a stray ~/.git must not make a whole home writable). New string. */
static char *find_project(const char *folder, const char *home) {
  char *candidate = xstrdup(folder);
  while (strcmp(candidate, "/") != 0 && !(home && path_is_under(home, candidate))) {
    _cleanup_close_ int fd = open(candidate, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && has_marker(fd))
      return candidate;
    char *parent = path_parent(candidate);
    free(candidate);
    candidate = parent;
  }
  free(candidate);
  return xstrdup(folder);
}

/* The sixth field of name:password:uid:gid:comment:home:shell, if the third is the user. */
static char *home_of_line(char *line, uid_t user) {
  char *fields[6];
  for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
    fields[i] = strsep(&line, ":");
    if (!fields[i])
      return NULL;
  }
  char *end;
  unsigned long number = strtoul(fields[2], &end, 10);
  return end != fields[2] && *end == '\0' && number == user ? xstrdup(fields[5]) : NULL;
}

/* getpwuid would load NSS modules into a static program; the file is what remains without them.
 * fgetpwent asks the kernel for its position after every line. */
static char *home_from_passwd(uid_t user) {
  _cleanup_free_ char *passwd = NULL;
  if (file_read_at(AT_FDCWD, "/etc/passwd", PASSWD_LIMIT, &passwd, NULL) < 0)
    return NULL;
  char *rest = passwd, *home = NULL;
  while (!home && rest)
    home = home_of_line(strsep(&rest, "\n"), user);
  return home;
}

/* New string; NULL if it does not exist. */
static char *resolve_home(const char *named) {
  char *resolved = NULL;
  if (!named || file_resolve(named, &resolved) < 0)
    return NULL;
  if (strcmp(resolved, "/") == 0) {
    /* Service accounts have "/" as home; "~/.ssh" would then name parts of the system. */
    free(resolved);
    return NULL;
  }
  return resolved;
}

/* $HOME, and the account's home folder where that is another one. */
static void find_homes(uid_t user, char **ret_home, char **ret_account_home) {
  const char *variable = getenv("HOME");
  _cleanup_free_ char *named = home_from_passwd(user);
  _cleanup_free_ char *account = resolve_home(named);
  *ret_home = variable && variable[0] == '/' ? resolve_home(variable) : NULL;
  if (!*ret_home)
    *ret_home = steal_pointer(account);
  bool same = account && strcmp(account, *ret_home) == 0;
  *ret_account_home = account && !same ? steal_pointer(account) : NULL;
}

/* The XDG rule: the variable if it is an absolute path, else below the home folder. */
static char *xdg_folder(const char *variable, const char *home, const char *fallback) {
  const char *value = getenv(variable);
  if (value && value[0] == '/')
    return path_normalize(value);
  return home ? path_join(home, fallback) : NULL;
}

static bool is_own_folder(const char *path, uid_t user) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == user;
}

/* The user's runtime folder; where there is none (root, cron, containers), one in memory: making
 * files on a disk would cost more than the rest of the start. */
char *host_runtime_folder(uid_t user) {
  const char *value = getenv("XDG_RUNTIME_DIR");
  if (value && value[0] == '/' && is_own_folder(value, user))
    return path_join(value, "sandbox");
  _cleanup_free_ char *usual = xasprintf("/run/user/%u", (unsigned)user);
  if (is_own_folder(usual, user))
    return path_join(usual, "sandbox");
  const char *parent = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  return xasprintf("%s/sandbox-%u", parent, (unsigned)user);
}

/* Where the caller stands, or the folder by its own name. */
static char *find_folder(const char *folder, struct sb_error *error) {
  char *found = NULL;
  int result = folder ? file_resolve(folder, &found) : 0;
  if (!folder) {
    found = getcwd(NULL, 0);
    result = found ? 0 : -errno;
  }
  if (result == 0)
    return found;
  _cleanup_free_ char *shown = folder ? escape_string(folder) : NULL;
  sb_fail(error, folder ? SB_CODE_NOT_FOUND : SB_CODE_SYSTEM, -result, "%s%s%s",
          folder ? "the folder '" : "the current folder cannot be named", folder ? shown : "",
          folder ? "'" : "");
  sb_hint(error, "it was deleted or is out of reach: %s an existing folder",
          folder ? "name" : "first cd to");
  return NULL;
}

int host_context_load(struct host_context *ret_context, struct sb_error *error) {
  return host_context_load_at(NULL, ret_context, error);
}

int host_context_load_at(const char *folder, struct host_context *ret_context,
                         struct sb_error *error) {
  struct host_context context = {.user = geteuid(), .group = getegid()};
  char *cwd = find_folder(folder, error);
  if (!cwd)
    return -1;
  context.cwd = cwd;
  find_homes(context.user, &context.home, &context.account_home);
  context.project = find_project(cwd, context.home);
  context.config_home = xdg_folder("XDG_CONFIG_HOME", context.home, ".config");
  context.state_home = xdg_folder("XDG_STATE_HOME", context.home, ".local/state");
  context.runtime_folder = host_runtime_folder(context.user);
  context.policy = (struct policy_context){
      .home = context.home,
      .account_home = context.account_home,
      .project = context.project,
      .config_home = context.config_home,
      .state_home = context.state_home,
      .org_folder = "/etc/sandbox",
      .environment = environ,
  };
  *ret_context = context;
  return 0;
}

void host_context_clear(struct host_context *context) {
  free(context->cwd);
  free(context->home);
  free(context->account_home);
  free(context->project);
  free(context->config_home);
  free(context->state_home);
  free(context->runtime_folder);
  *context = (struct host_context){0};
}
