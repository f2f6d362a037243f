/* The decision. Pure: no I/O, no allocation; everything that is enforced or asked goes through
 * policy_decide, so a second opinion must never be written elsewhere. */
#include <string.h>

#include "core/cleanup.h"
#include "core/path.h"
#include "policy/glob.h"
#include "policy/policy.h"

#define KIND(kind) (1u << (kind))

/* Stricter wins when all else is equal. */
static const int strictness[RULE_KIND_COUNT] = {
    [RULE_WRITE] = 0,     [RULE_OVERLAY] = 1, [RULE_READ] = 2,
    [RULE_UNPROTECT] = 3, [RULE_PROTECT] = 4, [RULE_HIDE] = 5,
};

static const struct rule static_root = {
    .kind = RULE_READ,
    .pattern = "/",
    .written = "/",
    .why = "static mode: what is not hidden is readable",
};

struct candidate {
  const struct rule *rule;
  ssize_t depth; /* components of the path that the match takes */
};

static bool is_exception(const char *path) {
  const char *base = path_base(path);
  return secret_is_exception(base, strlen(base));
}

/* path_is_under, with the lengths known: nearly every rule is refused by one byte. */
static bool literal_covers(const struct rule *rule, const char *path, size_t path_length) {
  if (rule->length <= 1)
    return path_is_under(path, rule->pattern);
  return path_length >= rule->length && (path[rule->length] == '/' || path[rule->length] == '\0') &&
         memcmp(path, rule->pattern, rule->length) == 0;
}

/* How deep the rule reaches into the path, -1 if it does not cover it. */
static ssize_t match_depth(const struct rule *rule, const char *path, size_t path_length) {
  if (!rule->is_glob)
    return literal_covers(rule, path, path_length) ? (ssize_t)path_depth(rule->pattern) : -1;
  ssize_t depth = glob_match_depth(rule->pattern, path);
  return depth >= 0 && rule->has_exceptions && is_exception(path) ? -1 : depth;
}

bool rule_matches(const struct rule *rule, const char *path) {
  return match_depth(rule, path, strlen(path)) >= 0;
}

static int compare(long a, long b) {
  return (a > b) - (a < b);
}

/* > 0 if a decides over b. */
static int compare_candidates(const struct candidate *a, const struct candidate *b) {
  struct glob_weight a_weight = glob_weigh(a->rule->pattern);
  struct glob_weight b_weight = glob_weigh(b->rule->pattern);
  const int order[] = {
      compare(a->depth, b->depth),
      compare(!a->rule->is_glob, !b->rule->is_glob),
      compare(a_weight.named, b_weight.named),
      compare(b_weight.crossing, a_weight.crossing),
      compare(a->rule->origin.store, b->rule->origin.store),
      compare(strictness[a->rule->kind], strictness[b->rule->kind]),
  };
  for (size_t i = 0; i < ARRAY_SIZE(order); i++)
    if (order[i] != 0)
      return order[i];
  return 0;
}

/* The rule of these kinds, from this store or a later one, that decides about the path, or NULL. */
static const struct rule *best_rule_from(const struct policy *policy, const char *path,
                                         unsigned kinds, enum policy_store first) {
  struct candidate best = {0};
  size_t path_length = strlen(path);
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (!(kinds & KIND(rule->kind)) || rule->origin.store < first)
      continue;
    struct candidate candidate = {.rule = rule, .depth = match_depth(rule, path, path_length)};
    if (candidate.depth >= 0 && (!best.rule || compare_candidates(&candidate, &best) > 0))
      best = candidate;
  }
  return best.rule;
}

static const struct rule *best_rule(const struct policy *policy, const char *path, unsigned kinds) {
  return best_rule_from(policy, path, kinds, STORE_BUILTIN);
}

static const struct rule *org_hide(const struct policy *policy, const char *path) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->origin.store == STORE_ORG && rule->kind == RULE_HIDE && rule_matches(rule, path))
      return rule;
  }
  return NULL;
}

enum {
  PLACE_KINDS = KIND(RULE_READ) | KIND(RULE_WRITE) | KIND(RULE_OVERLAY) | KIND(RULE_HIDE),
  GUARD_KINDS = KIND(RULE_PROTECT) | KIND(RULE_UNPROTECT),
};

/* Whoever takes back a folder means the built-in names in it, too (`unprotect: .git`); what
 * somebody wrote counts by how deep it is. */
