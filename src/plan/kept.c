/* What has to stay as the plan made it; see kept.h. */
#include "plan/kept.h"

#include <dirent.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/walk.h"
#include "policy/globset.h"

static const struct strv no_paths;

/* ---- what is visible ---- */

static bool is_place(enum operation_kind kind) {
  return kind == OPERATION_ROOT || kind == OPERATION_GATE ||
         (kind >= OPERATION_PRIVATE && kind <= OPERATION_OVERLAY);
}

/* The place that a path lies in: the deepest one, and of several at one path the last. */
static enum operation_kind place_of(const struct kept_request *request, const char *path) {
  enum operation_kind best = OPERATION_COUNT;
  size_t length = 0;
  for (size_t i = 0; i < request->plan->operation_count; i++) {
    const struct operation *operation = &request->plan->operations[i];
    const char *place = operation->kind == OPERATION_ROOT || operation->kind == OPERATION_GATE
                            ? "/"
                            : operation->path;
    if (!is_place(operation->kind) || strlen(place) < length || !path_is_under(path, place))
      continue;
    best = operation->kind;
    length = strlen(place);
  }
  const struct strv *later[] = {request->granted, request->granted_writable};
  for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
    STRV_FOREACH (place, later[i] ? later[i] : &no_paths) {
      if (strlen(*place) < length || !path_is_under(path, *place))
        continue;
      best = i == 0 ? OPERATION_READONLY : OPERATION_WRITABLE;
      length = strlen(*place);
    }
  }
  return best;
}

bool kept_is_shown(const struct kept_request *request, const char *path) {
  enum operation_kind place = place_of(request, path);
  return place == OPERATION_ROOT || place == OPERATION_WRITABLE || place == OPERATION_READONLY ||
         place == OPERATION_OVERLAY;
}

static enum operation_kind place_around(const struct kept_request *request, const char *path) {
  _cleanup_free_ char *parent = path_parent(path);
  return place_of(request, parent);
}

/* ---- names ---- */

static struct kept_name *add_name(struct kept_list *list, enum kept_kind kind, const char *path) {
  ARRAY_GROW(list->names, list->name_count);
  struct kept_name *name = &list->names[list->name_count++];
  *name = (struct kept_name){.kind = kind, .path = xstrdup(path)};
  return name;
}

static const struct operation *placeholder_at(const struct plan *plan, const char *path) {
  for (size_t i = 0; plan && i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if ((operation->kind == OPERATION_PLACEHOLDER_FOLDER ||
         operation->kind == OPERATION_PLACEHOLDER_FILE) &&
        strcmp(operation->path, path) == 0)
      return operation;
  }
  return NULL;
}

/* Names that would do no harm if they were created are guarded only while they exist. */
static bool may_be_created(const struct kept_request *request, const char *path) {
  for (size_t i = 0; request->policy && i < request->policy->rule_count; i++) {
    const struct rule *rule = &request->policy->rules[i];
    if (rule->kind == RULE_PROTECT && rule->if_present_only && !rule->is_glob &&
        strcmp(rule->pattern, path) == 0)
      return true;
  }
  return false;
}

static void add_protected(const struct kept_request *request, struct kept_list *list,
                          const struct operation *operation) {
  struct kept_name *name = add_name(list, KEPT_SEAL, operation->path);
  const struct operation *placeholder = placeholder_at(request->plan, operation->path);
  if (!placeholder)
    placeholder = placeholder_at(request->grown, operation->path);
  struct stat status;
  name->held = placeholder || !may_be_created(request, operation->path);
  if (placeholder && placeholder->kind == OPERATION_PLACEHOLDER_FILE)
    name->content = xstrdup(placeholder->source ? placeholder->source : "");
  else
    name->folder = placeholder || (lstat(operation->path, &status) == 0 && S_ISDIR(status.st_mode));
}

/* A folder that was writable, or an overlay: what comes in its place has neither masks nor a layer
 * of its own. */
static void add_place(const struct kept_request *request, struct kept_list *list,
                      const struct operation *operation) {
  struct stat status;
  enum operation_kind around = place_around(request, operation->path);
  bool shown = around == OPERATION_ROOT || around == OPERATION_WRITABLE;
  if (shown && lstat(operation->path, &status) == 0 && S_ISDIR(status.st_mode))
    add_name(list, KEPT_PLACE, operation->path);
}

