/* The asking half of decisions: who is asked, who waits, what is written down; see decisions.h.
 * Must never answer "allow" before the audit log has the line. */
#include "session/decisions.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "session/decisions-private.h"

/* A person is not asked more than this. A question that was answered gives its token back, so a
 * program that answers is not slowed down; one that was withdrawn or ran out of time does not. */
enum { ASK_BURST = 32, PENDING_LIMIT = 64 };
#define ASK_PER_SECOND 0.5
/* Denials that need nobody's answer, in the log and on stderr, before they are only counted. */
enum { AUDIT_BURST = 200, AUDIT_PER_SECOND = 20, NOTICE_BURST = 20, NOTICE_PER_SECOND = 1 };
#define SUMMARY_NS (2ull * 1000 * 1000 * 1000)
/* How long who watches all sessions has to find one that has just begun. */
#define ARRIVAL_NS (3ull * 1000 * 1000 * 1000)

static uint64_t decisions_now(const struct decisions *decisions) {
  const struct decision_services *services = &decisions->config.services;
  return services->clock ? services->clock(services->context) : monotonic_ns();
}

struct decisions *decisions_new(const struct decisions_config *config) {
  struct decisions *decisions = xcalloc(1, sizeof *decisions);
  decisions->config = *config;
  decisions->asking = bucket_new(ASK_BURST, ASK_PER_SECOND);
  decisions->auditing = bucket_new(AUDIT_BURST, AUDIT_PER_SECOND);
  decisions->noticing = bucket_new(NOTICE_BURST, NOTICE_PER_SECOND);
  return decisions;
}

static void summarise(struct decisions *decisions);

void decisions_free(struct decisions *decisions) {
  if (!decisions)
    return;
  decisions_deny_all(decisions, DENIAL_CLOSED, "end of the session");
  summarise(decisions);
  approvals_clear(&decisions->approvals);
  denials_clear(&decisions->denials);
  strv_clear(&decisions->listed);
  strv_clear(&decisions->unlisted);
  free(decisions->questions);
  free(decisions->supervisors);
  free(decisions->tree);
  free(decisions);
}

/* ---- writing down ---- */

static int write_down(struct decisions *decisions, const char *event, json_t *fields,
                      struct sb_error *error) {
  const struct decision_services *services = &decisions->config.services;
  return services->record ? services->record(services->context, event, json_incref(fields), error)
                          : 0;
}

static void tell_written(struct decisions *decisions, const char *event, const json_t *fields) {
  for (size_t i = 0; i < decisions->supervisor_count; i++) {
    struct supervisor *supervisor = decisions->supervisors[i];
    if (supervisor->audited)
      supervisor->audited(supervisor->context, event, fields);
  }
}

int decisions_record(struct decisions *decisions, const char *event, json_t *fields,
                     struct sb_error *error) {
  int result = write_down(decisions, event, fields, error);
  if (result == 0)
    tell_written(decisions, event, fields);
  json_decref(fields);
  return result;
}

static const char *decision_name(enum answer answer) {
  return answer == ANSWER_ALLOW ? "allow" : answer == ANSWER_HIDE ? "hide" : "deny";
}

static json_t *outcome_to_json(const struct access_request *request, const struct outcome *outcome,
                               const char *exe, const char *cwd) {
  json_t *fields = json_object();
  json_set_string(fields, "decision", decision_name(outcome->answer));
  json_set_string(fields, "scope", scope_name(outcome->scope));
  json_set_string(fields, "by", outcome->by);
  if (outcome->answer != ANSWER_ALLOW)
    json_set_string(fields, "reason", denial_reason_name(outcome->reason));
  request_to_json(request, fields);
  if (outcome->tree)
    json_set_path(fields, "tree", outcome->tree);
  if (outcome->answer == ANSWER_ALLOW)
    json_object_set_new(fields, "writable", json_boolean(outcome->writable));
  if (outcome->names)
    json_object_set_new(fields, "names", json_true());
  json_object_set_new(fields, "pid", json_integer(request->pid));
  json_set_path(fields, "exe", exe);
  json_set_path(fields, "cwd", cwd);
  if (outcome->rule) {
    json_set_string(fields, "rule", outcome->rule->written);
    json_set_string(fields, "store", policy_store_name(outcome->rule->origin.store));
  }
  return fields;
}

