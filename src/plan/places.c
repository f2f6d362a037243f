/* Writable, readable and overlaid host objects: the literal rules of the policy become operations.
 * A rule that changes nothing (a read-only path in a read-only tree) becomes none, so thousands of
 * them cost nothing at the start. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "plan/compile.h"

struct place {
  char *path; /* canonical */
  const struct rule *rule;
  size_t depth;
  bool folder;
};

/* Kernel views are never host objects; a rule for them cannot mean what its author thinks. */
static const char *const unbindable[] = {"/proc", "/sys", "/dev"};

static int refuse(const struct rule *rule, const char *reason, const char *hint,
                  struct sb_error *error) {
  _cleanup_free_ char *written = escape_string(rule->written);
  _cleanup_free_ char *origin = origin_describe(&rule->origin);
  sb_fail(error, SB_CODE_POLICY, 0, "%s: %s '%s': %s", origin, rule_kind_name(rule->kind), written,
          reason);
  return sb_hint(error, "%s", hint);
}

static int check_place(const struct compiler *compiler, const struct place *place,
                       struct sb_error *error) {
  const struct rule *rule = place->rule;
  bool root = strcmp(place->path, "/") == 0;
  if (root && rule->kind != RULE_READ)
    return refuse(rule, "that is the whole machine", "name the folders that are needed", error);
  if (root && compiler->dynamic)
    return refuse(rule, "dynamic mode would have nothing left to ask about",
                  "use --static, where everything is readable that is not hidden", error);
  for (size_t i = 0; i < ARRAY_SIZE(unbindable); i++) {
    if (path_is_under(place->path, unbindable[i]))
      return refuse(rule, "the session has its own", "leave it out: it cannot be shared", error);
  }
  if (rule->kind == RULE_OVERLAY && !place->folder)
    return refuse(rule, "an overlay needs a folder", "name the folder it is in", error);
  struct statvfs status;
  if (rule->kind == RULE_WRITE && rule->origin.store != STORE_BUILTIN &&
      statvfs(place->path, &status) == 0 && (status.f_flag & ST_RDONLY))
    return refuse(rule, "its file system is mounted read-only", "remount it, or use --overlay",
                  error);
  return 0;
}

/* A name that does not exist: an error if a flag asks for it now, a note if a file lists it. */
static int missing_place(struct compiler *compiler, const struct rule *rule, int errnum,
                         struct sb_error *error) {
  _cleanup_free_ char *pattern = escape_string(rule->pattern);
  _cleanup_free_ char *origin = origin_describe(&rule->origin);
  if (rule->origin.store == STORE_FLAGS && !rule->origin.file) {
    sb_fail(error, SB_CODE_NOT_FOUND, errnum, "%s '%s'", rule_kind_name(rule->kind), pattern);
    return sb_hint(error, "create it first, or leave the option out");
  }
  if (rule->origin.store != STORE_BUILTIN)
    strv_addf(&compiler->plan->notes, "%s: %s %s: %s, left out", origin, rule_kind_name(rule->kind),
              pattern, strerror(errnum));
  return 0;
}

static bool is_place_rule(const struct rule *rule) {
  return rule->kind == RULE_READ || rule->kind == RULE_WRITE || rule->kind == RULE_OVERLAY;
}

/* Does the merged policy still grant what this rule says, or did another rule win? */
static bool is_below_hidden(const struct compiler *compiler, const char *path) {
  for (size_t i = 0; i < compiler->hidden.count; i++) {
    if (path_is_under(path, compiler->hidden.items[i].path))
      return true;
  }
  return false;
}

static bool still_granted(const struct compiler *compiler, const struct place *place) {
  /* Nothing but a hide can take reading back; thousands of paths need not meet each other. */
  if (place->rule->kind == RULE_READ && !is_below_hidden(compiler, place->path))
    return true;
  enum access access = place->rule->kind == RULE_READ ? ACCESS_READ : ACCESS_WRITE;
  return policy_decide(compiler->policy, place->path, access).verdict == VERDICT_ALLOW;
}

struct places {
  struct place *items;
  size_t count;
};

/* Takes ownership of the path. */
static int add_candidate(const struct compiler *compiler, struct places *places, char *path,
                         bool folder, const struct rule *rule, struct sb_error *error) {
  ARRAY_GROW(places->items, places->count);
  struct place *place = &places->items[places->count++];
  *place = (struct place){path, rule, path_depth(path), folder};
  return check_place(compiler, place, error);
}

static int collect_rule(struct compiler *compiler, struct places *places, const struct rule *rule,
                        struct sb_error *error) {
  struct stat status;
  char *path = NULL;
  int result = file_resolve_status(rule->pattern, &path, &status);
  return result < 0 ? missing_place(compiler, rule, -result, error)
                    : add_candidate(compiler, places, path, S_ISDIR(status.st_mode), rule, error);
}

/* Below what a written rule shows read-only nothing comes to the gate. */
static bool is_below_shown(const struct compiler *compiler, const struct rule *rule) {
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *other = &compiler->policy->rules[i];
    if (other->kind == RULE_READ && !other->granted && !other->when_touched && !other->is_glob &&
        other->length < rule->length && path_is_under(rule->pattern, other->pattern))
      return true;
  }
  return false;
}