static void add_operation(const struct kept_request *request, struct kept_list *list,
                          const struct operation *operation) {
  switch (operation->kind) {
  case OPERATION_PIN:
    add_name(list, KEPT_PIN, operation->path)->folder = true;
    return;
  case OPERATION_PROTECT:
    add_protected(request, list, operation);
    return;
  case OPERATION_SEAL:
    if (kept_is_shown(request, operation->path))
      add_name(list, KEPT_SEAL, operation->path);
    return;
  case OPERATION_READONLY:
    if (place_around(request, operation->path) == OPERATION_WRITABLE)
      add_name(list, KEPT_SEAL, operation->path);
    return;
  case OPERATION_WRITABLE:
  case OPERATION_OVERLAY:
    add_place(request, list, operation);
    return;
  case OPERATION_MASK:
    if (kept_is_shown(request, operation->path))
      add_name(list, KEPT_MASK, operation->path)->holes = operation->flags & OPERATION_HOLES;
    return;
  default:
    return; /* not on an object that the host could replace */
  }
}

static bool is_masked(const struct kept_list *list, const char *path) {
  for (size_t i = 0; i < list->name_count; i++) {
    if (list->names[i].kind == KEPT_MASK && path_is_under(path, list->names[i].path))
      return true;
  }
  return false;
}

static void add_secret(const struct kept_request *request, struct kept_list *list, const char *path,
                       const char *tree) {
  if (path_is_under(path, tree) && kept_is_shown(request, path) && !is_masked(list, path) &&
      !(request->host && plan_is_closed(request->host, path)))
    add_name(list, KEPT_MASK, path);
}

/* Secrets that did not exist when the plan was made, and those in what was granted since. */
static void add_secrets(const struct kept_request *request, struct kept_list *list,
                        const char *tree) {
  for (size_t i = 0; request->policy && i < request->policy->rule_count; i++) {
    const struct rule *rule = &request->policy->rules[i];
    if (rule->kind == RULE_HIDE && !rule->is_glob && policy_hides_itself(request->policy, rule))
      add_secret(request, list, rule->pattern, tree);
  }
  STRV_FOREACH (hidden, &request->plan->hidden)
    add_secret(request, list, *hidden, tree);
}

static bool has_name(const struct kept_list *list, const char *path, enum kept_kind kind) {
  for (size_t i = 0; i < list->name_count; i++) {
    if (list->names[i].kind == kind && strcmp(list->names[i].path, path) == 0)
      return true;
  }
  return false;
}

static enum kept_kind kind_of(const struct operation *operation) {
  return operation->kind == OPERATION_PIN    ? KEPT_PIN
         : operation->kind == OPERATION_MASK ? KEPT_MASK
                                             : KEPT_SEAL;
}

/* What a rule allows is as it was written; see collect_named in gate-grant.c. */
static bool is_answered(const struct policy *policy, const char *tree) {
  struct decision decision = policy_decide(policy, tree, ACCESS_READ);
  bool answered = decision.verdict == VERDICT_ASK || (decision.rule && decision.rule->granted);
  return answered && !decision.secret;
}

static void add_named_secrets(const struct kept_request *request, struct kept_list *list,
                              const char *tree) {
  const char **patterns = NULL;
  size_t count = 0;
  struct stat status;
  if (!request->policy || lstat(tree, &status) < 0 || !S_ISDIR(status.st_mode) ||
      !is_answered(request->policy, tree))
    return;
  for (const struct secret *secret = secret_names; secret->pattern; secret++) {
    ARRAY_GROW(patterns, count);
    patterns[count++] = secret->pattern;
  }
  ARRAY_GROW(list->trees, list->tree_count);
  list->trees[list->tree_count++] = (struct kept_tree){
      .folder = xstrdup(tree), .patterns = glob_set_new(patterns, count), .only_builtin = true};
  free(patterns);
}

