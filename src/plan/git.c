/* Git repositories inside writable places. The human's next `git status` runs what config and hooks
 * say, so these stay read-only in every form a repository takes: a folder, a file that points
 * elsewhere (worktrees, submodules), a bare repository, a symbolic link. What a `.git` file says is
 * the repository's own claim; it is believed only where the other side, written by the human's git,
 * points back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "plan/compile.h"
#include "plan/walk.h"
#include "policy/git-config.h"

#define GITFILE_LIMIT (64 * 1024)
#define CONFIG_LIMIT  (16 * 1024 * 1024) /* each branch and submodule has lines in it */
#define MODULES_DEPTH 8
#define NESTED_DEPTH  4
#define INCLUDE_DEPTH 4 /* git's own limit is 10 */

static bool exists(const char *folder, const char *name) {
  _cleanup_free_ char *path = path_join(folder, name);
  return access(path, F_OK) == 0;
}

/* Not by HEAD, which a workload could take away for one session: these two are fixed in place. */
static bool is_git_folder(const char *path) {
  return exists(path, "objects") && exists(path, "refs");
}

/* With the name `.git`, anything that git would use is enough: what is missing can come back. */
static bool holds_git_files(const char *path) {
  static const char *const names[] = {"HEAD", "config", "hooks", "objects", "refs"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (exists(path, names[i]))
      return true;
  }
  return false;
}

static char *read_line_of(const char *folder, const char *name) {
  _cleanup_free_ char *path = path_join(folder, name);
  char *data = NULL;
  if (file_read_at(AT_FDCWD, path, GITFILE_LIMIT, &data, NULL) < 0)
    return NULL;
  data[strcspn(data, "\r\n")] = '\0';
  return data;
}

/* ---- what is protected in one git folder ---- */

static int protect_name(struct compiler *compiler, const char *git, const char *name, bool reserve,
                        const char *content, struct sb_error *error) {
  _cleanup_free_ char *path = path_join(git, name);
  if (compile_unprotected(compiler, path))
    return 0;
  return compile_protect(compiler, path, reserve, content,
                         "git: decides what your own git executes", error);
}

/* The administrative folders of linked worktrees: they tell git where its config is. */
static int protect_worktrees(struct compiler *compiler, const char *git, struct sb_error *error);

struct names_found {
  const char *folder;
  struct strv paths;
};

static bool find_links(void *context, const struct walk_entry *entry) {
  struct names_found *found = context;
  if (entry->type == DT_LNK)
    strv_take(&found->paths, path_join(found->folder, entry->path));
  return false;
}

/* A hook that is a link runs what lies at its other end. */
static int protect_linked_hooks(struct compiler *compiler, const char *hooks,
                                struct sb_error *error) {
  struct names_found found = {.folder = hooks};
  walk_folder(hooks, 1, find_links, &found);
  int result = 0;
  for (size_t i = 0; result == 0 && i < found.paths.count; i++)
    result = compile_protect_target(compiler, found.paths.items[i], "git: a hook", error);
  strv_clear(&found.paths);
  return result;
}

static bool is_hidden(const struct compiler *compiler, const char *path) {
  for (size_t i = 0; i < compiler->hidden.count; i++) {
    if (path_is_under(path, compiler->hidden.items[i].path))
      return true;
  }
  return false;
}

static char *named_path(const struct compiler *compiler, const char *base, const char *written) {
  if (strncmp(written, "~/", 2) != 0)
    return path_join(base, written);
  return compiler->host->home ? path_join(compiler->host->home, written + 2) : NULL;
}

/* What a package manager installs is replaced by it as a whole, and run from there anyway. */
static bool is_installed(const char *path) {
  _cleanup_free_ char *names = xstrdup(path);
  char *rest = NULL;
  for (char *name = strtok_r(names, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
    if (walk_is_bulk(name) && strcmp(name, ".git") != 0)
      return true;
  }
  return false;
}

static bool is_program_of_place(const struct compiler *compiler, const char *path) {
  struct stat status;
  return path && lstat(path, &status) == 0 && !S_ISDIR(status.st_mode) && !is_installed(path) &&
         !compile_unprotected(compiler, path) && !is_hidden(compiler, path);
}

/* "tools/clean.py %f", or "python3 clean.py", however it is quoted. Only a first word without a
 * slash is looked for elsewhere. */
static int protect_program(struct compiler *compiler, const char *tree, const char *value,
                           struct sb_error *error) {
  static const char between[] = " \t!'\"\\;&|()<>";
  _cleanup_free_ char *command = xstrdup(value);
  char *rest = NULL, *first = strtok_r(command, between, &rest);
  for (char *word = first; word; word = strtok_r(NULL, between, &rest)) {
    _cleanup_free_ char *path =
        word == first && !strchr(word, '/') ? NULL : named_path(compiler, tree, word);
    if (is_program_of_place(compiler, path) &&
        compile_protect(compiler, path, false, NULL, "git: a program of your configuration",
                        error) < 0)
      return -1;
  }
  return 0;
}

/* What git runs by itself, at a `git status` or `git log`. */
static int protect_programs(struct compiler *compiler, const char *tree, const char *line,
                            struct sb_error *error) {
  static const char *const keys[] = {"fsmonitor", "clean",      "smudge",  "process", "textconv",
                                     "external",  "driver",     "command", "editor",  "pager",
                                     "program",   "sshcommand", "askpass", "helper"};
  for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
    const char *value = git_config_value(line, keys[i]);
    if (value && protect_program(compiler, tree, value, error) < 0)
      return -1;
  }
  return 0;
}

