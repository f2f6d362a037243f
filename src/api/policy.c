/* Policy: loaded and decided in the caller's process, which is pure but for reading files. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "plan/unsandboxed.h"
#include "policy/importers/importer.h"
#include "policy/load.h"

struct sb_policy {
  struct host_context host;
  struct policy *policy;
};

struct sb_verdict {
  struct command_verdict verdict;
};

sb_policy *sb_policy_load(const char *folder, sb_error *error) {
  API_ERROR(error);
  sb_policy *policy = xcalloc(1, sizeof *policy);
  if (host_context_load_at(folder, &policy->host, error_) < 0 ||
      policy_load(&policy->host.policy, &policy->policy, error_) < 0) {
    sb_policy_free(policy);
    return NULL;
  }
  policy_resolve(policy->policy);
  return policy;
}

void sb_policy_free(sb_policy *policy) {
  if (!policy)
    return;
  policy_free(policy->policy);
  host_context_clear(&policy->host);
  free(policy);
}

int sb_policy_add_file(sb_policy *policy, const char *file, sb_error *error) {
  API_ERROR(error);
  return policy_load_file(&policy->host.policy, file, STORE_FLAGS, policy->policy, error_);
}

int sb_policy_add_text(sb_policy *policy, const char *text, sb_error *error) {
  API_ERROR(error);
  const struct policy_source source = {
      .file = "(text)", .store = STORE_FLAGS, .data = text, .length = strlen(text)};
  return policy_apply(policy->policy, &policy->host.policy, &source, error_);
}

char *sb_policy_import(const char *format, const char *file, const char *text, char **ret_lost,
                       sb_error *error) {
  API_ERROR(error);
  _cleanup_import_ struct import_result result = {0};
  if (policy_import_foreign(format, file, text, strlen(text), &result, error_) < 0)
    return NULL;
  struct text lost = {0};
  STRV_FOREACH (line, &result.lost)
    text_appendf(&lost, "%s\n", *line);
  *ret_lost = text_steal(&lost);
  return steal_pointer(result.policy);
}

/* ---- paths ---- */

/* From lenient to strict, as the public names are ordered. */
static enum sb_decision public_decision(enum verdict verdict) {
  static const enum sb_decision decisions[] = {[VERDICT_ALLOW] = SB_ALLOW,
                                               [VERDICT_ASK] = SB_ASK,
                                               [VERDICT_DENY] = SB_DENY,
                                               [VERDICT_HIDE] = SB_HIDE};
  return decisions[verdict];
}

/* A path and the object it names; of two answers the stricter counts. */
struct question {
  enum access access;
  char *path, *resolved;
  const char *decided; /* the one of the two that counts */
  struct decision decision;
};

static void question_clear(struct question *question) {
  free(question->path);
  free(question->resolved);
}

static void ask(const sb_policy *policy, const char *path, enum sb_access access,
                struct question *ret) {
  ret->access = access == SB_WRITE ? ACCESS_WRITE : ACCESS_READ;
  ret->path = path_join(policy->host.cwd, path);
  if (file_resolve(ret->path, &ret->resolved) < 0)
    ret->resolved = xstrdup(ret->path);
  struct decision named = policy_decide(policy->policy, ret->path, ret->access);
  struct decision object = policy_decide(policy->policy, ret->resolved, ret->access);
  bool by_name = public_decision(named.verdict) > public_decision(object.verdict);
  ret->decided = by_name ? ret->path : ret->resolved;
  ret->decision = by_name ? named : object;
}

enum sb_decision sb_policy_decide(const sb_policy *policy, const char *path,
                                  enum sb_access access) {
  __attribute__((cleanup(question_clear))) struct question question = {0};
  ask(policy, path, access, &question);
  return public_decision(question.decision.verdict);
}

char *sb_policy_explain(const sb_policy *policy, const char *path, enum sb_access access) {
  static const char *const names[] = {
      [SB_ALLOW] = "allow", [SB_ASK] = "ask", [SB_DENY] = "deny", [SB_HIDE] = "hide"};
  __attribute__((cleanup(question_clear))) struct question question = {0};
  ask(policy, path, access, &question);
  const struct rule *lost =
      policy_overridden(policy->policy, question.decided, question.access, &question.decision);
  json_t *object = json_object();
  json_set_path(object, "path", question.path);
  json_set_path(object, "resolved", question.resolved);
  json_set_string(object, "access", access == SB_WRITE ? "write" : "read");
  json_set_string(object, "verdict", names[public_decision(question.decision.verdict)]);
  json_object_set_new(object, "rule", rule_to_json(question.decision.rule));
  json_object_set_new(object, "overridden", rule_to_json(lost));
  char *text = json_dumps(object, JSON_COMPACT);
  json_decref(object);
  return text;
}

char *sb_policy_to_json(const sb_policy *policy) {
  json_t *object = policy_to_json(policy->policy);
  char *text = json_dumps(object, JSON_COMPACT);
  json_decref(object);
  return text;
}

/* ---- commands ---- */

static sb_verdict *decide(const sb_policy *policy, const char *script, char *const *arguments) {
  sb_verdict *verdict = xcalloc(1, sizeof *verdict);
  const struct command_question question = {
      .host = &policy->host, .policy = policy->policy, .script = script, .arguments = arguments};
  command_decide(&question, &verdict->verdict);
  return verdict;
}

sb_verdict *sb_decide(const sb_policy *policy, const char *const argv[], sb_error *error) {
  API_ERROR(error);
  return api_check_words(argv, error_) < 0 ? NULL : decide(policy, NULL, (char *const *)argv);
}

sb_verdict *sb_decide_script(const sb_policy *policy, const char *script, sb_error *error) {
  API_ERROR(error);
  return decide(policy, script, NULL);
}

void sb_verdict_free(sb_verdict *verdict) {
  if (!verdict)
    return;
  command_verdict_clear(&verdict->verdict);
  free(verdict);
}

int sb_verdict_sandboxed(const sb_verdict *verdict) {
  return verdict->verdict.sandboxed;
}

int sb_verdict_excluded(const sb_verdict *verdict) {
  return verdict->verdict.excluded;
}

int sb_verdict_refused(const sb_verdict *verdict) {
  return verdict->verdict.refused;
}

int sb_verdict_needs_approval(const sb_verdict *verdict) {
  return verdict->verdict.needs_approval;
}

const char *sb_verdict_reason(const sb_verdict *verdict, size_t index) {
  return index < verdict->verdict.reasons.count ? verdict->verdict.reasons.items[index] : NULL;
}
