/* Generalising what was read; see generalise.h. The sorted paths are a tree: from the leaves up, a
 * folder with enough entries stands for them, unless it holds too much. */
#include "policy/generalise.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/yaml.h"

enum { COMMENT_COLUMN = 44 };

/* ---- what is too broad ---- */

/* Folders that many programs and people keep their things in. "~" is the home folder. */
static const char *const broad_folders[] = {
    "~/.config",    "~/.local",  "~/.local/share", "~/.local/state", "~/.cache",
    "~/Documents",  "~/Desktop", "~/Downloads",    "~/Pictures",     "~/Music",
    "~/Videos",     "/var/lib",  "/var/log",       "/var/cache",     "/var/spool",
    "/var/backups", "/var/mail", "/var/db",        "/usr/local",     "/run/user",
};

static bool holds_home(const char *folder, const char *home) {
  return home && path_is_under(home, folder);
}

static bool is_listed_as_broad(const struct policy_context *context, const char *folder) {
  for (size_t i = 0; i < ARRAY_SIZE(broad_folders); i++) {
    const char *name = broad_folders[i];
    const char *below = context->home ? path_below(folder, context->home) : NULL;
    if (*name == '~' ? below && strcmp(below, name + 2) == 0 : strcmp(folder, name) == 0)
      return true;
  }
  return false;
}

bool policy_is_too_broad(const struct policy_context *context, const char *folder) {
  _cleanup_free_ char *parent = path_parent(folder);
  return path_depth(folder) < 2 || holds_home(folder, context->home) ||
         holds_home(folder, context->account_home) || strcmp(parent, "/home") == 0 ||
         is_listed_as_broad(context, folder);
}

/* A name below the folder that is hidden. Patterns are everywhere and say nothing about it. */
static const char *secret_below(const struct policy *policy, const char *folder) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind == RULE_HIDE && !rule->is_glob && path_is_under(rule->pattern, folder))
      return rule->pattern;
  }
  return NULL;
}

/* ---- the tree ---- */

struct tree {
  const struct policy *policy;
  const struct policy_context *context;
  const struct observed **sorted;
  struct proposal *proposal;
};

static int rank(char character) {
  return character == '\0' ? 0 : character == '/' ? 1 : 2 + (unsigned char)character;
}

/* A folder directly before everything below it. */
static int compare_paths(const char *left, const char *right) {
  for (; *left && *left == *right; left++, right++)
    ;
  return rank(*left) - rank(*right);
}

static int by_path(const void *left, const void *right) {
  const struct observed *first = *(const struct observed *const *)left;
  const struct observed *second = *(const struct observed *const *)right;
  int order = compare_paths(first->path, second->path);
  return order ? order : second->folder - first->folder;
}

static void push(struct tree *tree, char *path, bool folder, size_t count) {
  struct proposal *proposal = tree->proposal;
  ARRAY_GROW(proposal->items, proposal->count);
  proposal->items[proposal->count++] =
      (struct proposed){.path = path, .folder = folder, .count = count};
}

/* Drops what was proposed from `from` on in favour of the folder. */
static void collapse(struct tree *tree, size_t from, const char *folder, size_t count) {
  struct proposal *proposal = tree->proposal;
  while (proposal->count > from)
    free(proposal->items[--proposal->count].path);
  push(tree, xstrdup(folder), true, count);
  proposal->items[from].secret = secret_below(tree->policy, folder);
}

/* Proposals from `from` on that are entries of this very folder. */
static size_t count_entries(const struct tree *tree, size_t from, const char *folder) {
  size_t entries = 0;
  for (size_t i = from; i < tree->proposal->count; i++) {
    _cleanup_free_ char *parent = path_parent(tree->proposal->items[i].path);
    entries += strcmp(parent, folder) == 0;
  }
  return entries;
}

/* The end of the run of paths that start with the first `length` bytes of the first one, as a
 * whole component. */
static size_t end_of_run(const struct tree *tree, size_t first, size_t end, size_t length) {
  const char *path = tree->sorted[first]->path;
  while (first < end && strncmp(tree->sorted[first]->path, path, length) == 0 &&
         (tree->sorted[first]->path[length] == '/' || tree->sorted[first]->path[length] == '\0'))
    first++;
  return first;
}

static void visit(struct tree *tree, size_t first, size_t end, size_t length);

/* Everything below the folder of `length` bytes, component by component. */
static void visit_entries(struct tree *tree, size_t first, size_t end, size_t length) {
  while (first < end) {
    size_t name = length + 1 + strcspn(tree->sorted[first]->path + length + 1, "/");
    size_t after = end_of_run(tree, first, end, name);
    visit(tree, first, after, name);
    first = after;
  }
}

