/* The answering half of decisions: supervisors, answers, revocation and what outlives the session;
 * see decisions.h. An answer that may not be given changes nothing. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/utc.h"
#include "policy/grants.h"
#include "session/ancestors.h"
#include "session/decisions-private.h"

/* ---- supervisors ---- */

/* Who was expected has come: what waits has all of its time. */
static void end_expecting(struct decisions *decisions) {
  decisions->in_vain = false;
  for (size_t i = 0; i < decisions->count; i++) {
    struct question *question = decisions->questions[i];
    if (question->early)
      question->deadline_ns = decisions_deadline(decisions, question);
    question->early = false;
  }
}

void decisions_add_supervisor(struct decisions *decisions, struct supervisor *supervisor) {
  ARRAY_GROW(decisions->supervisors, decisions->supervisor_count);
  decisions->supervisors[decisions->supervisor_count++] = supervisor;
  if (!supervisor->observes)
    end_expecting(decisions);
  for (size_t i = 0; supervisor->asked && i < decisions->count; i++)
    supervisor->asked(supervisor->context, decisions->questions[i]);
}

void decisions_remove_supervisor(struct decisions *decisions, struct supervisor *supervisor) {
  for (size_t i = 0; i < decisions->supervisor_count; i++) {
    if (decisions->supervisors[i] != supervisor)
      continue;
    decisions->supervisors[i] = decisions->supervisors[--decisions->supervisor_count];
    break;
  }
  if (!decisions_are_attended(decisions))
    decisions_deny_all(decisions, DENIAL_CLOSED, "closed");
}

/* ---- answers ---- */

static struct question *find_question(const struct decisions *decisions, const char *id,
                                      struct sb_error *error) {
  for (size_t i = 0; i < decisions->count; i++) {
    if (strcmp(decisions->questions[i]->id, id) == 0)
      return decisions->questions[i];
  }
  for (size_t i = 0; i < REMEMBERED_IDS; i++) {
    if (decisions->settled[i].how && strcmp(decisions->settled[i].id, id) == 0) {
      sb_fail(error, SB_CODE_CONFLICT, 0, "the request is settled already: %s",
              decisions->settled[i].how);
      return NULL;
    }
  }
  _cleanup_free_ char *shown = escape_string(id);
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "no request '%.80s' waits in this session", shown);
  sb_hint(error, "'sandbox watch' lists what waits");
  return NULL;
}

static int check_allowed_scope(const struct question *question, const struct reply *reply,
                               struct sb_error *error) {
  if (reply->scope >= question->narrowest && reply->scope <= question->widest)
    return 0;
  _cleanup_free_ char *shown = request_show(&question->request);
  if (reply->scope < question->narrowest) {
    sb_fail(error, SB_CODE_DENIED, 0,
            "%s cannot be allowed just once: the call needs it in its place", shown);
    return sb_hint(error, "allow it for the session, or deny it");
  }
  sb_fail(error, SB_CODE_DENIED, 0, "%s can be allowed only for: %s", shown,
          scope_name(question->widest));
  const char *hint = question->secret
                         ? "a secret is never stored by an answer; write it into your policy if "
                           "you mean it"
                     : question->request.want == WANT_CONNECT
                         ? "to keep it, list it in network.unix_sockets of your policy"
                         : "its whole content would be allowed; name a folder below it with "
                           "--tree, or write a policy";
  return sb_hint(error, "%s", hint);
}

/* A denial that is kept covers what is below: nobody who keeps a program from listing the home
 * folder means the tools and settings in it. */
static int check_denied_scope(const struct question *question, const struct reply *reply,
                              struct sb_error *error) {
  if (reply->scope <= SCOPE_ONCE || (question->widest > SCOPE_ONCE && !question->names))
    return 0;
  _cleanup_free_ char *shown = request_show(&question->request);
  sb_fail(error, SB_CODE_DENIED, 0, "%s can be denied only once", shown);
  return sb_hint(error, "its whole content would be denied; write a policy if you mean it");
}

/* Who names the folder as a tree means all of it, and is not to believe that it was allowed. */
static bool wants_whole(const struct question *question, const struct reply *reply) {
  return question->names && reply->allow && reply->scope > SCOPE_ONCE;
}

