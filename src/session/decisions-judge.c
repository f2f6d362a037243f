/* What policy and earlier answers say about a request, before anybody is asked; see decisions.h.
 * The one place where something is found to be hidden although no rule names it. */
#include <string.h>
#include <sys/stat.h>

#include "core/cleanup.h"
#include "core/path.h"
#include "core/strv.h"
#include "plan/inodes.h"
#include "plan/named-secrets.h"
#include "session/ancestors.h"
#include "session/decisions-private.h"

struct outcome outcome_denied(enum denial_reason reason, const char *by) {
  return (struct outcome){.answer = ANSWER_DENY, .reason = reason, .by = by};
}

/* A rule's own folder becomes visible as a whole, so that its other files need no grant each. */
static struct outcome allowed_by_rule(const struct decisions *decisions,
                                      const struct access_request *request,
                                      const struct rule *rule) {
  bool whole = !rule->is_glob && path_is_under(request->path, rule->pattern) &&
               !ancestor_is_too_large(decisions->config.context, rule->pattern);
  return (struct outcome){
      .answer = ANSWER_ALLOW,
      .scope = SCOPE_SESSION,
      .tree = whole ? rule->pattern : request->path,
      .writable = rule->kind == RULE_WRITE,
      .by = "policy",
      .rule = rule,
  };
}

/* Secrets of the built-in table are asked about only if a person's policy says so; what a store
 * hides never is. See docs/POLICY.md. */
static bool may_ask_secret(const struct policy *policy, const struct rule *rule) {
  return policy->ask_secrets && rule && rule->origin.store == STORE_BUILTIN;
}

/* The hidden object that the path lies in, or NULL. */
static const char *hidden_above(const struct decisions *decisions, const char *path) {
  const struct strv *hidden = decisions->config.hidden;
  for (size_t i = 0; hidden && i < hidden->count; i++) {
    if (path_is_under(path, hidden->items[i]))
      return hidden->items[i];
  }
  return NULL;
}

/* Only a file can be. What is connected to may lie where the command can put a link in its folder's
 * place, which must lead us nowhere. */
static bool may_be_second_name(const struct access_request *request, struct stat *ret_status) {
  return request->want != WANT_CONNECT && lstat(request->path, ret_status) == 0 &&
         S_ISREG(ret_status->st_mode) && ret_status->st_nlink > 1;
}

/* A second name (hard link) of a hidden file is the hidden file. */
static bool is_second_name(const struct decisions *decisions,
                           const struct access_request *request) {
  const struct strv *hidden = decisions->config.hidden;
  struct stat status;
  return hidden && may_be_second_name(request, &status) && inode_is_hidden(hidden, &status);
}

/* True if the object is hidden although no rule says so of its name. Only a rule that names the
 * hidden object or something in it opens it. */
static bool is_hidden_object(const struct decisions *decisions,
                             const struct access_request *request, const struct rule *rule) {
  const char *above = hidden_above(decisions, request->path);
  if (above)
    return !rule || rule->is_glob || !path_is_under(rule->pattern, above);
  return !rule && is_second_name(decisions, request);
}

static struct outcome judge_by_policy(struct decisions *decisions,
                                      const struct access_request *request) {
  struct policy *policy = decisions->config.policy;
  policy_resolve(policy); /* once; a session that asks nothing need not pay for it */
  enum access access = request->want == WANT_WRITE ? ACCESS_WRITE : ACCESS_READ;
  struct decision decision = policy_decide(policy, request->path, access);
  if (decision.verdict == VERDICT_HIDE && access == ACCESS_READ &&
      may_ask_secret(policy, decision.rule))
    return (struct outcome){.answer = ANSWER_PENDING, .secret = decision.rule->why};
  if (decision.verdict == VERDICT_HIDE || is_hidden_object(decisions, request, decision.rule))
    return (struct outcome){
        .answer = ANSWER_HIDE, .reason = DENIAL_HIDDEN, .by = "policy", .rule = decision.rule};
  if (decision.verdict == VERDICT_DENY) {
    struct outcome outcome = outcome_denied(DENIAL_READ_ONLY, "policy");
    outcome.rule = decision.rule;
    return outcome;
  }
  if (decision.verdict == VERDICT_ASK && access == ACCESS_WRITE &&
      ancestor_is_guarded(decisions->config.context, request->path))
    return outcome_denied(DENIAL_POLICY, "policy");
  /* That a socket may be looked at does not mean that it may be spoken to. */
  if (decision.verdict == VERDICT_ALLOW && request->want != WANT_CONNECT)
    return allowed_by_rule(decisions, request, decision.rule);
  return (struct outcome){.answer = ANSWER_PENDING, .secret = decision.secret};
}