static int protect_config_file(struct compiler *compiler, const char *file, const char *tree,
                               size_t depth, struct sb_error *error);

/* What the config names as program or hooks folder, or includes, is executed or believed like the
 * config. */
static int protect_config_line(struct compiler *compiler, const char *file, const char *tree,
                               const char *line, size_t depth, struct sb_error *error) {
  const char *hooks = git_config_value(line, "hookspath"),
             *include = git_config_value(line, "path");
  if (!hooks && !include)
    return protect_programs(compiler, tree, line, error);
  _cleanup_free_ char *folder = path_parent(file);
  _cleanup_free_ char *written = git_config_text(hooks ? hooks : include);
  _cleanup_free_ char *path = named_path(compiler, hooks ? tree : folder, written);
  if (!path || compile_unprotected(compiler, path))
    return 0;
  if (compile_protect(compiler, path, true, NULL, "git: named in your configuration", error) < 0)
    return -1;
  return hooks ? protect_linked_hooks(compiler, path, error)
               : protect_config_file(compiler, path, tree, depth + 1, error);
}

static int refuse_large(const char *file, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file);
  sb_fail(error, SB_CODE_SYSTEM, EFBIG, "reading git's configuration '%s'", shown);
  return sb_hint(error, "what it names could not be protected: make it smaller");
}

static int protect_config_file(struct compiler *compiler, const char *file, const char *tree,
                               size_t depth, struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  int result =
      depth > INCLUDE_DEPTH ? -ELOOP : file_read_at(AT_FDCWD, file, CONFIG_LIMIT, &data, NULL);
  if (result < 0)
    return result == -EFBIG ? refuse_large(file, error) : 0;
  char *rest = NULL;
  for (char *line = strtok_r(data, "\r\n", &rest); line; line = strtok_r(NULL, "\r\n", &rest)) {
    if (protect_config_line(compiler, file, tree, line, depth, error) < 0)
      return -1;
  }
  return 0;
}

/* Also the person's own configuration: a relative hooks folder there holds for every repository. */
static int protect_named_in_config(struct compiler *compiler, const char *git, const char *tree,
                                   struct sb_error *error) {
  const struct {
    const char *folder, *name;
  } files[] = {{git, "config"},
               {git, "config.worktree"},
               {compiler->host->home, ".gitconfig"},
               {compiler->host->config_home, "git/config"}};
  for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
    _cleanup_free_ char *file = files[i].folder ? path_join(files[i].folder, files[i].name) : NULL;
    if (file && protect_config_file(compiler, file, tree, 0, error) < 0)
      return -1;
  }
  return 0;
}

/* Without them it would be no repository in the eyes of the next session. */
static void fix_database(struct compiler *compiler, const char *git) {
  static const char *const names[] = {"objects", "refs"};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    _cleanup_free_ char *path = path_join(git, names[i]);
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISDIR(status.st_mode))
      compile_pin(compiler, path);
  }
}

/* `tree`: the work tree, or the git folder itself if it has none. */
static int protect_git_folder(struct compiler *compiler, const char *git, const char *tree,
                              struct sb_error *error) {
  /* A file `commondir` makes git read its config elsewhere. Where it does not exist, one that names
   * the folder itself changes nothing for git and can be protected. */
  _cleanup_free_ char *own = xasprintf("%s\n", git);
  const struct {
    const char *name;
    bool reserve;
    const char *content;
  } names[] = {
      {"config", false, NULL},
      {"hooks", true, NULL},
      /* Not the whole of `info`: `git gc` writes there, and the rest names no program. Attributes
       * choose among the programs of the configuration, and these stand above those of the tree,
       * where a person would see them. */
      {"info/attributes", true, ""},
      {"config.worktree", true, ""},
      {"commondir", true, own},
  };
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (protect_name(compiler, git, names[i].name, names[i].reserve, names[i].content, error) < 0)
      return -1;
  }
  fix_database(compiler, git);
  _cleanup_free_ char *hooks = path_join(git, "hooks");
  if (protect_linked_hooks(compiler, hooks, error) < 0 ||
      protect_named_in_config(compiler, git, tree, error) < 0)
    return -1;
  return protect_worktrees(compiler, git, error);
}