/* What the answer may not be, whoever gives it. */
static int check_reply(const struct decisions *decisions, const struct question *question,
                       const struct reply *reply, struct sb_error *error) {
  const char *path = question->request.path;
  if (reply->tree && question->request.subject != SUBJECT_FILE)
    return sb_fail(error, SB_CODE_USAGE, 0, "a network request has no folder above it");
  if (reply->tree && (strcmp(reply->tree, path) != 0 || wants_whole(question, reply))) {
    if (reply->allow && question->request.want == WANT_WRITE)
      return sb_fail(error, SB_CODE_DENIED, 0, "writing is allowed by path, not by folders above");
    if (ancestor_check(decisions->config.context, path, reply->tree, error) < 0)
      return -1;
    if (reply->scope == SCOPE_ONCE)
      return sb_fail(error, SB_CODE_USAGE, 0, "a folder cannot be allowed or denied just once");
    if (question->secret && reply->allow)
      return sb_fail(error, SB_CODE_DENIED, 0, "a secret is allowed by itself, not by its folder");
  }
  return reply->allow ? check_allowed_scope(question, reply, error)
                      : check_denied_scope(question, reply, error);
}

static char *time_now(void) {
  char text[UTC_SIZE];
  utc_now(0, text);
  return xstrdup(text);
}

static int store(struct decisions *decisions, enum grant_scope scope,
                 const struct approval *approval, const char *by, const char *why,
                 struct sb_error *error) {
  const struct decision_services *services = &decisions->config.services;
  if (!services->store) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "this session cannot store approvals");
    return sb_hint(error, "approve it for the session");
  }
  _cleanup_free_ char *when = time_now();
  struct grant grant = {
      .subject = approval->subject,
      .allow = approval->verdict == APPROVAL_ALLOW,
      .writable = approval->write,
      .names = approval->names,
      .path = approval->path,
      .host = approval->host,
      .port = approval->port,
      .by = (char *)by,
      .when = when,
      .why = (char *)why,
  };
  return services->store(services->context, scope, &grant, error);
}

static struct approval approval_of(const struct question *question, const struct reply *reply) {
  const struct access_request *request = &question->request;
  bool pinned = reply->allow && request->movable;
  return (struct approval){
      .subject = request->subject,
      .verdict = reply->allow ? APPROVAL_ALLOW : APPROVAL_DENY,
      .write = request->want == WANT_WRITE,
      .connect = request->want == WANT_CONNECT,
      .names = question->names && reply->allow,
      .scope = reply->scope,
      .path = (char *)(reply->tree ? reply->tree : request->path),
      .device = pinned ? request->device : 0,
      .inode = pinned ? request->inode : 0,
      .host = (char *)request->host,
      .port = request->port,
      .secret = question->secret && reply->allow,
  };
}

static void set_extent(json_t *fields, const struct approval *approval) {
  if (approval->path)
    json_set_path(fields, approval->names ? "path" : "tree", approval->path);
  if (approval->names)
    json_object_set_new(fields, "names", json_true());
  json_set_string(fields, "host", approval->host);
}

/* The log has the intention before the store has the grant; the decision itself follows. */
static int keep(struct decisions *decisions, const struct question *question,
                const struct reply *reply, const struct approval *approval,
                struct sb_error *error) {
  _cleanup_free_ char *exe = escape_name(question->exe);
  _cleanup_free_ char *shown = request_show(&question->request);
  _cleanup_free_ char *why =
      xasprintf("%s asked to %s %s in session %s", exe, want_verb(question->request.want), shown,
                decisions->config.session_id);
  json_t *fields = json_pack("{s:s, s:s, s:s, s:s}", "id", question->id, "decision",
                             reply->allow ? "allow" : "deny", "scope", scope_name(reply->scope),
                             "by", reply->by);
  set_extent(fields, approval);
  if (decisions_record(decisions, "store", fields, error) < 0)
    return -1;
  return store(decisions, reply->scope, approval, reply->by, why, error);
}