static void notice(struct decisions *decisions, const char *sentence) {
  const struct decision_services *services = &decisions->config.services;
  if (services->notice)
    services->notice(services->context, sentence);
}

static void summarise_later(struct decisions *decisions) {
  if (decisions->summary_ns == 0)
    decisions->summary_ns = decisions_now(decisions) + SUMMARY_NS;
}

/* What people did not decide themselves and cannot know otherwise is said aloud, once. */
static bool is_worth_a_notice(enum denial_reason reason) {
  return reason == DENIAL_NOBODY || reason == DENIAL_AUDIT || reason == DENIAL_TIMEOUT ||
         reason == DENIAL_READ_ONLY || reason == DENIAL_UNASKABLE || reason == DENIAL_FAILED;
}

static void note_denial(struct decisions *decisions, const struct access_request *request,
                        enum denial_reason reason, const char *exe) {
  decisions->counts.denied++;
  uint64_t left_out = decisions->denials.left_out;
  bool first = denials_add(&decisions->denials, request, reason, exe);
  bool unlisted = decisions->denials.left_out > left_out;
  if (!(first || unlisted) || !is_worth_a_notice(reason))
    return;
  if (unlisted || !bucket_take(&decisions->noticing, decisions_now(decisions))) {
    decisions->unnoticed++;
    summarise_later(decisions);
    return;
  }
  _cleanup_free_ char *sentence = denial_sentence(decisions->config.context, request, reason, exe);
  notice(decisions, sentence);
}

static json_t *summary_json(uint64_t flooded, uint64_t unaudited) {
  return json_pack("{s:I, s:I}", "not_asked", (json_int_t)flooded, "not_listed",
                   (json_int_t)unaudited);
}

static void summarise(struct decisions *decisions) {
  uint64_t flooded = decisions->flooded, unaudited = decisions->unaudited;
  uint64_t unnoticed = decisions->unnoticed;
  decisions->flooded = decisions->unaudited = decisions->unnoticed = 0;
  decisions->summary_ns = 0;
  _cleanup_error_ struct sb_error ignored = {0};
  if (flooded || unaudited) /* a count only: what it counts was denied, written or not */
    (void)decisions_record(decisions, "flood", summary_json(flooded, unaudited), &ignored);
  if (flooded == 0 && unnoticed == 0)
    return;
  _cleanup_free_ char *sentence =
      flooded ? xasprintf("%llu requests were denied without asking: too many at once",
                          (unsigned long long)flooded)
              : xasprintf("%llu more were denied; --report or --json lists %s",
                          (unsigned long long)unnoticed,
                          decisions->denials.left_out ? "a part of them" : "them");
  notice(decisions, sentence);
}

/* ---- answering at once ---- */

static void fill_answer(struct decisions *decisions, const struct outcome *outcome,
                        struct answered *ret_answer) {
  free(decisions->tree);
  decisions->tree = outcome->tree ? xstrdup(outcome->tree) : NULL;
  *ret_answer = (struct answered){.answer = outcome->answer,
                                  .scope = outcome->scope,
                                  .tree = decisions->tree,
                                  .writable = outcome->writable,
                                  .names = outcome->names};
}

/* A denial that cannot be written, or not any more for their number, stays a denial. */
static bool is_audited(struct decisions *decisions, const struct outcome *outcome) {
  if (outcome->answer == ANSWER_ALLOW ||
      bucket_take(&decisions->auditing, decisions_now(decisions)))
    return true;
  decisions->unaudited++;
  summarise_later(decisions);
  return false;
}

void decisions_note_listed(struct decisions *decisions, const char *path) {
  if (!strv_contains(&decisions->listed, path))
    strv_add(&decisions->listed, path);
}

