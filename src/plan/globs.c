/* Globs in rules become found objects, by one walk per folder that the globs start from. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "plan/compile.h"
#include "plan/inodes.h"
#include "plan/kept.h"
#include "plan/second-names.h"
#include "plan/walk.h"
#include "policy/glob.h"
#include "policy/globset.h"

#define SECOND_NAME "a second name of a hidden file"

/* All globs that start from one folder. */
struct group {
  struct compiler *compiler;
  char *folder;
  const struct rule **rules;
  const char **patterns; /* relative to the folder; point into the rules */
  size_t count;
  size_t max_depth;
  bool only_builtin;
  bool hides;
  struct glob_set *set;
  const struct inode_set *secrets; /* on the same device as the folder, else NULL */
};

struct groups {
  struct group *items;
  size_t count;
};

static bool has_wildcard(const char *text, size_t length) {
  _cleanup_free_ char *component = xstrndup(text, length);
  return glob_has_wildcards(component);
}

/* "/srv/x" and the rest after it, for "/srv/x/…*…". */
static char *literal_folder(const char *pattern, const char **ret_rest) {
  const char *end = pattern;
  for (const char *at = pattern + 1;; at = end + 1) {
    const char *slash = strchr(at, '/');
    if (!slash || has_wildcard(at, (size_t)(slash - at)))
      break;
    end = slash;
  }
  *ret_rest = end + 1;
  char *folder = end == pattern ? xstrdup("/") : xstrndup(pattern, (size_t)(end - pattern));
  glob_unescape(folder);
  return folder;
}

static size_t depth_needed(const char *pattern) {
  if (strstr(pattern, "**"))
    return 0;
  size_t depth = 1;
  for (const char *at = pattern; *at; at++)
    depth += *at == '/';
  return depth;
}

static struct group *group_for(struct groups *groups, struct compiler *compiler, char *folder) {
  for (size_t i = 0; i < groups->count; i++) {
    if (strcmp(groups->items[i].folder, folder) == 0) {
      free(folder);
      return &groups->items[i];
    }
  }
  ARRAY_GROW(groups->items, groups->count);
  groups->items[groups->count] =
      (struct group){.compiler = compiler, .folder = folder, .only_builtin = true, .max_depth = 1};
  return &groups->items[groups->count++];
}

static void group_add(struct groups *groups, struct compiler *compiler, const struct rule *rule) {
  const char *rest;
  char *folder = literal_folder(rule->pattern, &rest);
  struct group *group = group_for(groups, compiler, folder);
  ARRAY_GROW(group->rules, group->count);
  ARRAY_GROW(group->patterns, group->count);
  group->rules[group->count] = rule;
  group->patterns[group->count++] = rest;
  group->only_builtin &= rule->origin.store == STORE_BUILTIN;
  group->hides |= rule->kind == RULE_HIDE;
  size_t depth = depth_needed(rest);
  group->max_depth = depth == 0 || group->max_depth == 0 ? 0
                     : depth > group->max_depth          ? depth
                                                         : group->max_depth;
}

/* A link that is hidden means the object it leads to. One that leads nowhere hides nothing, and one
 * to a folder that it lies in itself cannot have been meant. */
static char *behind_link(const char *path) {
  char *target = compile_resolve(path);
  if (target && !path_is_under(path, target))
    return target;
  free(target);
  return NULL;
}

static void note_hidden(struct compiler *compiler, const char *path, bool may_be_link,
                        const struct rule *rule) {
  char *object = may_be_link ? behind_link(path) : xstrdup(path);
  if (object)
    found_add(&compiler->hidden, object, rule, NULL);
}

/* Protected links are fixed as links; for the rest it is the object that counts. */
static void note_place(struct compiler *compiler, const char *path, bool may_be_link,
                       const struct rule *rule) {
  char *object = may_be_link && rule->kind != RULE_PROTECT ? compile_resolve(path) : xstrdup(path);
  if (object)
    found_add(&compiler->globbed, object, rule, NULL);
}