static int collect_literal(struct compiler *compiler, struct places *places,
                           struct sb_error *error) {
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (rule->is_glob || !is_place_rule(rule))
      continue;
    if (rule->when_touched) {
      strv_add(rule->kind == RULE_READ ? &compiler->plan->touched_read
                                       : &compiler->plan->touched_write,
               rule->pattern);
      continue;
    }
    /* The gate grants it with the first access, like any answer: what is mounted from the start
     * could not be revoked. */
    if (rule->granted && compiler->dynamic &&
        (rule->kind == RULE_READ || !is_below_shown(compiler, rule)))
      continue;
    if (collect_rule(compiler, places, rule, error) < 0)
      return -1;
  }
  return 0;
}

static int collect_globbed(struct compiler *compiler, struct places *places,
                           struct sb_error *error) {
  for (size_t i = 0; i < compiler->globbed.count; i++) {
    const struct found *found = &compiler->globbed.items[i];
    struct stat status;
    if (!is_place_rule(found->rule))
      continue;
    bool folder = stat(found->path, &status) == 0 && S_ISDIR(status.st_mode);
    if (add_candidate(compiler, places, xstrdup(found->path), folder, found->rule, error) < 0)
      return -1;
  }
  return 0;
}

/* Parents first; among rules for one path the last one in the merge order comes last and wins. */
static int by_depth(const void *left, const void *right) {
  const struct place *a = left, *b = right;
  if (a->depth != b->depth)
    return a->depth < b->depth ? -1 : 1;
  return a->rule < b->rule ? -1 : a->rule > b->rule;
}

void compile_writable(struct compiler *compiler, const char *path, bool folder, const char *why) {
  if (strv_contains(&compiler->writable, path))
    return;
  compile_mount_point(compiler, path, folder);
  plan_add(compiler->plan, OPERATION_WRITABLE, path, NULL, "%s", why);
  strv_add(&compiler->writable, path);
}

static void add_writable(struct compiler *compiler, const struct place *place, const char *why) {
  if (place->rule->origin.store == STORE_BUILTIN &&
      !path_is_under(compiler->host->project, place->path))
    strv_add(&compiler->caches, place->path);
  compile_writable(compiler, place->path, place->folder, why);
}

static void add_readable(struct compiler *compiler, const struct place *place, const char *why) {
  const char *source, *private_place;
  bool in_private = compile_private_place(place->path, &source, &private_place);
  bool in_writable = compile_covered(&compiler->writable, place->path);
  bool readable = compiler->dynamic ? compile_covered(&compiler->shown, place->path) : !in_private;
  if (readable && !in_writable)
    return; /* as part of something larger */
  /* Whoever could move a folder above it could put something else in its place. */
  _cleanup_free_ char *parent = path_parent(place->path);
  if (in_writable)
    compile_pin(compiler, parent);
  compile_mount_point(compiler, place->path, place->folder);
  plan_add(compiler->plan, OPERATION_READONLY, place->path, NULL, "%s", why);
  strv_add(&compiler->shown, place->path);
}

static void add_overlay(struct compiler *compiler, const struct place *place, const char *why) {
  if (strv_contains(&compiler->overlaid, place->path))
    return;
  compile_mount_point(compiler, place->path, true);
  struct operation *operation =
      plan_add(compiler->plan, OPERATION_OVERLAY, place->path, NULL, "%s", why);
  operation->upper =
      xasprintf("%s/%zu", compiler->request->overlay_folder, compiler->overlaid.count);
  strv_add(&compiler->overlaid, place->path);
}

static void add_place(struct compiler *compiler, const struct place *place) {
  if (!still_granted(compiler, place))
    return;
  _cleanup_free_ char *why = compile_reason(place->rule);
  static void (*const add[RULE_KIND_COUNT])(struct compiler *, const struct place *,
                                            const char *) = {
      [RULE_READ] = add_readable, [RULE_WRITE] = add_writable, [RULE_OVERLAY] = add_overlay};
  add[place->rule->kind](compiler, place, why);
}

/* A home folder below /tmp would vanish behind the private one, and every tool in it. */
static void show_home(struct compiler *compiler) {
  const char *home = compiler->host->home, *source, *place;
  if (compiler->dynamic || !home || !compile_private_place(home, &source, &place) ||
      strcmp(home, place) == 0)
    return;
  compile_mount_point(compiler, home, true);
  plan_add(compiler->plan, OPERATION_READONLY, home, NULL, "your home folder");
  strv_add(&compiler->shown, home);
}

/* What is made in a private place is gone with the session; nobody should learn that afterwards. */
static void warn_if_private(struct compiler *compiler) {
  const char *cwd = compiler->host->cwd, *source, *place;
  if (compile_private_place(cwd, &source, &place) && !compile_covered(&compiler->writable, cwd) &&
      !compile_covered(&compiler->shown, cwd))
    strv_addf(&compiler->plan->warnings,
              "'%s' is private to the session: it starts empty and its files are gone afterwards",
              place);
}

int compile_places(struct compiler *compiler, struct sb_error *error) {
  struct places places = {0};
  show_home(compiler);
  int result = collect_literal(compiler, &places, error);
  if (result == 0)
    result = collect_globbed(compiler, &places, error);
  if (result == 0 && places.count > 0) {
    qsort(places.items, places.count, sizeof *places.items, by_depth);
    for (size_t i = 0; i < places.count; i++)
      add_place(compiler, &places.items[i]);
  }
  for (size_t i = 0; i < places.count; i++)
    free(places.items[i].path);
  free(places.items);
  warn_if_private(compiler);
  return result;
}