/* The answer became a denial after all: nothing of it may allow the next session. */
static void take_back_kept(struct decisions *decisions, enum grant_scope scope,
                           const struct approval *approval, struct sb_error *error) {
  const struct decision_services *services = &decisions->config.services;
  _cleanup_error_ struct sb_error failure = {0};
  _cleanup_free_ char *host =
      approval->host && approval->port ? xasprintf("%s:%u", approval->host, approval->port) : NULL;
  const char *name = approval->path ? approval->path : host ? host : approval->host;
  size_t removed = 0;
  if (services->unstore &&
      services->unstore(services->context, scope, name, &removed, &failure) == 0)
    return;
  _cleanup_free_ char *word = escape_shell_word(name);
  sb_hint(error, "it was stored already; to remove that: sandbox policy revoke %s", word);
  if (services->notice)
    services->notice(services->context, error->hint);
}

int decisions_answer(struct decisions *decisions, const char *id, const struct reply *reply,
                     struct sb_error *error) {
  struct question *question = find_question(decisions, id, error);
  if (!question || check_reply(decisions, question, reply, error) < 0)
    return -1;
  struct approval approval = approval_of(question, reply);
  if (reply->scope > SCOPE_SESSION && keep(decisions, question, reply, &approval, error) < 0)
    return -1;
  struct outcome outcome = {
      .answer = reply->allow ? ANSWER_ALLOW : ANSWER_DENY,
      .scope = reply->scope,
      .writable = reply->allow && approval.write,
      .names = approval.names && reply->scope > SCOPE_ONCE,
      .by = reply->by,
      .reason = DENIAL_ANSWERED,
  };
  /* The question's own strings go with it. */
  _cleanup_free_ char *tree = approval.path ? xstrdup(approval.path) : NULL;
  _cleanup_free_ char *host = approval.host ? xstrdup(approval.host) : NULL;
  approval.path = tree;
  approval.host = host;
  outcome.tree = reply->allow && !outcome.names ? tree : NULL;
  if (decisions_settle(decisions, question, &outcome, error) < 0) {
    if (reply->allow && reply->scope > SCOPE_SESSION)
      take_back_kept(decisions, reply->scope, &approval, error);
    return sb_wrap(error, "denied, for it could not be written down");
  }
  if (reply->scope > SCOPE_ONCE) {
    approvals_add(&decisions->approvals, &approval);
    if (approval.names)
      decisions_note_listed(decisions, approval.path);
    decisions_settle_covered(decisions);
  }
  if (!reply->allow && reply->rest) {
    decisions->deny_rest = true;
    decisions_deny_all(decisions, DENIAL_REST, reply->by);
  }
  return 0;
}

/* ---- taking back ---- */

static int unstore(struct decisions *decisions, const char *name, size_t *ret_stored,
                   struct sb_error *error) {
  static const enum grant_scope scopes[] = {SCOPE_PROJECT, SCOPE_USER};
  const struct decision_services *services = &decisions->config.services;
  *ret_stored = 0;
  for (size_t i = 0; services->unstore && i < ARRAY_SIZE(scopes); i++) {
    size_t removed = 0;
    if (services->unstore(services->context, scopes[i], name, &removed, error) < 0)
      return -1;
    *ret_stored += removed;
  }
  return 0;
}

static int fail_nothing(const struct decisions *decisions, const struct revocation *revocation,
                        struct sb_error *error) {
  const char *name = revocation->path ? revocation->path : revocation->host;
  _cleanup_free_ char *shown = escape_string(name);
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "nothing was approved or denied for '%s' here", shown);
  struct access_request request = {.subject = SUBJECT_FILE, .path = revocation->path};
  const struct approval *covering =
      revocation->path ? approvals_find(&decisions->approvals, &request) : NULL;
  if (!covering || covering->verdict == APPROVAL_ASK)
    return -1;
  _cleanup_free_ char *tree = escape_string(covering->path);
  return sb_hint(error, "it is covered by '%s'; revoke that", tree);
}

/* A stored grant that was loaded at the start is a rule of the policy. */
static bool is_granted_by_policy(const struct decisions *decisions, const char *path) {
  struct decision decision = policy_decide(decisions->config.policy, path, ACCESS_READ);
  return decision.verdict == VERDICT_ALLOW && decision.rule && decision.rule->granted &&
         strcmp(decision.rule->pattern, path) == 0;
}

