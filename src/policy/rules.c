/* Making rules; see rules.h. The only place that turns an author's words into patterns. Must never
 * let a link planted in the project make a place outside it writable. */
#include "policy/rules.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "policy/glob.h"

/* Enough for the built-in ones: moving them as they grow would touch twice the memory. */
#define FIRST_CAPACITY 512

static void make_room(struct policy *policy) {
  if (policy->rule_count < policy->rule_capacity)
    return;
  policy->rule_capacity = policy->rule_capacity ? 2 * policy->rule_capacity : FIRST_CAPACITY;
  policy->rules = xreallocarray(policy->rules, policy->rule_capacity, sizeof *policy->rules);
}

struct rule *rules_push(struct policy *policy, const struct rule *rule) {
  make_room(policy);
  struct rule *place = &policy->rules[policy->rule_count++];
  *place = *rule;
  place->length = strlen(rule->pattern);
  return place;
}

/* ---- resolving ---- */

/* The canonical name of a path of which the end need not exist. New string. */
char *rules_resolve(const char *path) {
  _cleanup_free_ char *head = xstrdup(path);
  for (;;) {
    _cleanup_free_ char *resolved = NULL;
    if (file_resolve(head, &resolved) == 0) {
      const char *rest = path_below(path, head);
      return path_join(resolved, rest ? rest : "");
    }
    if (strcmp(head, "/") == 0)
      return xstrdup(path);
    char *parent = path_parent(head);
    free(head);
    head = parent;
  }
}

/* Length of the part of a pattern before its first component with a wildcard. */
static size_t literal_prefix_length(const char *pattern) {
  size_t prefix = 0;
  for (size_t at = 0; pattern[at]; at++) {
    if (pattern[at] == '/')
      prefix = at;
    else if (strchr("*?[", pattern[at]))
      return prefix;
    else if (pattern[at] == '\\' && pattern[at + 1])
      at++;
  }
  return strlen(pattern);
}

static char *resolve_glob(const char *pattern) {
  size_t length = literal_prefix_length(pattern);
  _cleanup_free_ char *prefix = xstrndup(pattern, length);
  glob_unescape(prefix);
  _cleanup_free_ char *resolved = rules_resolve(*prefix ? prefix : "/");
  _cleanup_free_ char *escaped = glob_escape(strcmp(resolved, "/") == 0 ? "" : resolved);
  return xasprintf("%s%s", escaped, pattern + length);
}

static bool gives_access(enum rule_kind kind) {
  return kind == RULE_READ || kind == RULE_WRITE || kind == RULE_OVERLAY || kind == RULE_LIST;
}

/* A name inside the project may be a link that an earlier workload or the repository planted: what
 * it points to outside was not what the author allowed. */
static int check_stays_inside(const struct policy_context *context, const char *named,
                              const char *resolved, struct sb_error *error) {
  if (!path_is_under(named, context->project) || path_is_under(resolved, context->project))
    return 0;
  _cleanup_free_ char *target = escape_string(resolved);
  sb_fail(error, SB_CODE_POLICY, 0, "it leads out of the project through a symbolic link to %s",
          target);
  return sb_hint(error, "write %s itself if that is what you mean, or remove the link", target);
}

/* ---- adding what an author wrote ---- */

/* A pattern that ends in ** covers what its folder covers, so it is kept as the folder. */
static void drop_trailing_crossing(char *pattern) {
  size_t length = strlen(pattern);
  while (length >= 3 && strcmp(pattern + length - 3, "/**") == 0) {
    length -= 3;
    pattern[length] = '\0';
  }
  if (length == 0)
    strcpy(pattern, "/");
}

static void push_copy(struct policy *policy, const struct rule *template, const char *pattern) {
  struct rule rule = *template;
  rule.pattern = arena_strdup(&policy->strings, pattern);
  rules_push(policy, &rule);
}