void kept_list_add_tree(const struct kept_request *request, struct kept_list *list,
                        const char *tree) {
  for (size_t i = 0; request->grown && i < request->grown->operation_count; i++) {
    const struct operation *operation = &request->grown->operations[i];
    if (path_is_under(operation->path, tree) &&
        !has_name(list, operation->path, kind_of(operation)))
      add_operation(request, list, operation);
  }
  add_secrets(request, list, tree);
  add_named_secrets(request, list, tree);
}

static void name_clear(struct kept_name *name) {
  free(name->path);
  free(name->content);
}

static void tree_clear(struct kept_tree *tree) {
  free(tree->folder);
  glob_set_free(tree->patterns);
}

void kept_list_drop_tree(struct kept_list *list, const char *tree) {
  size_t count = 0;
  for (size_t i = 0; i < list->name_count; i++) {
    if (path_is_under(list->names[i].path, tree))
      name_clear(&list->names[i]);
    else
      list->names[count++] = list->names[i];
  }
  list->name_count = count;
  count = 0;
  for (size_t i = 0; i < list->tree_count; i++) {
    if (strcmp(list->trees[i].folder, tree) == 0)
      tree_clear(&list->trees[i]);
    else
      list->trees[count++] = list->trees[i];
  }
  list->tree_count = count;
}

void kept_list_fill(const struct kept_request *request, struct kept_list *ret_list) {
  *ret_list = (struct kept_list){0};
  for (size_t i = 0; i < request->plan->operation_count; i++)
    add_operation(request, ret_list, &request->plan->operations[i]);
  add_secrets(request, ret_list, "/");
  const struct strv *later[] = {request->granted, request->granted_writable};
  for (size_t i = 0; i < ARRAY_SIZE(later); i++) {
    STRV_FOREACH (tree, later[i] ? later[i] : &no_paths)
      kept_list_add_tree(request, ret_list, *tree);
  }
  if (request->policy)
    kept_add_trees(request, ret_list);
}

void kept_list_clear(struct kept_list *list) {
  for (size_t i = 0; i < list->name_count; i++)
    name_clear(&list->names[i]);
  for (size_t i = 0; i < list->tree_count; i++)
    tree_clear(&list->trees[i]);
  free(list->names);
  free(list->trees);
  *list = (struct kept_list){0};
}

/* ---- patterns ---- */

static bool tree_matches(const struct kept_tree *tree, const char *path) {
  const char *below = path_below(path, tree->folder);
  return below && below[0] && glob_set_match(tree->patterns, below, path_base(path)) >= 0;
}

bool kept_may_hide(const struct kept_list *list, const char *path) {
  for (size_t i = 0; i < list->tree_count; i++) {
    if (tree_matches(&list->trees[i], path))
      return true;
  }
  return false;
}

/* A link leads to what is asked about by its own name. */
static bool is_file(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISREG(status.st_mode);
}

bool kept_hides(const struct kept_request *request, const struct kept_list *list, const char *path,
                bool is_folder) {
  if (!kept_may_hide(list, path) || !kept_is_shown(request, path))
    return false;
  struct decision decision = policy_decide(request->policy, path, ACCESS_READ);
  if (decision.secret)
    return is_file(path);
  return decision.verdict == VERDICT_HIDE &&
         !(is_folder && decision.rule && decision.rule->origin.store == STORE_BUILTIN);
}

struct visit {
  const struct kept_tree *tree;
  const struct kept_visitor *visitor;
  size_t max_depth;
  const struct walked_folder **known; /* sorted; they have their own turn */
  size_t known_count;
  dev_t device; /* of the tree, if its change times can be relied on */
};

static bool is_deep(const struct visit *visit, const char *path) {
  size_t depth = 1;
  for (const char *at = path; *at; at++)
    depth += *at == '/';
  return visit->max_depth != 0 && depth >= visit->max_depth;
}

static int by_path(const void *left, const void *right) {
  const struct walked_folder *const *a = left, *const *b = right;
  return strcmp((*a)->path, (*b)->path);
}

static bool is_known(const struct visit *visit, const char *path, ino_t inode) {
  const struct walked_folder wanted = {.path = (char *)path}, *key = &wanted;
  const struct walked_folder *const *found =
      visit->known_count
          ? bsearch(&key, visit->known, visit->known_count, sizeof *visit->known, by_path)
          : NULL;
  return found && (*found)->inode == inode;
}