static bool find_worktrees(void *context, const struct walk_entry *entry) {
  struct names_found *found = context;
  strv_take(&found->paths, path_join(found->folder, entry->path));
  return false;
}

/* `git config --worktree` writes to a file of its own, which may name a hooks folder as well. */
static int protect_worktree(struct compiler *compiler, const char *folder, struct sb_error *error) {
  static const struct {
    const char *name;
    bool reserve;
  } names[] = {{"commondir", false}, {"gitdir", false}, {"config.worktree", true}};
  for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
    if (protect_name(compiler, folder, names[i].name, names[i].reserve, "", error) < 0)
      return -1;
  }
  _cleanup_free_ char *line = read_line_of(folder, "gitdir");
  if (!line)
    return 0;
  _cleanup_free_ char *link = path_join(folder, line);
  _cleanup_free_ char *tree = path_parent(link), *file = path_join(folder, "config.worktree");
  return protect_config_file(compiler, file, tree, 0, error);
}

static int protect_worktrees(struct compiler *compiler, const char *git, struct sb_error *error) {
  _cleanup_free_ char *folder = path_join(git, "worktrees");
  struct names_found found = {.folder = folder};
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(folder, 1, find_worktrees, &found, &closed);
  int result = compile_check_closed(compiler, &closed, error);
  for (size_t i = 0; result == 0 && i < found.paths.count; i++)
    result = protect_worktree(compiler, found.paths.items[i], error);
  strv_clear(&found.paths);
  return result;
}

/* ---- submodules: git folders below .git/modules, and the `.git` files that point to them ---- */

static bool find_modules(void *context, const struct walk_entry *entry) {
  struct names_found *found = context;
  if (strcmp(entry->name, "config") == 0 && entry->type != DT_DIR) {
    _cleanup_free_ char *config = path_join(found->folder, entry->path);
    strv_take(&found->paths, path_parent(config));
  }
  return strcmp(entry->name, "objects") != 0 && strcmp(entry->name, "refs") != 0 &&
         strcmp(entry->name, "logs") != 0;
}

