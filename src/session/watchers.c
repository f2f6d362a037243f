/* Supervisors behind the control socket: cmd.watch and the commands that answer. Whoever asks is of
 * the same user; still a wrong message is refused and widens nothing. */
#include "session/watchers.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "plan/named-secrets.h"
#include "session/ancestors.h"
#include "session/drivers-ask.h"
#include "session/monitor.h"
#include "session/questions.h"
#include "session/revoking.h"

#define STATS_INTERVAL_NS (1000ull * 1000 * 1000)

struct watcher {
  struct supervisor supervisor;
  struct client *client;
  json_t *tag;
  uint64_t stats_ns; /* when the next event.stats is due; 0: not asked for */
};

/* ---- events ---- */

static void on_asked(void *context, const struct question *question) {
  struct watcher *watcher = context;
  control_send(watcher->client, question_to_json(question, monotonic_ns()), watcher->tag, NULL, 0);
}

static void on_settled(void *context, const struct question *question, const char *how,
                       const char *by) {
  struct watcher *watcher = context;
  json_t *event =
      json_pack("{s:s, s:s, s:s}", "event", "event.withdrawn", "id", question->id, "reason", how);
  json_set_string(event, "by", by);
  control_send(watcher->client, event, watcher->tag, NULL, 0);
}

static void on_audited(void *context, const char *event, const json_t *fields) {
  struct watcher *watcher = context;
  json_t *message = json_copy((json_t *)fields);
  json_set_string(message, "event", "event.audit");
  json_set_string(message, "kind", event);
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  json_object_set_new(message, "ts", json_real((double)now.tv_sec + (double)now.tv_nsec / 1e9));
  control_send(watcher->client, message, watcher->tag, NULL, 0);
}

void watchers_tell(struct monitor *monitor, const char *event, const json_t *fields) {
  for (size_t i = 0; i < monitor->supervision.watcher_count; i++)
    on_audited(monitor->supervision.watchers[i], event, fields);
}

void watchers_send_stats(struct monitor *monitor) {
  uint64_t now = monotonic_ns();
  for (size_t i = 0; i < monitor->supervision.watcher_count; i++) {
    struct watcher *watcher = monitor->supervision.watchers[i];
    if (!watcher->stats_ns || now < watcher->stats_ns)
      continue;
    watcher->stats_ns = now + STATS_INTERVAL_NS;
    json_t *message = monitor_stats_json(monitor);
    json_set_string(message, "event", "event.stats");
    control_send(watcher->client, message, watcher->tag, NULL, 0);
  }
}

uint64_t watchers_next_stats(const struct monitor *monitor) {
  uint64_t next = 0;
  for (size_t i = 0; i < monitor->supervision.watcher_count; i++) {
    uint64_t due = monitor->supervision.watchers[i]->stats_ns;
    next = due && (next == 0 || due < next) ? due : next;
  }
  return next;
}

/* ---- coming and going ---- */

static void remove_at(struct monitor *monitor, size_t index) {
  struct supervision *supervision = &monitor->supervision;
  struct watcher *watcher = supervision->watchers[index];
  supervision->watchers[index] = supervision->watchers[--supervision->watcher_count];
  if (supervision->decisions)
    decisions_remove_supervisor(supervision->decisions, &watcher->supervisor);
  json_decref(watcher->tag);
  free(watcher);
}

void watchers_remove(struct monitor *monitor, const struct client *client) {
  for (size_t i = monitor->supervision.watcher_count; i-- > 0;) {
    if (monitor->supervision.watchers[i]->client == client)
      remove_at(monitor, i);
  }
}

void watchers_clear(struct monitor *monitor) {
  while (monitor->supervision.watcher_count > 0)
    remove_at(monitor, 0);
  free(monitor->supervision.watchers);
  monitor->supervision.watchers = NULL;
}

/* ---- commands ---- */

static struct decisions *need_decisions(struct monitor *monitor, struct sb_error *error) {
  if (!monitor->supervision.decisions) {
    sb_fail(error, SB_CODE_CONFLICT, 0, "the session asks nobody: it runs in static mode");
    sb_hint(error, "start it in dynamic mode");
  }
  return monitor->supervision.decisions;
}

static json_t *ok(void) {
  return json_pack("{s:b}", "ok", 1);
}

/* The answer comes first, then what waits already, as events. In static mode nothing ever waits,
 * but commands, limits and figures are told just the same. */
