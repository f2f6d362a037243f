/* The command, where it may be found, and its environment. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/compile.h"

#define DEFAULT_PATH "/usr/local/bin:/usr/bin:/bin"

void plan_set_variable(struct strv *environment, const char *name, const char *value) {
  char *entry = xasprintf("%s=%s", name, value);
  size_t length = strlen(name) + 1;
  STRV_FOREACH (item, environment) {
    if (strncmp(*item, entry, length) == 0) {
      free(*item);
      *item = entry;
      return;
    }
  }
  strv_take(environment, entry);
}

static const char *get_variable(const struct strv *environment, const char *name) {
  size_t length = strlen(name);
  STRV_FOREACH (item, environment) {
    if (strncmp(*item, name, length) == 0 && (*item)[length] == '=')
      return *item + length + 1;
  }
  return NULL;
}

static void pass_environment(struct compiler *compiler) {
  for (char *const *entry = compiler->host->policy.environment; *entry; entry++) {
    const char *equals = strchr(*entry, '=');
    if (!equals)
      continue;
    _cleanup_free_ char *name = xstrndup(*entry, (size_t)(equals - *entry));
    if (environment_passes(compiler->policy, name))
      strv_add(&compiler->plan->environment, *entry);
  }
}

static bool is_same_folder(const char *path, const char *other) {
  struct stat one, two;
  return stat(path, &one) == 0 && stat(other, &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

/* The name by which the caller came here, which may lead through links; but who starts us elsewhere
 * (-C, or another program) seldom sets it. A wrong one makes shells look through all folders above,
 * and make use the wrong folder. */
static void set_working_folder(struct compiler *compiler) {
  struct strv *environment = &compiler->plan->environment;
  const char *folder = compiler->plan->working_folder, *named = get_variable(environment, "PWD");
  if (!named || named[0] != '/' || (strcmp(named, folder) != 0 && !is_same_folder(named, folder)))
    plan_set_variable(environment, "PWD", folder);
}

/* Go takes the folder that stands for a missing repository for one, asks git about it, and builds
 * nothing when git knows of none. */
static void set_go_flags(struct compiler *compiler) {
  struct strv *environment = &compiler->plan->environment;
  const char *flags = get_variable(environment, "GOFLAGS");
  _cleanup_free_ char *git = path_join(compiler->host->project, ".git");
  if (!plan_reserves(compiler->plan, git) || (flags && strstr(flags, "-buildvcs")))
    return;
  _cleanup_free_ char *all =
      xasprintf("%s%s-buildvcs=false", flags ? flags : "", flags && flags[0] ? " " : "");
  plan_set_variable(environment, "GOFLAGS", all);
}

/* Programs that would give up, complain, or write into the project instead, where they cannot write
 * to a place of their own at home. */
static const struct {
  const char *variable, *name; /* in the runtime folder, which is nobody else's in every engine */
  const char *unless;          /* at home: then the program finds out by itself */
} private_files[] = {
    {"NVIM_LOG_FILE", "nvim.log", NULL}, /* else ".nvimlog" in the working folder */
    {"LESSHISTFILE", "lesshst", NULL},   /* made under another name, which is not hidden */
    {"IPYTHONDIR", "ipython", ".ipython"},
};

static bool is_at_home(const struct compiler *compiler, const char *name) {
  const char *home = compiler->host->home;
  _cleanup_free_ char *path = home && name ? path_join(home, name) : NULL;
  return path && faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static void set_private_files(struct compiler *compiler, const char *runtime) {
  struct strv *environment = &compiler->plan->environment;
  for (size_t i = 0; i < ARRAY_SIZE(private_files); i++) {
    if (get_variable(environment, private_files[i].variable) ||
        is_at_home(compiler, private_files[i].unless))
      continue;
    _cleanup_free_ char *path = path_join(runtime, private_files[i].name);
    plan_set_variable(environment, private_files[i].variable, path);
  }
}

static void set_environment(struct compiler *compiler) {
  struct strv *environment = &compiler->plan->environment;
  char runtime[32];
  snprintf(runtime, sizeof runtime, "/run/user/%u", (unsigned)compiler->host->user);
  /* These point at private folders that exist and are writable, whatever they were outside. */
  plan_set_variable(environment, "TMPDIR", "/tmp");
  plan_set_variable(environment, "XDG_RUNTIME_DIR", runtime);
  plan_set_variable(environment, "SANDBOX", compiler->request->session_id);
  set_working_folder(compiler);
  set_go_flags(compiler);
  set_private_files(compiler, runtime);
  compile_proxy_variables(compiler);
  STRV_FOREACH (entry, &compiler->policy->environment_set) {
    const char *equals = strchr(*entry, '=');
    _cleanup_free_ char *name = xstrndup(*entry, (size_t)(equals - *entry));
    plan_set_variable(environment, name, equals + 1);
  }
}

void plan_find_executables(const struct strv *environment, const char *command,
                           struct strv *ret_places) {
  if (strchr(command, '/')) {
    strv_add(ret_places, command);
    return;
  }
  const char *path = get_variable(environment, "PATH");
  if (!path || !path[0])
    path = DEFAULT_PATH;
  for (const char *at = path;; at++) {
    size_t length = strcspn(at, ":");
    if (length == 0) /* an empty entry means the current folder */
      strv_addf(ret_places, "./%s", command);
    else
      strv_addf(ret_places, "%.*s/%s", (int)length, at, command);
    at += length;
    if (!*at)
      return;
  }
}

int compile_command(struct compiler *compiler, struct sb_error *error) {
  struct plan *plan = compiler->plan;
  for (char *const *word = compiler->request->command; *word; word++)
    strv_add(&plan->arguments, *word);
  const char *command = plan->arguments.items[0];
  if (!command[0]) {
    sb_fail(error, SB_CODE_USAGE, 0, "the command is an empty word");
    return sb_hint(error, "name a program: sandbox run -- ls");
  }
  strv_add(&plan->script_arguments, "sh");
  strv_add(&plan->script_arguments, "");
  for (size_t i = 1; i < plan->arguments.count; i++)
    strv_add(&plan->script_arguments, plan->arguments.items[i]);
  pass_environment(compiler);
  set_environment(compiler);
  plan_find_executables(&plan->environment, command, &plan->executables);
  return 0;
}