/* The work tree a submodule's config names, so that its `.git` file cannot be replaced. */
static char *submodule_work_tree(const char *git) {
  _cleanup_free_ char *path = path_join(git, "config"), *data = NULL;
  if (file_read_at(AT_FDCWD, path, CONFIG_LIMIT, &data, NULL) < 0)
    return NULL;
  char *rest = NULL;
  for (char *line = strtok_r(data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    const char *value = git_config_value(line, "worktree");
    if (value)
      return path_join(git, value);
  }
  return NULL;
}

static int protect_modules(struct compiler *compiler, const char *git, struct sb_error *error) {
  _cleanup_free_ char *folder = path_join(git, "modules");
  struct names_found found = {.folder = folder};
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(folder, MODULES_DEPTH, find_modules, &found, &closed);
  int result = compile_check_closed(compiler, &closed, error);
  for (size_t i = 0; result == 0 && i < found.paths.count; i++) {
    const char *module = found.paths.items[i];
    _cleanup_free_ char *tree = submodule_work_tree(module);
    result = protect_git_folder(compiler, module, tree ? tree : module, error);
    if (result == 0 && tree)
      result = protect_name(compiler, tree, ".git", false, NULL, error);
  }
  strv_clear(&found.paths);
  return result;
}

/* ---- `.git` as a file ---- */

/* A linked worktree: its folder lies in the common folder's `worktrees`, and names us back. */
static char *worktree_common_folder(const char *place, const char *git) {
  _cleanup_free_ char *line = read_line_of(git, "commondir");
  _cleanup_free_ char *back = read_line_of(git, "gitdir");
  if (!line || !back)
    return NULL;
  _cleanup_free_ char *named = path_join(git, line);
  _cleanup_free_ char *common = compile_resolve(named);
  _cleanup_free_ char *back_path = path_join(git, back);
  _cleanup_free_ char *back_to = compile_resolve(back_path);
  _cleanup_free_ char *own = path_join(place, ".git");
  if (!common || !back_to || !is_git_folder(common) || strcmp(back_to, own) != 0)
    return NULL;
  _cleanup_free_ char *worktrees = path_join(common, "worktrees");
  return path_is_under(git, worktrees) ? steal_pointer(common) : NULL;
}

/* A submodule whose superproject lies above us and keeps the git folder, which names us back. */
static bool is_submodule_folder(const char *place, const char *git) {
  const char *marker = strstr(git, "/.git/modules/");
  if (!marker || !is_git_folder(git))
    return false;
  _cleanup_free_ char *super = xstrndup(git, (size_t)(marker - git));
  _cleanup_free_ char *named = submodule_work_tree(git);
  _cleanup_free_ char *tree = named ? compile_resolve(named) : NULL;
  return tree && strcmp(tree, place) == 0 && path_is_under(place, super);
}

static int protect_whole(struct compiler *compiler, const char *git, const char *tree,
                         struct sb_error *error) {
  return protect_git_folder(compiler, git, tree, error) < 0 ? -1
                                                            : protect_modules(compiler, git, error);
}

static int protect_gitfile(struct compiler *compiler, const char *place, struct sb_error *error) {
  if (protect_name(compiler, place, ".git", false, NULL, error) < 0)
    return -1;
  _cleanup_free_ char *line = read_line_of(place, ".git");
  if (!line || strncmp(line, "gitdir: ", 8) != 0)
    return 0;
  _cleanup_free_ char *named = path_join(place, line + 8);
  _cleanup_free_ char *git = compile_resolve(named);
  if (!git)
    return 0;
  _cleanup_free_ char *common = worktree_common_folder(place, git);
  if (common && !is_hidden(compiler, common)) {
    compile_writable(compiler, common, true, "git: the repository of this worktree");
    return protect_whole(compiler, common, place, error);
  }
  if (is_submodule_folder(place, git) && !is_hidden(compiler, git)) {
    compile_writable(compiler, git, true, "git: the repository of this submodule");
    return protect_whole(compiler, git, place, error);
  }
  /* `git init --separate-git-dir`, or a bare repository beside its worktrees: to protect what is
   * writable anyway, nothing has to be believed. */
  if (compile_covered(&compiler->writable, git) && is_git_folder(git))
    return protect_whole(compiler, git, place, error);
  _cleanup_free_ char *shown = escape_string(git);
  strv_addf(&compiler->plan->warnings,
            "'.git' points to '%s', which does not point back: it is not made writable", shown);
  return 0;
}

/* ---- one writable place ---- */

static bool pass_by(void *context, const struct walk_entry *entry) {
  (void)context, (void)entry;
  return false;
}

static int protect_repository(struct compiler *compiler, const char *place,
                              struct sb_error *error) {
  _cleanup_free_ char *git = path_join(place, ".git");
  struct stat status;
  if (lstat(git, &status) < 0)
    return is_git_folder(place) ? protect_git_folder(compiler, place, place, error) : 0;
  if (S_ISREG(status.st_mode))
    return protect_gitfile(compiler, place, error);
  if (S_ISLNK(status.st_mode)) {
    /* The link stays what it is; the folder behind it is protected where it is writable. */
    compile_fix_link(compiler, git, "git: decides what your own git executes");
    _cleanup_free_ char *target = compile_resolve(git);
    return target && is_git_folder(target) ? protect_git_folder(compiler, target, place, error) : 0;
  }
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(git, 1, pass_by, NULL, &closed);
  if (compile_check_closed(compiler, &closed, error) < 0)
    return -1;
  if (!holds_git_files(git))
    return 0; /* empty or foreign: the protected names of the policy reserve it */
  return protect_whole(compiler, git, place, error);
}

static bool find_repositories(void *context, const struct walk_entry *entry) {
  struct names_found *found = context;
  if (strcmp(entry->name, ".git") != 0)
    return true;
  _cleanup_free_ char *git = path_join(found->folder, entry->path);
  strv_take(&found->paths, path_parent(git));
  return false;
}

/* Repositories below the project were found on the way; a folder of projects that somebody made
 * writable is looked through here, not too deep, for it may be a cache. */
static int find_nested(struct compiler *compiler, const char *place, struct sb_error *error) {
  if (path_is_under(place, compiler->host->project))
    return 0;
  struct names_found found = {.folder = place};
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(place, NESTED_DEPTH, find_repositories, &found, &closed);
  STRV_FOREACH (path, &found.paths)
    strv_add(&compiler->repositories, *path);
  strv_clear(&found.paths);
  return compile_check_closed(compiler, &closed, error);
}

int compile_git(struct compiler *compiler, struct sb_error *error) {
  size_t count = compiler->writable.count; /* grows while we go: what we add needs no second look */
  for (size_t i = 0; i < count; i++) {
    _cleanup_free_ char *place = xstrdup(compiler->writable.items[i]);
    if (strv_contains(&compiler->caches, place))
      continue;
    if (protect_repository(compiler, place, error) < 0 || find_nested(compiler, place, error) < 0)
      return -1;
  }
  STRV_FOREACH (nested, &compiler->repositories) {
    if (compile_covered(&compiler->writable, *nested) &&
        protect_repository(compiler, *nested, error) < 0)
      return -1;
  }
  return 0;
}