static struct outcome judge_by_approval(const struct access_request *request,
                                        const struct approval *approval) {
  if (approval->verdict == APPROVAL_DENY)
    return outcome_denied(DENIAL_ANSWERED, "session");
  return (struct outcome){
      .answer = ANSWER_ALLOW,
      .scope = approval->scope,
      .tree = request->subject == SUBJECT_FILE && !approval->names ? approval->path : NULL,
      .writable = approval->write,
      .names = approval->names,
      .by = "session",
  };
}

/* A rule about the names in a folder says nothing about what is in it. */
static struct outcome judge_names(const struct decisions *decisions,
                                  const struct access_request *request) {
  const struct rule *rule =
      request->names ? policy_find_list(decisions->config.policy, request->path) : NULL;
  if (!rule || (rule->granted && strv_contains(&decisions->unlisted, request->path)) ||
      approvals_is_revoked(&decisions->approvals, request))
    return (struct outcome){.answer = ANSWER_PENDING};
  return (struct outcome){
      .answer = ANSWER_ALLOW, .scope = SCOPE_SESSION, .names = true, .by = "policy", .rule = rule};
}

/* How much beside a file is looked at for the name of a secret that it also has. */
#define BESIDE_ENTRIES 2000

const char *decisions_second_name(const struct decisions *decisions,
                                  const struct access_request *request) {
  struct stat status;
  if (request->subject != SUBJECT_FILE || !may_be_second_name(request, &status))
    return NULL;
  _cleanup_strv_ struct strv named = {0};
  _cleanup_free_ char *folder = path_parent(request->path);
  (void)named_secrets_find(decisions->config.policy, folder, BESIDE_ENTRIES, &named);
  return inode_is_hidden(&named, &status) ? "a file beside it that is the same one (hard link) is "
                                            "called like one"
                                          : NULL;
}

struct outcome decisions_judge(struct decisions *decisions, const struct access_request *request) {
  struct outcome outcome = {.answer = ANSWER_PENDING};
  const struct approval *approval = approvals_find(&decisions->approvals, request);
  if (request->subject == SUBJECT_FILE)
    outcome = judge_by_policy(decisions, request);
  if (outcome.answer == ANSWER_ALLOW && approvals_is_revoked(&decisions->approvals, request))
    outcome = (struct outcome){.answer = ANSWER_PENDING};
  if (outcome.answer != ANSWER_PENDING)
    return outcome;
  /* An approved folder does not open the secrets in it. */
  bool applies = approval && approval->verdict != APPROVAL_ASK &&
                 (!outcome.secret || approval->secret || approval->verdict == APPROVAL_DENY);
  if (applies)
    return judge_by_approval(request, approval);
  return outcome.secret ? outcome : judge_names(decisions, request);
}

bool decisions_list(struct decisions *decisions, const char *path) {
  const struct access_request request = {
      .subject = SUBJECT_FILE, .want = WANT_LIST, .path = path, .folder = true, .names = true};
  if (!strv_contains(&decisions->listed, path))
    return false;
  const struct outcome outcome = decisions_judge(decisions, &request);
  return outcome.answer == ANSWER_ALLOW && outcome.names;
}