static void answer_at_once(struct decisions *decisions, const struct access_request *request,
                           const struct outcome *given, struct answered *ret_answer) {
  _cleanup_free_ char *exe = NULL, *cwd = NULL;
  _cleanup_error_ struct sb_error error = {0};
  struct outcome outcome = *given;
  process_describe(request->pid, &exe, &cwd);
  if (is_audited(decisions, &outcome) &&
      decisions_record(decisions, "decision", outcome_to_json(request, &outcome, exe, cwd),
                       &error) < 0 &&
      outcome.answer == ANSWER_ALLOW)
    outcome = outcome_denied(DENIAL_AUDIT, "audit");
  if (outcome.answer == ANSWER_ALLOW)
    decisions->counts.allowed++;
  else
    note_denial(decisions, request, outcome.reason, exe);
  if (outcome.names)
    decisions_note_listed(decisions, request->path);
  fill_answer(decisions, &outcome, ret_answer);
}

/* ---- asking ---- */

bool decisions_are_attended(const struct decisions *decisions) {
  for (size_t i = 0; i < decisions->supervisor_count; i++) {
    if (!decisions->supervisors[i]->observes)
      return true;
  }
  return decisions->config.waits;
}

static bool may_be_attended(const struct decisions *decisions) {
  const struct decision_services *services = &decisions->config.services;
  return decisions_are_attended(decisions) ||
         (services->expects && !decisions->in_vain && services->expects(services->context));
}

bool decisions_may_allow_hosts(const struct decisions *decisions) {
  if (decisions->config.learns || may_be_attended(decisions))
    return true;
  for (size_t i = 0; i < decisions->approvals.count; i++) {
    if (decisions->approvals.items[i].subject == SUBJECT_NETWORK)
      return true;
  }
  return false;
}

/* Reads are allowed without a question, but for secrets. A listed folder only this once: what is
 * read in it is to be recorded, too. */
static struct outcome learn(const struct access_request *request, const char *secret) {
  bool read = request->subject == SUBJECT_FILE && request->want != WANT_WRITE &&
              request->want != WANT_CONNECT;
  if (!read || secret)
    return outcome_denied(DENIAL_NOBODY, "learn");
  return (struct outcome){
      .answer = ANSWER_ALLOW,
      .scope = request->folder ? SCOPE_ONCE : SCOPE_SESSION,
      .tree = request->path,
      .by = "learn",
  };
}

static void count_flooded(struct decisions *decisions) {
  decisions->counts.flooded++;
  decisions->flooded++;
  summarise_later(decisions);
}

void decisions_note_flooded(struct decisions *decisions) {
  decisions->counts.denied++;
  count_flooded(decisions);
}

/* Why nobody is asked, as a denial; PENDING if somebody is. */
static struct outcome refuse_question(struct decisions *decisions) {
  if (decisions->deny_rest)
    return outcome_denied(DENIAL_REST, "session");
  if (!may_be_attended(decisions))
    return outcome_denied(DENIAL_NOBODY, "nobody");
  if (decisions->count < PENDING_LIMIT && bucket_take(&decisions->asking, decisions_now(decisions)))
    return (struct outcome){.answer = ANSWER_PENDING};
  count_flooded(decisions);
  return outcome_denied(DENIAL_FLOOD, "flood");
}

static struct question *find_same(const struct decisions *decisions,
                                  const struct access_request *request) {
  for (size_t i = 0; i < decisions->count; i++) {
    if (question_is_about(decisions->questions[i], request))
      return decisions->questions[i];
  }
  return NULL;
}

uint64_t decisions_deadline(const struct decisions *decisions, const struct question *question) {
  return question->asked_ns +
         (uint64_t)decisions->config.policy->prompt_timeout_seconds * 1000000000ull;
}

static void put_question(struct decisions *decisions, struct question *question) {
  question->asked_ns = decisions_now(decisions);
  question->early = !decisions_are_attended(decisions);
  question->deadline_ns =
      question->early ? question->asked_ns + ARRIVAL_NS : decisions_deadline(decisions, question);
  ARRAY_GROW(decisions->questions, decisions->count);
  decisions->questions[decisions->count++] = question;
  decisions->counts.asked++;
  for (size_t i = 0; i < decisions->supervisor_count; i++) {
    struct supervisor *supervisor = decisions->supervisors[i];
    if (supervisor->asked)
      supervisor->asked(supervisor->context, question);
  }
}