/* So is a stored denial, and that stays one as long as the session runs. */
static bool is_denied_by_policy(const struct decisions *decisions, const char *path) {
  const struct policy *policy = decisions->config.policy;
  for (size_t i = 0; path && i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if ((rule->kind == RULE_HIDE || rule->kind == RULE_PROTECT) && !rule->is_glob &&
        rule->origin.store != STORE_BUILTIN && strcmp(rule->pattern, path) == 0)
      return true;
  }
  return false;
}

static int fail_denied(const char *path, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(path);
  return sb_fail(error, SB_CODE_NOT_FOUND, 0, "'%s' stays denied until the session ends", shown);
}

/* False if the names in the folder were not allowed by an answer, here or kept. */
static bool revoke_names(struct decisions *decisions, const char *path) {
  const struct rule *rule = policy_find_list(decisions->config.policy, path);
  bool kept = rule && rule->granted && !strv_contains(&decisions->unlisted, path);
  bool answered = approvals_remove_names(&decisions->approvals, path);
  if (kept)
    strv_add(&decisions->unlisted, path);
  (void)strv_remove(&decisions->listed, path);
  return kept || answered;
}

int decisions_revoke(struct decisions *decisions, const struct revocation *revocation,
                     size_t *ret_stored, struct sb_error *error) {
  const struct decision_services *services = &decisions->config.services;
  const char *path = revocation->path, *name = path ? path : revocation->host;
  enum access_subject subject = path ? SUBJECT_FILE : SUBJECT_NETWORK;
  json_t *fields = json_pack("{s:s}", "by", revocation->by);
  if (path)
    json_set_path(fields, "path", path);
  json_set_string(fields, "host", revocation->host);
  /* What takes away does not wait for the log: a full disk must not keep anything open. */
  int result = decisions_record(decisions, "revoke", fields, error);
  /* What was answered about names goes alone: the tools and settings of a home folder stay. */
  if (path && revoke_names(decisions, path))
    return revocation->stored && unstore(decisions, path, ret_stored, error) < 0 ? -1 : result;
  bool denials;
  size_t stored = 0, removed = approvals_remove(&decisions->approvals, subject, name, &denials);
  bool granted =
      path ? services->revoke && services->revoke(services->context, path) : revocation->granted;
  if (revocation->stored && unstore(decisions, name, &stored, error) < 0)
    result = -1; /* here it is gone all the same */
  bool by_policy = path && is_granted_by_policy(decisions, path);
  bool stays_denied = !by_policy && is_denied_by_policy(decisions, path);
  granted |= by_policy;
  /* Without a denial it is what a folder above it is; what was allowed is asked about again. */
  if (path && !stays_denied && (denials ? by_policy : granted || stored > 0))
    approvals_add(&decisions->approvals,
                  &(struct approval){.verdict = APPROVAL_ASK, .path = (char *)path});
  if (result < 0)
    return -1;
  if (removed == 0 && stored == 0 && stays_denied)
    return fail_denied(path, error);
  if (removed == 0 && stored == 0 && !granted)
    return fail_nothing(decisions, revocation, error);
  *ret_stored = stored;
  return 0;
}

/* ---- keeping ---- */

int decisions_save(struct decisions *decisions, enum grant_scope scope, const char *by,
                   size_t *ret_count, struct sb_error *error) {
  if (scope < SCOPE_PROJECT) {
    sb_fail(error, SB_CODE_USAGE, 0, "'%s' is not a scope that can be stored", scope_name(scope));
    return sb_hint(error, "use project, user or org");
  }
  size_t count = 0;
  for (size_t i = 0; i < decisions->approvals.count; i++) {
    struct approval *approval = &decisions->approvals.items[i];
    bool of_socket = approval->connect && approval->subject == SUBJECT_FILE;
    if (approval->verdict == APPROVAL_ASK || approval->secret || of_socket ||
        approval->scope >= scope)
      continue;
    _cleanup_free_ char *why = xasprintf("saved from session %s", decisions->config.session_id);
    json_t *fields = json_pack("{s:s, s:s}", "scope", scope_name(scope), "by", by);
    set_extent(fields, approval);
    if (decisions_record(decisions, "store", fields, error) < 0 ||
        store(decisions, scope, approval, by, why, error) < 0)
      return -1;
    approval->scope = scope;
    count++;
  }
  *ret_count = count;
  return 0;
}
