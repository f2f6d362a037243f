/* Which folder above a path may sensibly be allowed as a whole; see ancestors.h. */
#include "session/ancestors.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"

/* Where things that belong together live: so many components below the place are one thing. The
 * deepest place that covers a path counts. "~" is the home folder. */
static const struct {
  const char *place;
  size_t components;
} places[] = {
    {"~", 1},
    {"~/.config", 1},
    {"~/.cache", 1},
    {"~/.local", 1},
    {"~/.local/share", 1},
    {"~/.local/state", 1},
    {"~/.local/lib", 1},
    {"~/go/pkg", 1},
    {"/home", 2}, /* of another user */
    {"/media", 2},
    {"/run/media", 2},
    {"/usr/local", 1},
    {"/var", 2},
    {"/run", 1},
    {"/run/user", 2},
    {"/etc", 1},
    {"/opt", 1},
    {"/", 2},
};

static char *place_path(const struct policy_context *context, const char *place) {
  if (place[0] != '~')
    return xstrdup(place);
  return context->home ? path_join(context->home, place[1] ? place + 2 : ".") : NULL;
}

/* Depth at which the thing that the path belongs to begins. */
static size_t thing_depth(const struct policy_context *context, const char *path) {
  size_t best_place = 0, best = 2;
  for (size_t i = 0; i < ARRAY_SIZE(places); i++) {
    _cleanup_free_ char *place = place_path(context, places[i].place);
    if (!place || !path_is_under(path, place) || path_depth(place) < best_place)
      continue;
    best_place = path_depth(place);
    best = best_place + places[i].components;
  }
  return best;
}

/* The first components of a path. New string. */
static char *path_head(const char *path, size_t components) {
  const char *end = path;
  while (components-- > 0 && *end)
    end += 1 + strcspn(end + 1, "/");
  return end == path ? xstrdup("/") : xstrndup(path, (size_t)(end - path));
}

/* Components of a glob before the first wildcard. */
static size_t fixed_depth(const char *pattern) {
  size_t depth = 0;
  for (const char *at = pattern; *at == '/'; depth++) {
    size_t length = strcspn(at + 1, "/");
    _cleanup_free_ char *component = xstrndup(at + 1, length);
    if (strpbrk(component, "*?["))
      break;
    at += 1 + length;
  }
  return depth;
}

/* Rather too often than not often enough: a glob is compared by its fixed beginning only. */
static bool glob_may_match_below(const char *pattern, const char *tree) {
  size_t depth = fixed_depth(pattern);
  _cleanup_free_ char *fixed = path_head(pattern, depth);
  if (path_is_under(fixed, tree))
    return true;
  return path_is_under(tree, fixed) &&
         (strstr(pattern, "**") || path_depth(pattern) > path_depth(tree));
}

const struct rule *ancestor_secret(const struct policy *policy, const char *tree) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind == RULE_HIDE &&
        (rule->is_glob ? glob_may_match_below(rule->pattern, tree)
                       : path_is_under(rule->pattern, tree) || path_is_under(tree, rule->pattern)))
      return rule;
  }
  return NULL;
}

bool ancestor_is_too_large(const struct policy_context *context, const char *tree) {
  const char *const homes[] = {context->home, context->account_home, "/root", "/home"};
  for (size_t i = 0; i < ARRAY_SIZE(homes); i++) {
    if (homes[i] && path_is_under(homes[i], tree))
      return true;
  }
  return path_depth(tree) == 2 && path_is_under(tree, "/home"); /* another user's */
}

/* True if the components of the name stand somewhere in the path, one after the other. */
static bool has_components(const char *path, const char *name) {
  size_t length = strlen(name);
  for (const char *at = path; (at = strstr(at, name)); at++) {
    if (at > path && at[-1] == '/' && (at[length] == '/' || at[length] == '\0'))
      return true;
  }
  return false;
}

static bool holds_our_files(const struct policy_context *context, const char *path) {
  const struct {
    const char *folder, *name;
  } own[] = {{context->config_home, "sandbox"},
             {context->state_home, "sandbox"},
             {context->project, ".sandbox"},
             {context->org_folder, "."}};
  for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
    _cleanup_free_ char *place = own[i].folder ? path_join(own[i].folder, own[i].name) : NULL;
    if (place && (path_is_under(path, place) || path_is_under(place, path)))
      return true;
  }
  return false;
}

bool ancestor_is_guarded(const struct policy_context *context, const char *path) {
  for (const struct protected_name *name = protected_table; name->name; name++) {
    if (has_components(path, name->name))
      return true;
  }
  return holds_our_files(context, path);
}

bool ancestor_holds_guarded(const struct policy_context *context, const char *folder) {
  const char *below = context->home ? path_below(folder, context->home) : NULL;
  for (const struct protected_name *name = protected_table; below && name->name; name++) {
    if (name->at_home && path_below(name->name, below))
      return true;
  }
  return false;
}

char *ancestor_propose(const struct policy *policy, const struct policy_context *context,
                       const char *path) {
  size_t whole = path_depth(path);
  for (size_t depth = thing_depth(context, path); depth < whole; depth++) {
    char *tree = path_head(path, depth);
    if (!ancestor_is_too_large(context, tree) && !ancestor_secret(policy, tree))
      return tree;
    free(tree);
  }
  return NULL;
}

int ancestor_check(const struct policy_context *context, const char *path, const char *tree,
                   struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(tree), *shown_path = escape_string(path);
  _cleanup_free_ char *normal = path_normalize(tree);
  if (tree[0] != '/' || strcmp(normal, tree) != 0 || !path_is_under(path, tree)) {
    sb_fail(error, SB_CODE_USAGE, 0, "'%s' is not a folder above '%s'", shown, shown_path);
    return sb_hint(error, "name the path itself or a folder above it, without '..' and links");
  }
  if (ancestor_is_too_large(context, tree)) {
    sb_fail(error, SB_CODE_DENIED, 0,
            "'%s' with everything below it is too much to allow by one answer", shown);
    return sb_hint(error, "allow it once, name a folder below it, or write a policy");
  }
  return 0;
}