/* Every match of a glob becomes a writable place; which ones exist is not known here. */
static void protect_matches(struct policy *policy, const char *pattern) {
  const char *prefix = arena_concat(&policy->strings, pattern, "/");
  for (const struct protected_name *name = protected_table; name->name; name++)
    if (!name->at_home)
      rules_push(policy,
                 &(struct rule){.kind = RULE_PROTECT,
                                .pattern = arena_concat(&policy->strings, prefix, name->name),
                                .is_glob = true,
                                .if_present_only = true,
                                .written = name->name,
                                .why = name->why});
}

static int fail_listed(struct sb_error *error) {
  sb_fail(error, SB_CODE_POLICY, 0, "only a folder by its name can be listed, not a pattern");
  return sb_hint(error, "name each folder; what is below it stays a question");
}

static int add_pattern(struct policy *policy, const struct policy_context *context, char *pattern,
                       struct rule *rule, struct sb_error *error) {
  if (rule->kind == RULE_LIST && glob_has_wildcards(pattern))
    return fail_listed(error);
  drop_trailing_crossing(pattern);
  rule->is_glob = glob_has_wildcards(pattern);
  if (!rule->is_glob)
    glob_unescape(pattern);
  _cleanup_free_ char *resolved = rule->is_glob ? resolve_glob(pattern) : rules_resolve(pattern);
  if (gives_access(rule->kind) && check_stays_inside(context, pattern, resolved, error) < 0)
    return -1;
  push_copy(policy, rule, resolved);
  /* Whoever hides or protects a link means both the link and what it points to. */
  if (!gives_access(rule->kind) && strcmp(pattern, resolved) != 0)
    push_copy(policy, rule, pattern);
  if (rule->kind == RULE_WRITE && rule->is_glob)
    protect_matches(policy, resolved);
  else if (rule->kind == RULE_WRITE)
    rules_protect_place(policy, context, resolved);
  return 0;
}

int rules_add(struct policy *policy, const struct policy_context *context, const char *base,
              const char *text, const struct rule *template, struct sb_error *error) {
  _cleanup_free_ char *pattern = NULL;
  if (expand_pattern(context, base, text, &pattern, error) < 0)
    return -1;
  struct rule rule = *template;
  rule.written = arena_strdup(&policy->strings, text);
  return add_pattern(policy, context, pattern, &rule, error);
}

static bool name_exists(const char *base, const char *path) {
  _cleanup_free_ char *name = path_join(base, path);
  struct stat status;
  return lstat(name, &status) == 0;
}

int policy_add_flag(struct policy *policy, const struct policy_context *context,
                    enum rule_kind kind, const char *base, const char *path, const char *flag,
                    struct sb_error *error) {
  /* A name with a wildcard in it that exists means itself. */
  _cleanup_free_ char *escaped = policy_escape_path(path);
  const char *meant = strcmp(escaped, path) != 0 && name_exists(base, path) ? escaped : path;
  _cleanup_free_ char *written = xasprintf("%s %s", flag, path);
  _cleanup_free_ char *pattern = NULL;
  struct rule rule = {.kind = kind,
                      .written = arena_strdup(&policy->strings, written),
                      .origin = {.store = STORE_FLAGS}};
  if (expand_pattern(context, base, meant, &pattern, error) == 0 &&
      add_pattern(policy, context, pattern, &rule, error) == 0)
    return 0;
  error->code = SB_CODE_USAGE;
  _cleanup_free_ char *shown = escape_string(path);
  return sb_wrap(error, "%s '%s'", flag, shown);
}

/* ---- protected names ---- */

static bool is_work_tree(const char *folder) {
  _cleanup_free_ char *git = path_join(folder, ".git");
  return access(git, F_OK) == 0;
}