uint64_t decisions_ask(struct decisions *decisions, const struct access_request *request,
                       answer_callback *callback, void *context, struct answered *ret_answer) {
  struct outcome outcome = decisions_judge(decisions, request);
  const char *secret = outcome.secret;
  struct question *question = NULL;
  if (outcome.answer == ANSWER_PENDING) {
    question = find_same(decisions, request);
    if (decisions->config.learns)
      outcome = learn(request, secret);
    else if (!question)
      outcome = refuse_question(decisions);
  }
  if (outcome.answer != ANSWER_PENDING) {
    answer_at_once(decisions, request, &outcome, ret_answer);
    return 0;
  }
  uint64_t ticket = ++decisions->last_ticket;
  *ret_answer = (struct answered){.answer = ANSWER_PENDING};
  if (question) {
    question_add_waiter(question, ticket, callback, context);
    return ticket;
  }
  question = question_new(request, decisions->config.policy, decisions->config.context);
  question_add_waiter(question, ticket, callback, context);
  if (!secret)
    secret = decisions_second_name(decisions, request);
  question->secret = secret;
  /* Stored grants are about reading and writing: neither a secret nor a socket. */
  bool connects = request->subject == SUBJECT_FILE && request->want == WANT_CONNECT;
  if ((secret || connects) && question->widest > SCOPE_SESSION)
    question->widest = SCOPE_SESSION;
  put_question(decisions, question);
  return ticket;
}

/* ---- settling ---- */

static void forget(struct decisions *decisions, const struct question *question, const char *how) {
  size_t index = 0;
  while (index < decisions->count && decisions->questions[index] != question)
    index++;
  decisions->count--;
  memmove(decisions->questions + index, decisions->questions + index + 1,
          (decisions->count - index) * sizeof *decisions->questions);
  memcpy(decisions->settled[decisions->next_settled].id, question->id, QUESTION_ID_SIZE);
  decisions->settled[decisions->next_settled].how = how;
  decisions->next_settled = (decisions->next_settled + 1) % REMEMBERED_IDS;
}

static void tell_settled(struct decisions *decisions, const struct question *question,
                         const char *how, const char *by) {
  for (size_t i = 0; i < decisions->supervisor_count; i++) {
    struct supervisor *supervisor = decisions->supervisors[i];
    if (supervisor->settled)
      supervisor->settled(supervisor->context, question, how, by);
  }
}

static json_t *question_outcome_json(struct decisions *decisions, const struct question *question,
                                     const struct outcome *outcome) {
  json_t *fields = outcome_to_json(&question->request, outcome, question->exe, question->cwd);
  json_set_string(fields, "id", question->id);
  json_object_set_new(fields, "waiting", json_integer((json_int_t)question->waiter_count));
  double waited = (double)(decisions_now(decisions) - question->asked_ns);
  json_object_set_new(fields, "latency_ms", json_real(waited / 1e6));
  if (question->secret)
    json_set_string(fields, "secret", question->secret);
  return fields;
}

static const char *how_settled(const struct outcome *outcome) {
  if (outcome->answer == ANSWER_ALLOW)
    return "allowed";
  return outcome->reason == DENIAL_ANSWERED ? "denied" : denial_reason_name(outcome->reason);
}

static void call_back(const struct question *question, const struct outcome *outcome) {
  struct answered answer = {.answer = outcome->answer,
                            .scope = outcome->scope,
                            .tree = outcome->tree,
                            .writable = outcome->writable,
                            .names = outcome->names};
  for (size_t i = 0; i < question->waiter_count; i++) {
    const struct waiter *waiter = &question->waiters[i];
    waiter->callback(waiter->context, waiter->ticket, &answer);
  }
}