/* The paths [first, end) are the first `length` bytes of each and what is below. */
static void visit(struct tree *tree, size_t first, size_t end, size_t length) {
  _cleanup_free_ char *folder = xstrndup(tree->sorted[first]->path, length);
  size_t from = tree->proposal->count, total = end - first;
  bool named = tree->sorted[first]->path[length] == '\0', listed = false;
  for (; first < end && tree->sorted[first]->path[length] == '\0'; first++)
    listed |= tree->sorted[first]->folder;
  bool broad = (listed || first < end) && policy_is_too_broad(tree->context, folder);
  if (listed && broad)
    strv_add(&tree->proposal->too_broad, folder);
  visit_entries(tree, first, end, length);
  if (listed && !broad)
    collapse(tree, from, folder, total);
  else if (!broad && first < end && count_entries(tree, from, folder) >= GENERALISE_FROM &&
           !secret_below(tree->policy, folder))
    collapse(tree, from, folder, total);
  else if (named && !listed && first == end)
    push(tree, xstrdup(folder), false, total);
}

void policy_generalise(const struct policy *policy, const struct policy_context *context,
                       const struct observed *observed, size_t count,
                       struct proposal *ret_proposal) {
  struct tree tree = {.policy = policy, .context = context, .proposal = ret_proposal};
  size_t used = 0;
  tree.sorted = xcalloc(count + 1, sizeof *tree.sorted);
  for (size_t i = 0; i < count; i++) {
    if (strcmp(observed[i].path, "/") != 0)
      tree.sorted[used++] = &observed[i];
    else if (observed[i].folder && !strv_contains(&ret_proposal->too_broad, "/"))
      strv_add(&ret_proposal->too_broad, "/");
  }
  if (used > 1)
    qsort(tree.sorted, used, sizeof *tree.sorted, by_path);
  visit_entries(&tree, 0, used, 0);
  free(tree.sorted);
}

void proposal_clear(struct proposal *proposal) {
  for (size_t i = 0; i < proposal->count; i++)
    free(proposal->items[i].path);
  free(proposal->items);
  strv_clear(&proposal->too_broad);
  strv_clear(&proposal->hidden);
  *proposal = (struct proposal){0};
}

/* ---- as a file ---- */

/* A pattern that means this path alone, with ~ for the home folder. */
static char *pattern_of(const struct policy_context *context, const char *path) {
  const char *below = context->home ? path_below(path, context->home) : NULL;
  if (!below || *below == '\0')
    return policy_escape_path(path);
  /* A ~ within a path is no home folder: only the first character is escaped. */
  _cleanup_free_ char *rest = policy_escape_path(below);
  return xasprintf("~/%s", *rest == '\\' && rest[1] == '~' ? rest + 1 : rest);
}

static void append_comment(struct text *text, const char *lines) {
  for (const char *at = lines; at && *at;) {
    size_t length = strcspn(at, "\n");
    text_append(text, "# ");
    escape_append(text, at, length);
    text_append_char(text, '\n');
    at += length + (at[length] == '\n');
  }
}

static void append_proposed(struct text *text, const struct policy_context *context,
                            const struct proposed *proposed) {
  _cleanup_free_ char *pattern = pattern_of(context, proposed->path);
  size_t start = text->length;
  text_append(text, "    - ");
  (void)yaml_append_text(text, pattern); /* a pattern of ours is UTF-8 */
  size_t width = text->length - start;
  text_appendf(text, "%*s# ", width < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - width) : 1, "");
  if (proposed->folder)
    text_appendf(text, "%zu read below it", proposed->count);
  else
    text_append(text, "this alone");
  if (proposed->secret) {
    text_append(text, "; holds ");
    escape_append(text, proposed->secret, strlen(proposed->secret));
    text_append(text, ", which stays hidden");
  }
  text_append_char(text, '\n');
}

/* A rule for a folder would otherwise allow what nobody would allow by an answer for it. */
static void append_hidden(struct text *text, const struct policy_context *context,
                          const struct strv *hidden) {
  if (hidden->count > 0)
    text_append(text, "  hide:\n");
  STRV_FOREACH (path, hidden) {
    _cleanup_free_ char *pattern = pattern_of(context, *path);
    text_append(text, "    - ");
    (void)yaml_append_text(text, pattern);
    text_append(text, " # a secret, by its name\n");
  }
}

static void append_remarks(struct text *text, const struct proposal *proposal,
                           const struct strv *remarks) {
  if (proposal->too_broad.count + remarks->count == 0)
    return;
  text_append(text, "# Not allowed by this:\n");
  STRV_FOREACH (folder, &proposal->too_broad) {
    text_append(text, "#   ");
    escape_append(text, *folder, strlen(*folder));
    text_append(text,
                ": listed, but too much to allow as a whole; its names alone: filesystem.list\n");
  }
  STRV_FOREACH (remark, remarks) {
    text_append(text, "#   ");
    escape_append(text, *remark, strlen(*remark));
    text_append_char(text, '\n');
  }
}

char *proposal_to_yaml(const struct proposal *proposal, const struct policy_context *context,
                       const char *heading, const struct strv *remarks) {
  struct text text = {0};
  append_comment(&text, heading);
  text_append(&text, "version: 1\n");
  if (proposal->count > 0)
    text_append(&text, "filesystem:\n  read:\n");
  for (size_t i = 0; i < proposal->count; i++)
    append_proposed(&text, context, &proposal->items[i]);
  append_hidden(&text, context, &proposal->hidden);
  append_remarks(&text, proposal, remarks);
  return text_steal(&text);
}