static void protect_folder(struct policy *policy, const struct policy_context *context,
                           const char *folder) {
  if (strv_contains(&policy->protected_places, folder))
    return;
  strv_add(&policy->protected_places, folder);
  bool home = (context->home && strcmp(folder, context->home) == 0) ||
              (context->account_home && strcmp(folder, context->account_home) == 0);
  /* In a cache or an output folder nobody runs an editor or git: placeholders there would only
   * cost time, so absent names are guarded where people work. */
  bool work = home || strcmp(folder, context->project) == 0 || is_work_tree(folder);
  const char *prefix = arena_concat(&policy->strings, strcmp(folder, "/") ? folder : "", "/");
  for (const struct protected_name *name = protected_table; name->name; name++) {
    if (name->at_home && !name->if_present_only && !home)
      continue;
    bool creatable = !work || (name->if_present_only && !(home && name->at_home));
    rules_push(policy, &(struct rule){.kind = RULE_PROTECT,
                                      .pattern = arena_concat(&policy->strings, prefix, name->name),
                                      .if_present_only = creatable,
                                      .written = name->name,
                                      .why = name->why});
  }
}

void rules_protect_place(struct policy *policy, const struct policy_context *context,
                         const char *place) {
  protect_folder(policy, context, place);
  if (context->home && path_is_under(context->home, place))
    protect_folder(policy, context, context->home);
  if (context->account_home && path_is_under(context->account_home, place))
    protect_folder(policy, context, context->account_home);
  if (path_is_under(context->project, place))
    protect_folder(policy, context, context->project);
}

/* Patterns are compared by what is fixed in them: rather too many than too few. */
static bool concerns(const struct rule *rule, const char *place) {
  _cleanup_free_ char *fixed = xstrndup(rule->pattern, literal_prefix_length(rule->pattern));
  glob_unescape(fixed);
  const char *folder = rule->is_glob ? (*fixed ? fixed : "/") : rule->pattern;
  return path_is_under(folder, place) || (rule->is_glob && path_is_under(place, folder));
}

struct policy *policy_for_place(const struct policy *policy, const struct policy_context *context,
                                const char *place) {
  struct policy *own = xcalloc(1, sizeof *own);
  own->mode = policy->mode;
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind == RULE_UNPROTECT || (!gives_access(rule->kind) && concerns(rule, place)))
      rules_push(own, rule);
  }
  rules_push(own, &(struct rule){.kind = RULE_WRITE,
                                 .pattern = arena_strdup(&own->strings, place),
                                 .written = "allowed by an answer",
                                 .origin = {.store = STORE_FLAGS}});
  rules_protect_place(own, context, place);
  return own;
}

/* ---- resolving the built-in rules, on request ---- */

/* Folders already resolved: hundreds of rules share a few dozen of them. */
struct resolved_folders {
  struct strv named, resolved;
};

static const char *resolve_folder(struct resolved_folders *folders, const char *folder) {
  for (size_t i = 0; i < folders->named.count; i++)
    if (strcmp(folders->named.items[i], folder) == 0)
      return folders->resolved.items[i];
  strv_add(&folders->named, folder);
  strv_take(&folders->resolved, rules_resolve(folder));
  return folders->resolved.items[folders->resolved.count - 1];
}

/* One lstat for each name, a full resolution only for links. New string. */
static char *resolve_in_folder(struct resolved_folders *folders, const char *path) {
  _cleanup_free_ char *folder = path_parent(path);
  _cleanup_free_ char *name = path_join(resolve_folder(folders, folder), path_base(path));
  struct stat status;
  bool is_link = lstat(name, &status) == 0 && S_ISLNK(status.st_mode);
  return is_link ? rules_resolve(name) : steal_pointer(name);
}

void policy_resolve(struct policy *policy) {
  if (policy->resolved)
    return;
  policy->resolved = true;
  struct resolved_folders folders = {0};
  size_t count = policy->rule_count;
  for (size_t i = 0; i < count; i++) {
    struct rule rule = policy->rules[i];
    if (rule.origin.store != STORE_BUILTIN || rule.is_glob || gives_access(rule.kind))
      continue;
    _cleanup_free_ char *resolved = resolve_in_folder(&folders, rule.pattern);
    if (strcmp(resolved, rule.pattern) != 0)
      push_copy(policy, &rule, resolved);
  }
  strv_clear(&folders.named);
  strv_clear(&folders.resolved);
}