static const struct rule *guard_of(const struct policy *policy, const char *path) {
  const struct rule *guard = best_rule(policy, path, GUARD_KINDS);
  if (!guard || guard->kind != RULE_PROTECT || guard->origin.store != STORE_BUILTIN)
    return guard;
  const struct rule *written = best_rule_from(policy, path, GUARD_KINDS, STORE_BUILTIN + 1);
  return written ? written : guard;
}

const struct rule *policy_find_list(const struct policy *policy, const char *path) {
  const struct rule *found = NULL;
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind == RULE_LIST && (!found || found->granted) && strcmp(rule->pattern, path) == 0)
      found = rule;
  }
  return found;
}

bool policy_is_unprotected(const struct policy *policy, const char *path) {
  const struct rule *guard = guard_of(policy, path);
  return guard && guard->kind == RULE_UNPROTECT;
}

static struct decision decide_read(const struct policy *policy, const struct rule *place) {
  if (!place && policy->mode == MODE_STATIC)
    place = &static_root;
  return (struct decision){.verdict = place ? VERDICT_ALLOW : VERDICT_ASK, .rule = place};
}

static struct decision decide_write(const struct policy *policy, const char *path,
                                    const struct rule *place) {
  bool writable = place && (place->kind == RULE_WRITE || place->kind == RULE_OVERLAY);
  bool ask = policy->ask_writes && policy->mode == MODE_DYNAMIC;
  const struct rule *guard = writable || ask ? guard_of(policy, path) : NULL;
  bool guarded = guard && guard->kind == RULE_PROTECT;
  if (writable)
    return guarded ? (struct decision){.verdict = VERDICT_DENY, .rule = guard}
                   : (struct decision){.verdict = VERDICT_ALLOW, .rule = place};
  /* What a person protects is not asked about; built-in names depend on what is made writable. */
  if (guarded && guard->origin.store != STORE_BUILTIN)
    return (struct decision){.verdict = VERDICT_DENY, .rule = guard};
  return (struct decision){.verdict = ask ? VERDICT_ASK : VERDICT_DENY, .rule = place};
}

/* Whoever answered for a folder did not mean the secrets in it; what a person wrote is as written.
 */
static bool is_only_answered(const struct policy *policy, const struct rule *place) {
  return policy->mode == MODE_DYNAMIC && place && place->granted && !place->is_glob;
}

/* Of a path that no written rule decides about: what a file that is called so holds. */
static const char *named_secret(const struct policy *policy, const char *path,
                                const struct rule *place) {
  if (!place)
    return policy->mode == MODE_DYNAMIC ? secret_of_path(path, 1) : NULL;
  return is_only_answered(policy, place) ? secret_of_path(path, place->length) : NULL;
}

struct decision policy_decide(const struct policy *policy, const char *path, enum access access) {
  const struct rule *final = org_hide(policy, path);
  const struct rule *place = final ? final : best_rule(policy, path, PLACE_KINDS);
  if (place && place->kind == RULE_HIDE)
    return (struct decision){.verdict = VERDICT_HIDE, .rule = place};
  const char *secret = named_secret(policy, path, place);
  if (secret)
    place = NULL; /* the answer for the folder is not one for this */
  struct decision decision =
      access == ACCESS_READ ? decide_read(policy, place) : decide_write(policy, path, place);
  decision.secret = decision.verdict == VERDICT_ASK ? secret : NULL;
  return decision;
}

/* Only a literal rule for the very path could decide over it: nothing reaches deeper. */
bool policy_hides_itself(const struct policy *policy, const struct rule *hide) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *other = &policy->rules[i];
    if (other->length == hide->length && other->kind != RULE_HIDE && !other->is_glob &&
        KIND(other->kind) & PLACE_KINDS && memcmp(other->pattern, hide->pattern, hide->length) == 0)
      return policy_decide(policy, hide->pattern, ACCESS_READ).verdict == VERDICT_HIDE;
  }
  return true;
}

const struct rule *policy_overridden(const struct policy *policy, const char *path,
                                     enum access access, const struct decision *decision) {
  const struct rule *rule = decision->rule;
  if (!rule || rule == &static_root)
    return NULL;
  bool written = access == ACCESS_WRITE && decision->verdict == VERDICT_ALLOW;
  unsigned kinds = written ? PLACE_KINDS | GUARD_KINDS : PLACE_KINDS;
  return best_rule(policy, path, kinds & ~KIND(rule->kind));
}