json_t *on_watch(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  struct supervision *supervision = &monitor->supervision;
  for (size_t i = 0; i < supervision->watcher_count; i++) {
    if (supervision->watchers[i]->client == request->client) {
      sb_fail(error, SB_CODE_CONFLICT, 0, "this connection watches already");
      return NULL;
    }
  }
  struct watcher *watcher = xcalloc(1, sizeof *watcher);
  watcher->client = request->client;
  watcher->tag = json_incref(json_object_get(request->body, "tag"));
  watcher->stats_ns = json_is_true(json_object_get(request->body, "stats")) ? monotonic_ns() : 0;
  watcher->supervisor = (struct supervisor){
      .observes = json_is_true(json_object_get(request->body, "observe")),
      .asked = on_asked,
      .settled = on_settled,
      .audited = on_audited,
      .context = watcher,
  };
  json_t *answer = ok();
  json_object_set_new(answer, "asks", json_boolean(supervision->decisions));
  control_send(request->client, answer, watcher->tag, NULL, 0);
  ARRAY_GROW(supervision->watchers, supervision->watcher_count);
  supervision->watchers[supervision->watcher_count++] = watcher;
  if (supervision->decisions)
    decisions_add_supervisor(supervision->decisions, &watcher->supervisor);
  return NULL;
}

json_t *on_pending(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  struct monitor *monitor = context;
  json_t *list = json_array();
  const struct question *question;
  for (size_t i = 0; monitor->supervision.decisions &&
                     (question = decisions_pending(monitor->supervision.decisions, i));
       i++)
    json_array_append_new(list, question_to_json(question, monotonic_ns()));
  return json_pack("{s:o}", "requests", list);
}

static const char *need_id(const struct request *request, struct sb_error *error) {
  const char *id = json_string_value(json_object_get(request->body, "id"));
  if (!id) {
    sb_fail(error, SB_CODE_USAGE, 0, "the request's id is missing");
    sb_hint(error, "send \"id\" as event.fs_request or event.net_request had it");
  }
  return id;
}

static int parse_scope(const char *word, enum grant_scope *ret_scope, struct sb_error *error) {
  for (int scope = SCOPE_ONCE; word && scope <= SCOPE_ORG; scope++) {
    if (strcmp(word, scope_name((enum grant_scope)scope)) != 0)
      continue;
    *ret_scope = (enum grant_scope)scope;
    return 0;
  }
  _cleanup_free_ char *shown = escape_string(word ? word : "");
  sb_fail(error, SB_CODE_USAGE, 0, "'%.80s' is not a scope", shown);
  return sb_hint(error, "use once, session, project, user or org");
}

/* A path as it came, byte by byte. A key that is there but wrong is an error, never "no path". */
static int parse_path(const json_t *body, const char *key, char **ret_path,
                      struct sb_error *error) {
  _cleanup_free_ char *exact = xasprintf("%s_b64", key);
  if (!json_object_get(body, key) && !json_object_get(body, exact))
    return 0;
  *ret_path = json_get_path(body, key);
  if (!*ret_path && !json_object_get(body, exact) && json_is_string(json_object_get(body, key)))
    *ret_path = xstrdup(json_string_value(json_object_get(body, key)));
  if (*ret_path && **ret_path == '/')
    return 0;
  return sb_fail(error, SB_CODE_USAGE, 0, "\"%s\" is not an absolute path", key);
}

static const struct question *find_pending(const struct decisions *decisions, const char *id) {
  const struct question *question;
  for (size_t i = 0; (question = decisions_pending(decisions, i)); i++) {
    if (strcmp(question->id, id) == 0)
      return question;
  }
  return NULL;
}

/* The older words of the first specification: "file" and "dir", and "persist". */
static const char *usual_scope(const json_t *body, const struct question *question, char **tree) {
  const char *word = json_string_value(json_object_get(body, "scope"));
  bool folder = word && strcmp(word, "dir") == 0, file = word && strcmp(word, "file") == 0;
  if (!folder && !file)
    return word || json_object_get(body, "scope") ? word : "once";
  if (folder && !*tree && question && question->proposal)
    *tree = xstrdup(question->proposal);
  return json_is_true(json_object_get(body, "persist")) ? "user" : "session";
}

/* How much of a folder is looked at only to name an example. */
#define EXAMPLE_ENTRIES 2000

/* What was allowed with everything in it, but for this. */
static void add_still_hidden(const struct policy *policy, const char *tree, json_t *answer) {
  const struct rule *rule = ancestor_secret(policy, tree);
  _cleanup_strv_ struct strv named = {0};
  if (rule)
    json_set_string(answer, "still_hidden", rule->written);
  else if (!named_secrets_find(policy, tree, EXAMPLE_ENTRIES, &named) && named.count == 0)
    json_set_string(answer, "still_hidden", secret_names[0].pattern); /* there may be some */
  else if (named.count > 0)
    json_set_path(answer, "still_hidden", named.items[0]);
}