/* What the merged policy says of a match decides, not the glob that found it. */
static bool note_match(struct group *group, const struct rule *rule,
                       const struct walk_entry *entry) {
  struct compiler *compiler = group->compiler;
  bool may_be_link = entry->type == DT_LNK || entry->type == DT_UNKNOWN;
  _cleanup_free_ char *path = path_join(group->folder, entry->path);
  struct decision decision = policy_decide(compiler->policy, path, ACCESS_READ);
  if (decision.verdict == VERDICT_HIDE) {
    note_hidden(compiler, path, may_be_link, decision.rule);
    return true;
  }
  if (rule->kind != RULE_HIDE) /* else: taken back by a more specific rule */
    note_place(compiler, path, may_be_link, rule);
  return false;
}

static void note_hard_link(struct group *group, const char *relative) {
  struct stat status;
  char *path = path_join(group->folder, relative);
  if (lstat(path, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink > 1)
    found_add(&group->compiler->hidden, path, NULL, SECOND_NAME);
  else
    free(path);
}

/* A repository below the project, found on the way at no cost. */
static void note_repository(struct group *group, const char *relative) {
  struct compiler *compiler = group->compiler;
  if (strcmp(group->folder, compiler->host->project) != 0 || !strchr(relative, '/'))
    return;
  _cleanup_free_ char *git = path_join(group->folder, relative);
  strv_take(&compiler->repositories, path_parent(git));
}

/* Whoever watches for names that appear wants to know what has been read; see kept_walk_again. */
static void note_folder(struct group *group, const struct walk_entry *entry) {
  struct walked *walked = &group->compiler->plan->walked;
  if (walked->failed || (entry->type != DT_DIR && entry->type != DT_UNKNOWN))
    return;
  walked->failed = walked->count >= KEPT_FOLDER_LIMIT || entry->type == DT_UNKNOWN;
  ARRAY_GROW(walked->folders, walked->count);
  walked->folders[walked->count++] =
      (struct walked_folder){.path = path_join(group->folder, entry->path), .inode = entry->inode};
}

static bool visit(void *context, const struct walk_entry *entry) {
  struct group *group = context;
  if (strcmp(entry->name, ".git") == 0)
    note_repository(group, entry->path);
  int match = glob_set_match(group->set, entry->path, entry->name);
  if (match >= 0 && note_match(group, group->rules[match], entry))
    return false; /* masked as a whole */
  if (match < 0 && group->secrets && entry->type != DT_DIR &&
      inode_set_contains(group->secrets, entry->inode))
    note_hard_link(group, entry->path);
  if (group->only_builtin && entry->type == DT_DIR && walk_is_bulk(entry->name))
    return false;
  if (group->hides && group->max_depth == 0)
    note_folder(group, entry);
  return true;
}

/* The built-in globs look for secrets of a project. Where the caller stands in none (in the home
 * folder, or in "/") they would search the whole machine: only the folder itself is searched. */
static bool is_out_of_place(const struct group *group) {
  const struct compiler *compiler = group->compiler;
  const char *project = compiler->host->project;
  return group->only_builtin && strcmp(group->folder, project) == 0 &&
         !policy_has_project(&compiler->host->policy) &&
         policy_decide(compiler->policy, project, ACCESS_WRITE).verdict != VERDICT_ALLOW;
}

/* In dynamic mode what is not searched is not shown, either. */
static void say_out_of_place(const struct group *group) {
  struct compiler *compiler = group->compiler;
  const char *source, *place;
  _cleanup_free_ char *shown = escape_string(group->folder);
  if (compile_private_place(group->folder, &source, &place))
    return; /* it starts empty */
  strv_addf(compiler->dynamic ? &compiler->plan->notes : &compiler->plan->warnings,
            "'%s' is no project: files such as .env are looked for, and hidden, in the folder "
            "itself and not below it; start in the project, or hide what nobody may read: "
            "--blacklist PATH",
            shown);
}

/* A command can make trees that are deeper than any path: nothing can be mounted on a name there.
 * What is found so far down is hidden with a folder above it that can be. */
#define HIDDEN_FROM     1024 /* bytes of that folder's path; each folder above it is pinned */
#define REPOSITORY_ROOM 1024 /* for the names that are protected in a repository */

/* The first folder on the way that is deep enough and in nobody's way. New string, or NULL. */
static char *folder_above(const struct compiler *compiler, const char *path) {
  const struct host_context *host = compiler->host;
  for (size_t length = HIDDEN_FROM; length < PATH_MAX && path[length]; length++) {
    _cleanup_free_ char *folder = path[length] == '/' ? xstrndup(path, length) : NULL;
    if (folder && !path_is_under(host->cwd, folder) && !path_is_under(host->project, folder))
      return steal_pointer(folder);
  }
  return NULL;
}

struct too_deep {
  struct compiler *compiler;
  size_t count;
  char *first; /* for people: of thousands one is enough */
};

static char *describe_too_deep(const char *path) {
  _cleanup_free_ char *start = xstrndup(path, 200);
  _cleanup_free_ char *shown = escape_string(start);
  return xasprintf("'%s...', %zu bytes of path", shown, strlen(path));
}

static int refuse_too_deep(const char *path, const char *why, struct sb_error *error) {
  _cleanup_free_ char *shown = describe_too_deep(path), *name = escape_string(path_base(path));
  sb_fail(error, SB_CODE_SYSTEM, ENAMETOOLONG, "'%s' in %s", name, shown);
  return sb_hint(error, "it lies too deep to be hidden or protected (%s): move or remove it", why);
}

static int hide_from_above(struct too_deep *deep, const char *path, const char *why,
                           struct sb_error *error) {
  struct found_list *hidden = &deep->compiler->hidden;
  _cleanup_free_ char *folder = folder_above(deep->compiler, path);
  if (!folder)
    return refuse_too_deep(path, why, error);
  /* What comes from one walk lies side by side: most have the folder of the last one. */
  if (hidden->count > 0 && strcmp(hidden->items[hidden->count - 1].path, folder) == 0)
    return 0;
  if (deep->count++ == 0)
    deep->first = describe_too_deep(folder);
  found_add(hidden, steal_pointer(folder), NULL, "something in it lies too deep");
  return 0;
}

static int hide_found(struct too_deep *deep, struct found_list *list, struct sb_error *error) {
  struct found_list all = *list;
  *list = (struct found_list){0};
  int result = 0;
  for (size_t i = 0; i < all.count; i++) {
    struct found *found = &all.items[i];
    if (strlen(found->path) < PATH_MAX) {
      found_add(list, found->path, found->rule, found->why);
      continue;
    }
    _cleanup_free_ char *why = found->rule ? compile_reason(found->rule) : xstrdup(found->why);
    if (result == 0)
      result = hide_from_above(deep, found->path, why, error);
    free(found->path);
  }
  free(all.items);
  return result;
}

static int hide_all(struct too_deep *deep, struct sb_error *error) {
  struct compiler *compiler = deep->compiler;
  STRV_FOREACH (repository, &compiler->repositories) {
    if (strlen(*repository) >= PATH_MAX - REPOSITORY_ROOM &&
        hide_from_above(deep, *repository, "a git repository", error) < 0)
      return -1;
  }
  return hide_found(deep, &compiler->globbed, error) < 0
             ? -1
             : hide_found(deep, &compiler->hidden, error);
}

static int hide_what_is_too_deep(struct compiler *compiler, struct sb_error *error) {
  struct too_deep deep = {.compiler = compiler};
  int result = hide_all(&deep, error);
  if (result == 0 && deep.count > 0)
    strv_addf(&compiler->plan->warnings,
              "what is in %s, lies too deep to be hidden or protected by itself: the folder is "
              "hidden%s",
              deep.first, deep.count > 1 ? ", and others like it" : "");
  free(deep.first);
  return result;
}

static int walk_group(struct group *group, const struct inode_set *secrets,
                      struct sb_error *error) {
  struct stat status;
  if (is_out_of_place(group)) {
    say_out_of_place(group);
    group->max_depth = 1;
  }
  if (stat(group->folder, &status) < 0)
    return 0;
  if (group->hides && secrets->count > 0 && status.st_dev == secrets->device)
    group->secrets = secrets;
  group->set = glob_set_new(group->patterns, group->count);
  _cleanup_walk_closed_ struct walk_closed closed = {0};
  walk_folder_wholly(group->folder, group->max_depth, visit, group, &closed);
  glob_set_free(group->set);
  return compile_check_closed(group->compiler, &closed, error);
}

static void groups_clear(struct groups *groups) {
  for (size_t i = 0; i < groups->count; i++) {
    free(groups->items[i].folder);
    free(groups->items[i].rules);
    free(groups->items[i].patterns);
  }
  free(groups->items);
}

/* The files behind the hidden names found so far, for the walk to recognise by inode; and those
 * that it could not, being elsewhere. */
static void collect_secrets(const struct compiler *compiler, struct inode_set *secrets,
                            struct strv *ret_elsewhere) {
  struct stat status;
  if (stat(compiler->host->project, &status) < 0)
    return;
  secrets->device = status.st_dev;
  for (size_t i = 0; i < compiler->hidden.count; i++) {
    const char *path = compiler->hidden.items[i].path;
    if (!inode_set_add_tree(secrets, path))
      strv_add(ret_elsewhere, path);
  }
}

/* What a walk finds it cannot recognise by the names that it saw before. */
static void hide_second_names(const struct group *group, const struct strv *hidden) {
  struct compiler *compiler = group->compiler;
  if (!group->hides || is_out_of_place(group))
    return;
  const struct second_names request = {
      .hidden = hidden, .mounts = &compiler->mounts, .max_depth = group->max_depth};
  _cleanup_strv_ struct strv names = {0};
  (void)second_names_find(&request, group->folder, &names);
  STRV_FOREACH (name, &names) {
    if (!compile_covered(hidden, *name))
      found_add(&compiler->hidden, xstrdup(*name), NULL, SECOND_NAME);
  }
}

int compile_globs(struct compiler *compiler, struct sb_error *error) {
  struct groups groups = {0};
  int result = 0;
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (rule->is_glob && rule->kind != RULE_UNPROTECT)
      group_add(&groups, compiler, rule);
  }
  struct inode_set secrets = {0};
  _cleanup_strv_ struct strv unrecognised = {0};
  size_t known = compiler->hidden.count;
  collect_secrets(compiler, &secrets, &unrecognised);
  clock_gettime(CLOCK_REALTIME, &compiler->plan->walked.at);
  for (size_t i = 0; result == 0 && i < groups.count; i++)
    result = walk_group(&groups.items[i], &secrets, error);
  for (size_t i = known; i < compiler->hidden.count; i++)
    strv_add(&unrecognised, compiler->hidden.items[i].path);
  for (size_t i = 0; result == 0 && i < groups.count; i++)
    hide_second_names(&groups.items[i], &unrecognised);
  if (result == 0)
    result = hide_what_is_too_deep(compiler, error);
  inode_set_clear(&secrets);
  groups_clear(&groups);
  return result;
}

/* ---- what appears later ---- */

static void kept_add_tree(const struct kept_request *request, struct kept_list *list,
                          const struct group *group) {
  struct stat status;
  if (!kept_is_shown(request, group->folder) || stat(group->folder, &status) < 0 ||
      !S_ISDIR(status.st_mode))
    return;
  ARRAY_GROW(list->trees, list->tree_count);
  list->trees[list->tree_count++] = (struct kept_tree){
      .folder = xstrdup(group->folder),
      .patterns = glob_set_new(group->patterns, group->count),
      .max_depth = is_out_of_place(group) ? 1 : group->max_depth,
      .only_builtin = group->only_builtin,
  };
}

void kept_add_trees(const struct kept_request *request, struct kept_list *list) {
  struct compiler compiler = {.policy = request->policy, .host = request->host};
  struct groups groups = {0};
  for (size_t i = 0; i < request->policy->rule_count; i++) {
    const struct rule *rule = &request->policy->rules[i];
    if (rule->is_glob && rule->kind == RULE_HIDE)
      group_add(&groups, &compiler, rule);
  }
  for (size_t i = 0; i < groups.count; i++)
    kept_add_tree(request, list, &groups.items[i]);
  groups_clear(&groups);
}
