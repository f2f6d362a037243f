/* Git repositories inside writable places. The human's next `git status` runs what config and hooks
 * say, so these stay read-only in every form a repository takes: a folder, a file that points
 * elsewhere (worktrees, submodules), a bare repository, a symbolic link. What a `.git` file says is
 * the repository's own claim; it is believed only where the other side, written by the human's git,
 * points back. */
#include <dirent.h>
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

static char *config_path(const struct compiler *compiler, const char *base, const char *value) {
  _cleanup_free_ char *written = git_config_text(value);
  if (strncmp(written, "~/", 2) != 0)
    return path_join(base, written);
  return compiler->host->home ? path_join(compiler->host->home, written + 2) : NULL;
}

static int protect_config_file(struct compiler *compiler, const char *file, const char *tree,
                               size_t depth, struct sb_error *error);

/* What the config names as hooks folder or includes is executed or believed like the config. */
static int protect_config_line(struct compiler *compiler, const char *file, const char *tree,
                               const char *line, size_t depth, struct sb_error *error) {
  const char *hooks = git_config_value(line, "hookspath"),
             *include = git_config_value(line, "path");
  if (!hooks && !include)
    return 0;
  _cleanup_free_ char *folder = path_parent(file);
  _cleanup_free_ char *path = config_path(compiler, hooks ? tree : folder, hooks ? hooks : include);
  if (!path || compile_unprotected(compiler, path))
    return 0;
  if (compile_protect(compiler, path, true, NULL, "git: named in your configuration", error) < 0)
    return -1;
  return hooks ? protect_linked_hooks(compiler, path, error)
               : protect_config_file(compiler, path, tree, depth + 1, error);
}

static int protect_config_file(struct compiler *compiler, const char *file, const char *tree,
                               size_t depth, struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  if (depth > INCLUDE_DEPTH || file_read_at(AT_FDCWD, file, GITFILE_LIMIT, &data, NULL) < 0)
    return 0;
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

static int protect_worktrees(struct compiler *compiler, const char *git, struct sb_error *error) {
  static const struct {
    const char *name;
    bool reserve;
  } names[] = {{"commondir", false}, {"gitdir", false}, {"config.worktree", true}};
  _cleanup_free_ char *folder = path_join(git, "worktrees");
  struct names_found found = {.folder = folder};
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(folder, 1, find_worktrees, &found, &closed);
  int result = compile_check_closed(compiler, &closed, error);
  for (size_t i = 0; result == 0 && i < found.paths.count * ARRAY_SIZE(names); i++)
    result = protect_name(compiler, found.paths.items[i / ARRAY_SIZE(names)],
                          names[i % ARRAY_SIZE(names)].name, names[i % ARRAY_SIZE(names)].reserve,
                          "", error);
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
  if (file_read_at(AT_FDCWD, path, GITFILE_LIMIT, &data, NULL) < 0)
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

static bool is_hidden(const struct compiler *compiler, const char *path) {
  for (size_t i = 0; i < compiler->hidden.count; i++) {
    if (path_is_under(path, compiler->hidden.items[i].path))
      return true;
  }
  return false;
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
    return protect_git_folder(compiler, common, place, error) < 0
               ? -1
               : protect_modules(compiler, common, error);
  }
  if (is_submodule_folder(place, git) && !is_hidden(compiler, git)) {
    compile_writable(compiler, git, true, "git: the repository of this submodule");
    return protect_git_folder(compiler, git, place, error) < 0
               ? -1
               : protect_modules(compiler, git, error);
  }
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
  if (protect_git_folder(compiler, git, place, error) < 0)
    return -1;
  return protect_modules(compiler, git, error);
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