static bool visit_entry(void *context, const struct walk_entry *entry) {
  const struct visit *visit = context;
  const struct kept_visitor *visitor = visit->visitor;
  bool match = glob_set_match(visit->tree->patterns, entry->path, entry->name) >= 0;
  bool folder = (entry->type == DT_DIR || entry->type == DT_UNKNOWN) &&
                !is_deep(visit, entry->path) &&
                !(visit->tree->only_builtin && walk_is_bulk(entry->name));
  if (!match && !folder)
    return false;
  _cleanup_free_ char *path = path_join(visit->tree->folder, entry->path);
  if (match)
    visitor->found(visitor->context, path, entry->type == DT_DIR);
  return folder && !is_known(visit, path, entry->inode) && visitor->enter(visitor->context, path);
}

void kept_walk(const struct kept_tree *tree, size_t max_depth, const struct kept_visitor *visitor) {
  if (tree->max_depth && (max_depth == 0 || tree->max_depth < max_depth))
    max_depth = tree->max_depth;
  struct visit context = {.tree = tree, .visitor = visitor, .max_depth = max_depth};
  if (visitor->enter(visitor->context, tree->folder))
    walk_folder(tree->folder, max_depth, visit_entry, &context);
}

/* ---- once more ---- */

/* Change times of one second, and the kernel's tick. */
#define COARSE_NS (3ll * 1000 * 1000 * 1000)

/* Where a change time is this machine's own and no coarser than that. Elsewhere (a server's clock,
 * FAT, FUSE) an old time proves nothing. */
static bool has_own_times(const char *folder) {
  static const unsigned long systems[] = {EXT4_SUPER_MAGIC, BTRFS_SUPER_MAGIC,
                                          XFS_SUPER_MAGIC,  F2FS_SUPER_MAGIC,
                                          TMPFS_MAGIC,      OVERLAYFS_SUPER_MAGIC};
  struct statfs system;
  if (statfs(folder, &system) < 0)
    return false;
  for (size_t i = 0; i < ARRAY_SIZE(systems); i++) {
    if ((unsigned long)system.f_type == systems[i])
      return true;
  }
  return false;
}

static bool has_changed(const struct visit *visit, const struct walked_folder *folder,
                        const struct timespec *since) {
  struct stat status;
  if (lstat(folder->path, &status) < 0 || status.st_ino != folder->inode ||
      status.st_dev != visit->device)
    return true;
  long long later = (long long)(status.st_ctim.tv_sec - since->tv_sec) * 1000000000ll +
                    status.st_ctim.tv_nsec - since->tv_nsec;
  return later >= -COARSE_NS;
}

/* The watch comes first, or what changes between would be missed. */
static void look_again(const struct visit *visit, const struct walked_folder *folder,
                       const struct timespec *since) {
  const struct kept_visitor *visitor = visit->visitor;
  const char *part = path_below(folder->path, visit->tree->folder);
  if (part && part[0] && visitor->enter(visitor->context, folder->path) &&
      has_changed(visit, folder, since))
    walk_part(visit->tree->folder, part, visit_entry, (void *)visit);
}

void kept_walk_again(const struct kept_tree *tree, const struct walked *walked,
                     const struct kept_visitor *visitor) {
  struct stat status;
  if (tree->max_depth || walked->failed || walked->count == 0 || !has_own_times(tree->folder) ||
      stat(tree->folder, &status) < 0) {
    kept_walk(tree, 0, visitor);
    return;
  }
  struct visit context = {
      .tree = tree, .visitor = visitor, .known_count = walked->count, .device = status.st_dev};
  context.known = xcalloc(walked->count, sizeof *context.known);
  for (size_t i = 0; i < walked->count; i++)
    context.known[i] = &walked->folders[i];
  qsort(context.known, walked->count, sizeof *context.known, by_path);
  if (visitor->enter(visitor->context, tree->folder))
    walk_folder(tree->folder, 0, visit_entry, &context);
  for (size_t i = 0; i < walked->count; i++)
    look_again(&context, &walked->folders[i], &walked->at);
  free(context.known);
}
