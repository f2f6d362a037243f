/* Hidden objects: masked in place, under every name a mount gives them, unless something below them
 * is allowed: then the mask has holes for exactly that. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "plan/compile.h"
#include "plan/distant.h"
#include "plan/host-mounts.h"

/* The folder that the caller stands in must not vanish, unless as a hole in the mask. */
static bool would_hide_cwd(const struct compiler *compiler, const char *path) {
  const char *below = path_below(compiler->host->project, path);
  bool hole = below && below[0] &&
              policy_decide(compiler->policy, compiler->host->project, ACCESS_WRITE).verdict ==
                  VERDICT_ALLOW;
  return path_is_under(compiler->host->cwd, path) && !hole;
}

/* The caller's runtime folder holds the sockets of the desktop, of agents and of containers. It
 * nearly always lies below /run, which is private; where it does not, it is hidden. Our own folder
 * in it is hidden in any case: who reaches the control sockets commands the other sessions. */
static void hide_runtime_folder(struct compiler *compiler) {
  char *own = compile_resolve(compiler->host->runtime_folder);
  if (own)
    found_add(&compiler->hidden, own, NULL, "control sockets of sandboxes");
  const char *named = getenv("XDG_RUNTIME_DIR"), *source, *place;
  char *path = named && named[0] == '/' ? compile_resolve(named) : NULL;
  if (!path)
    return;
  if (compile_private_place(path, &source, &place) || strcmp(path, "/") == 0 ||
      would_hide_cwd(compiler, path))
    free(path);
  else
    found_add(&compiler->hidden, path, NULL, "sockets of your own session");
}

static bool is_closed(const struct host_context *host, const char *path,
                      const struct stat *status) {
  if (S_ISSOCK(status->st_mode)) /* connecting is writing */
    return faccessat(AT_FDCWD, path, W_OK, AT_EACCESS) < 0;
  return host->user != 0 && status->st_uid != host->user &&
         faccessat(AT_FDCWD, path, R_OK, AT_EACCESS) < 0 &&
         (!S_ISDIR(status->st_mode) || faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) < 0);
}

bool plan_is_closed(const struct host_context *host, const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && is_closed(host, path, &status);
}

/* Nothing is there, or a file that is closed: it is so under all its names, and needs no further
 * thought. A folder may have open files in it that another mount shows. */
static bool is_no_secret(const struct compiler *compiler, const char *path) {
  struct stat status;
  return lstat(path, &status) < 0 ||
         (S_ISREG(status.st_mode) && is_closed(compiler->host, path, &status));
}

static bool is_found(const struct found_list *list, const char *path) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i].path, path) == 0)
      return true;
  }
  return false;
}

static void find_hidden(struct compiler *compiler, const struct rule *rule) {
  if (is_no_secret(compiler, rule->pattern))
    return;
  _cleanup_free_ char *path = compile_resolve(rule->pattern);
  /* By the name of the rule: its resolved name may be known to no rule (a built-in one). */
  if (path && !is_found(&compiler->hidden, path) &&
      policy_decide(compiler->policy, rule->pattern, ACCESS_READ).verdict == VERDICT_HIDE)
    found_add(&compiler->hidden, steal_pointer(path), rule, NULL);
}

/* ---- whether what is looked for can be looked for ---- */

static int fail_silent(const char *path, struct sb_error *error) {
  _cleanup_free_ char *point = distant_take_news(), *shown = escape_string(point ? point : path);
  sb_fail(error, SB_CODE_SYSTEM, ETIMEDOUT, "looking at '%s'", shown);
  return sb_hint(error, "the server of this file system does not answer, and nobody knows what is "
                        "to be hidden there: wait for it, or unmount it (umount -l)");
}

static bool has_distant(const struct mount_table *mounts) {
  for (size_t i = 0; i < mounts->count; i++) {
    if (mount_is_distant(&mounts->entries[i]))
      return true;
  }
  return false;
}

/* Of what an answer allowed, nothing is looked at before it is used. */
static int need_answers(const struct compiler *compiler, struct sb_error *error) {
  if (!has_distant(&compiler->mounts))
    return 0;
  if (distant_reads_tree(compiler->host->project) < 0)
    return fail_silent(compiler->host->project, error);
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (!rule->is_glob && !rule->granted && distant_answers(rule->pattern) < 0)
      return fail_silent(rule->pattern, error);
  }
  return 0;
}

int compile_hidden(struct compiler *compiler, struct sb_error *error) {
  /* Early: the kernel lets nobody mount while it lists mounts, and init is about to (0.1 ms). */
  int result = mount_table_load(&compiler->mounts);
  if (result < 0) {
    sb_fail(error, SB_CODE_SYSTEM, -result, "reading '/proc/self/mountinfo'");
    return sb_hint(error, "without it nobody knows where else a secret can be seen: mount /proc");
  }
  if (need_answers(compiler, error) < 0)
    return -1;
  hide_runtime_folder(compiler);
  if (compiler->host->home)
    listings_read(&compiler->names, compiler->host->home); /* most of the secrets would be there */
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (rule->kind == RULE_HIDE && !rule->is_glob &&
        listings_may_exist(&compiler->names, rule->pattern))
      find_hidden(compiler, rule);
  }
  return 0;
}