json_t *on_approve(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  struct decisions *decisions = need_decisions(monitor, error);
  const char *id = decisions ? need_id(request, error) : NULL;
  _cleanup_free_ char *tree = NULL;
  struct reply reply = {.allow = true};
  if (!id || parse_path(request->body, "tree", &tree, error) < 0 ||
      parse_scope(usual_scope(request->body, find_pending(decisions, id), &tree), &reply.scope,
                  error) < 0)
    return NULL;
  reply.by = control_peer(request->client);
  reply.tree = tree;
  const struct question *question = find_pending(decisions, id);
  bool names = question && question->names && reply.scope > SCOPE_ONCE;
  if (decisions_answer(decisions, id, &reply, error) < 0)
    return NULL;
  json_t *answer = ok();
  if (names)
    json_object_set_new(answer, "names", json_true());
  if (tree)
    add_still_hidden(monitor->request->policy, tree, answer);
  _cleanup_strv_ struct strv denied = {0};
  if (tree)
    decisions_denied_below(decisions, tree, false, &denied);
  if (denied.count > 0)
    json_set_path(answer, "still_denied", denied.items[0]);
  return answer;
}

json_t *on_deny(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  struct decisions *decisions = need_decisions(monitor, error);
  const char *id = decisions ? need_id(request, error) : NULL;
  _cleanup_free_ char *tree = NULL;
  struct reply reply = {.rest = json_is_true(json_object_get(request->body, "rest"))};
  bool always = json_is_true(json_object_get(request->body, "always"));
  const json_t *scope = json_object_get(request->body, "scope");
  if (!id || parse_path(request->body, "tree", &tree, error) < 0)
    return NULL;
  const char *word = scope ? json_string_value(scope) : always ? "user" : "once";
  if (parse_scope(word, &reply.scope, error) < 0)
    return NULL;
  reply.by = control_peer(request->client);
  reply.tree = tree;
  return decisions_answer(decisions, id, &reply, error) < 0 ? NULL : ok();
}

static bool is_mounted_writable(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_WRITABLE && strcmp(operation->path, path) == 0)
      return true;
  }
  return false;
}

/* Does the session have it from its start because of a kept answer? Nobody could take that away. */
static bool is_mounted_for_good(const struct monitor *monitor, const char *path) {
  const struct policy *rules = monitor->request->rules;
  for (size_t i = 0; path && rules && i < rules->rule_count; i++) {
    const struct rule *rule = &rules->rules[i];
    if (rule->granted && rule->kind == RULE_WRITE && strcmp(rule->pattern, path) == 0)
      return is_mounted_writable(monitor->request->plan, path);
  }
  return false;
}

static json_t *fail_mounted(const struct monitor *monitor, struct sb_error *error) {
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "it stays writable until the session ends");
  sb_hint(error, "end it: sandbox kill %s", monitor->request->session_id);
  return NULL;
}

/* In static mode a host is taken back as ever. */
static json_t *revoke_unasked(struct monitor *monitor, const struct revocation *revocation,
                              struct sb_error *error) {
  if (revocation->granted)
    return json_pack("{s:b, s:i}", "ok", 1, "stored", 0);
  if (is_mounted_for_good(monitor, revocation->path))
    return fail_mounted(monitor, error);
  (void)need_decisions(monitor, error);
  return NULL;
}

json_t *on_revoke(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  struct decisions *decisions = monitor->supervision.decisions;
  _cleanup_free_ char *path = NULL;
  size_t stored = 0;
  if (parse_path(request->body, "path", &path, error) < 0)
    return NULL;
  struct revocation revocation = {
      .path = path,
      .host = json_string_value(json_object_get(request->body, "host")),
      .stored = json_is_true(json_object_get(request->body, "stored")),
      .by = control_peer(request->client),
  };
  if (!path == !revocation.host) {
    sb_fail(error, SB_CODE_USAGE, 0, "cmd.revoke needs a \"path\" or a \"host\"");
    return NULL;
  }
  if (revocation.host) {
    revocation.granted = network_revoke(monitor, revocation.host);
    driven_revoke(monitor, revocation.host);
  }
  if (!decisions)
    return revoke_unasked(monitor, &revocation, error);
  if (decisions_revoke(decisions, &revocation, &stored, error) < 0)
    return NULL;
  if (is_mounted_for_good(monitor, path))
    return fail_mounted(monitor, error);
  revoking_answer(monitor, request, json_pack("{s:b, s:i}", "ok", 1, "stored", (int)stored));
  return NULL;
}

json_t *on_policy_save(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  struct decisions *decisions = need_decisions(monitor, error);
  enum grant_scope scope = SCOPE_ONCE;
  size_t count = 0;
  const char *word = json_string_value(json_object_get(request->body, "scope"));
  if (!decisions || parse_scope(word, &scope, error) < 0)
    return NULL;
  if (decisions_save(decisions, scope, control_peer(request->client), &count, error) < 0)
    return NULL;
  return json_pack("{s:b, s:i}", "ok", 1, "saved", (int)count);
}