int decisions_settle(struct decisions *decisions, struct question *question,
                     const struct outcome *given, struct sb_error *error) {
  struct outcome outcome = *given;
  json_t *fields = question_outcome_json(decisions, question, &outcome);
  int result = write_down(decisions, "decision", fields, error);
  if (result < 0 && outcome.answer == ANSWER_ALLOW)
    outcome = outcome_denied(DENIAL_AUDIT, "audit");
  forget(decisions, question, how_settled(&outcome));
  if (outcome.answer == ANSWER_ALLOW || outcome.reason == DENIAL_ANSWERED)
    bucket_give(&decisions->asking, 1);
  decisions->counts.timeouts += outcome.answer != ANSWER_ALLOW && outcome.reason == DENIAL_TIMEOUT;
  if (outcome.answer == ANSWER_ALLOW)
    decisions->counts.allowed++;
  else
    note_denial(decisions, &question->request, outcome.reason, question->exe);
  call_back(question, &outcome); /* who waits comes before who looks on */
  if (result == 0)
    tell_written(decisions, "decision", fields);
  json_decref(fields);
  tell_settled(decisions, question, how_settled(&outcome), outcome.by);
  question_free(question);
  return result;
}

void decisions_settle_covered(struct decisions *decisions) {
  for (size_t i = 0; i < decisions->count;) {
    struct question *question = decisions->questions[i];
    struct outcome outcome = decisions_judge(decisions, &question->request);
    if (outcome.answer == ANSWER_PENDING) {
      i++;
      continue;
    }
    /* The callbacks may withdraw others: the list is looked at from its start. */
    _cleanup_error_ struct sb_error ignored = {0};
    (void)decisions_settle(decisions, question, &outcome, &ignored);
    i = 0;
  }
}

void decisions_deny_all(struct decisions *decisions, enum denial_reason reason, const char *by) {
  while (decisions->count > 0) {
    _cleanup_error_ struct sb_error ignored = {0};
    struct outcome outcome = outcome_denied(reason, by);
    (void)decisions_settle(decisions, decisions->questions[0], &outcome, &ignored);
  }
}

void decisions_withdraw(struct decisions *decisions, uint64_t ticket) {
  for (size_t i = 0; i < decisions->count; i++) {
    struct question *question = decisions->questions[i];
    if (!question_drop_waiter(question, ticket))
      continue;
    if (question->waiter_count > 0)
      return;
    forget(decisions, question, "withdrawn");
    tell_settled(decisions, question, "withdrawn", NULL);
    question_free(question);
    return;
  }
}

static void note_refused(struct decisions *decisions, const struct access_request *request,
                         enum denial_reason reason, const char *detail) {
  _cleanup_free_ char *exe = NULL, *cwd = NULL;
  _cleanup_error_ struct sb_error ignored = {0};
  struct outcome outcome = outcome_denied(reason, "policy");
  process_describe(request->pid, &exe, &cwd);
  if (is_audited(decisions, &outcome)) {
    json_t *fields = outcome_to_json(request, &outcome, exe, cwd);
    json_set_string(fields, "detail", detail);
    (void)decisions_record(decisions, "decision", fields, &ignored);
  }
  note_denial(decisions, request, reason, exe);
}

void decisions_denied_below(const struct decisions *decisions, const char *tree, bool writes,
                            struct strv *ret_paths) {
  approvals_denied_below(&decisions->approvals, tree, writes, ret_paths);
}

bool decisions_revoked_below(const struct decisions *decisions, const char *tree, bool writes) {
  return approvals_revoked_below(&decisions->approvals, tree, writes);
}

bool decisions_is_revoked(const struct decisions *decisions, const char *path) {
  const struct access_request request = {.subject = SUBJECT_FILE, .want = WANT_READ, .path = path};
  const struct approval *approval = approvals_find(&decisions->approvals, &request);
  return approval && approval->verdict == APPROVAL_ASK;
}