/* Is the path visible inside at all, so that it needs a mask? */
static bool is_visible(const struct compiler *compiler, const char *path) {
  static const char *const replaced[] = {"/proc", "/sys", "/dev"};
  const char *source, *place;
  for (size_t i = 0; i < ARRAY_SIZE(replaced); i++) {
    if (path_is_under(path, replaced[i]))
      return false;
  }
  if (!compiler->dynamic && !compile_private_place(path, &source, &place))
    return true;
  return compile_covered(&compiler->writable, path) || compile_covered(&compiler->overlaid, path) ||
         compile_covered(&compiler->shown, path);
}

static bool is_plain_object(const char *path) {
  _cleanup_free_ char *resolved = compile_resolve(path);
  return resolved && strcmp(resolved, path) == 0;
}

/* Objects below a hidden folder that other rules allow. */
static void find_holes(const struct compiler *compiler, const char *path, struct strv *ret_holes) {
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (rule->is_glob || (rule->kind != RULE_READ && rule->kind != RULE_WRITE))
      continue;
    const char *below = path_below(rule->pattern, path);
    if (below && below[0] && is_plain_object(rule->pattern) &&
        policy_decide(compiler->policy, rule->pattern, ACCESS_READ).verdict == VERDICT_ALLOW)
      strv_add(ret_holes, rule->pattern);
  }
}

/* Prepares one hole: its mount point inside the mask, and the operation that fills it, unless the
 * places have one already. */
static void add_hole(struct compiler *compiler, const char *mask, const char *path,
                     const char *hole) {
  struct stat status;
  if (stat(hole, &status) < 0)
    return;
  const char *below = path_below(hole, path);
  for (const char *end = strchrnul(below, '/');; end = strchrnul(end + 1, '/')) {
    _cleanup_free_ char *name = xasprintf("%s/%.*s", mask, (int)(end - below), below);
    bool last = *end == '\0';
    compile_private_object(compiler, name, !last || S_ISDIR(status.st_mode), last ? 0700 : 0555);
    if (last)
      break;
  }
  if (!strv_contains(&compiler->writable, hole) && !strv_contains(&compiler->shown, hole))
    plan_add(compiler->plan, OPERATION_READONLY, hole, NULL, "allowed below a hidden folder");
  strv_add(&compiler->holes, hole);
}

static void add_mask(struct compiler *compiler, const char *path, const char *why) {
  bool gone = compile_covered(&compiler->masked, path) && !compile_covered(&compiler->holes, path);
  if (gone || !is_visible(compiler, path) || plan_is_closed(compiler->host, path))
    return;
  strv_add(&compiler->masked, path);
  /* A mask moves along when a folder above it is renamed, and the next session would look for the
   * secret where it was. */
  _cleanup_free_ char *parent = path_parent(path);
  compile_pin(compiler, parent);
  _cleanup_strv_ struct strv holes = {0};
  find_holes(compiler, path, &holes);
  if (holes.count == 0) {
    plan_add(compiler->plan, OPERATION_MASK, path, NULL, "%s", why);
    return;
  }
  _cleanup_free_ char *mask = xasprintf("mask/%zu", compiler->plan->operation_count);
  compile_private_object(compiler, mask, true, 0555);
  plan_add(compiler->plan, OPERATION_MASK, path, mask, "%s", why)->flags = OPERATION_HOLES;
  STRV_FOREACH (hole, &holes)
    add_hole(compiler, mask, path, *hole);
}

static int by_path(const void *left, const void *right) {
  return strcmp(((const struct found *)left)->path, ((const struct found *)right)->path);
}

/* Adds the names that other mounts give to what is hidden; the list grows while we read it. */
static void add_aliases(struct compiler *compiler) {
  size_t count = compiler->hidden.count;
  for (size_t i = 0; i < count; i++) {
    _cleanup_strv_ struct strv aliases = {0};
    mount_aliases(&compiler->mounts, compiler->hidden.items[i].path, &aliases);
    STRV_FOREACH (alias, &aliases) {
      char *path = compile_resolve(*alias);
      if (path)
        found_add(&compiler->hidden, path, NULL, "the same as a hidden name, by another mount");
    }
  }
}

void compile_masks(struct compiler *compiler) {
  add_aliases(compiler);
  struct found_list *hidden = &compiler->hidden;
  if (hidden->count > 0)
    qsort(hidden->items, hidden->count, sizeof *hidden->items, by_path);
  /* Parents come first, so what lies below a mask is recognised as gone. */
  for (size_t i = 0; i < hidden->count; i++) {
    struct found *found = &hidden->items[i];
    _cleanup_free_ char *why = found->rule ? compile_reason(found->rule) : xstrdup(found->why);
    add_mask(compiler, found->path, why);
    if (compiler->dynamic)
      strv_add(&compiler->plan->hidden, found->path);
  }
  for (size_t i = 0; i < compiler->sockets.count; i++) /* elsewhere the gate asks about them */
    add_mask(compiler, compiler->sockets.items[i].path, compiler->sockets.items[i].why);
}