bool decisions_keep_writable(struct decisions *decisions, const char *path) {
  const struct access_request request = {.subject = SUBJECT_FILE, .want = WANT_WRITE, .path = path};
  const struct policy *policy = decisions->config.policy;
  const struct decision decision = policy_decide(policy, path, ACCESS_WRITE);
  return decision.verdict == VERDICT_ALLOW && decision.rule->granted &&
         decisions_judge(decisions, &request).answer == ANSWER_ALLOW;
}

void decisions_note_refused(struct decisions *decisions, const struct access_request *request,
                            const char *reason) {
  decisions->counts.refused_writes++;
  note_refused(decisions, request, DENIAL_READ_ONLY, reason);
}

void decisions_note_unaskable(struct decisions *decisions, const struct access_request *request) {
  note_refused(decisions, request, DENIAL_UNASKABLE, "cannot wait for an answer");
}

void decisions_note_failed(struct decisions *decisions, const struct access_request *request,
                           int errnum) {
  note_refused(decisions, request, DENIAL_FAILED, strerror(errnum));
}

/* Its program is not for us to know, either; the name is the process's own word. */
void decisions_note_unreadable(struct decisions *decisions, const char *name, enum unread what) {
  static const struct {
    const char *before, *after, *way;
  } words[] = {[UNREAD_FILES] = {"all that the program", " wants of files", ", or use --gate fuse"},
               [UNREAD_SOCKETS] = {"each connection of the program", "", ""}};
  if (strncmp(name, decisions->unreadable, sizeof decisions->unreadable - 1) == 0 ||
      !bucket_take(&decisions->noticing, decisions_now(decisions)))
    return;
  snprintf(decisions->unreadable, sizeof decisions->unreadable, "%s", name);
  _cleanup_free_ char *shown = escape_string(name);
  _cleanup_free_ char *sentence = xasprintf(
      "denied: %s '%s'%s: you may run, but not read it, so nobody can see what to ask about; make "
      "it readable%s",
      words[what].before, shown, words[what].after, words[what].way);
  notice(decisions, sentence);
}

/* ---- time ---- */

void decisions_tick(struct decisions *decisions) {
  uint64_t now = decisions_now(decisions);
  for (size_t i = 0; i < decisions->count;) {
    struct question *question = decisions->questions[i];
    if (question->deadline_ns > now) {
      i++;
      continue;
    }
    _cleanup_error_ struct sb_error ignored = {0};
    struct outcome outcome = question->early ? outcome_denied(DENIAL_NOBODY, "nobody")
                                             : outcome_denied(DENIAL_TIMEOUT, "timeout");
    decisions->in_vain |= question->early;
    (void)decisions_settle(decisions, question, &outcome, &ignored);
    i = 0;
  }
  if (decisions->summary_ns && now >= decisions->summary_ns)
    summarise(decisions);
}

uint64_t decisions_next_tick(const struct decisions *decisions) {
  uint64_t next = decisions->summary_ns;
  for (size_t i = 0; i < decisions->count; i++) {
    uint64_t deadline = decisions->questions[i]->deadline_ns;
    next = next == 0 || deadline < next ? deadline : next;
  }
  return next;
}

/* ---- looking ---- */

struct decision_counts decisions_counts(const struct decisions *decisions) {
  if (!decisions)
    return (struct decision_counts){0};
  struct decision_counts counts = decisions->counts;
  counts.pending = decisions->count;
  return counts;
}

json_t *decisions_counts_json(const struct decisions *decisions) {
  struct decision_counts counts = decisions_counts(decisions);
  return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "allowed", (json_int_t)counts.allowed,
                   "denied", (json_int_t)counts.denied, "pending", (json_int_t)counts.pending,
                   "asked", (json_int_t)counts.asked, "timeouts", (json_int_t)counts.timeouts,
                   "flooded", (json_int_t)counts.flooded, "refused_writes",
                   (json_int_t)counts.refused_writes);
}

json_t *decisions_denials_json(const struct decisions *decisions) {
  return decisions ? denials_to_json(decisions->config.context, &decisions->denials) : json_array();
}

const struct question *decisions_pending(const struct decisions *decisions, size_t index) {
  return index < decisions->count ? decisions->questions[index] : NULL;
}
