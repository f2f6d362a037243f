/* Who is asked in a session; see supervision.h. */
#include "session/supervision.h"

#include <stdlib.h>
#include <string.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "policy/grants.h"
#include "session/events.h"
#include "session/monitor.h"
#include "session/registry.h"
#include "session/revoking.h"
#include "session/watchers.h"

static int record(void *context, const char *event, json_t *fields, struct sb_error *error) {
  struct monitor *monitor = context;
  int result = audit_write(monitor->audit, event, json_incref(fields), error);
  if (result == 0)
    events_log(monitor, event, fields);
  json_decref(fields);
  return result;
}

static int store(void *context, enum grant_scope scope, const struct grant *grant,
                 struct sb_error *error) {
  const struct monitor *monitor = context;
  return grants_add(&monitor->request->host->policy, scope, grant, error);
}

static int unstore(void *context, enum grant_scope scope, const char *name, size_t *ret_removed,
                   struct sb_error *error) {
  const struct monitor *monitor = context;
  return grants_remove(&monitor->request->host->policy, scope, name, ret_removed, error);
}

/* Also a denial: what it lies in is taken away as a whole, and granted anew without it. */
static bool take_back(void *context, const char *path) {
  struct monitor *monitor = context;
  if (!monitor->gate)
    return false;
  bool any = gate_revoke(monitor->gate, path);
  if (upkeep_allow(monitor, path))
    gate_uncover(monitor->gate, path);
  return any;
}

static void notice(void *context, const char *sentence) {
  struct monitor *monitor = context;
  monitor_warn(monitor, sentence);
  execs_warn(&monitor->execs, sentence);
}

/* Nothing has been opened by it, but who sees the commands fail could not know why. */
void supervision_gate_ended(void *context) {
  struct monitor *monitor = context;
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_free_ char *sentence = xasprintf(
      "the gate of this session was closed from outside (its FUSE connection was "
      "aborted): what was not allowed before gives 'Transport endpoint is not connected', "
      "and nobody can be asked about it any more. What is allowed stays usable. To be "
      "asked again, end the session (sandbox kill %s) and start another",
      monitor->request->session_id);
  json_t *fields = json_object();
  json_set_string(fields, "note", sentence);
  (void)events_write(monitor, "gate.ended", fields, &error);
  notice(monitor, sentence);
}

static bool expects(void *context) {
  const struct monitor *monitor = context;
  return registry_is_attended(monitor->request->host);
}

int supervision_start(struct monitor *monitor, struct sb_error *error) {
  (void)error;
  const struct session_request *request = monitor->request;
  if (!request->policy)
    return 0;
  struct decisions_config config = {
      .policy = request->policy,
      .context = &request->host->policy,
      .hidden = &request->plan->hidden,
      .session_id = request->session_id,
      .learns = request->learns,
      .waits = request->supervised,
      .services = {.record = record,
                   .store = store,
                   .unstore = unstore,
                   .revoke = take_back,
                   .notice = notice,
                   .expects = expects,
                   .context = monitor},
  };
  monitor->supervision.decisions = decisions_new(&config);
  monitor->supervision.prompt =
      prompt_new(&monitor->terminal, monitor->supervision.decisions, request->session_id);
  return 0;
}

void supervision_watch(const struct monitor *monitor, struct pollfd *watched) {
  prompt_watch(monitor->supervision.prompt, watched);
}

void supervision_step(struct monitor *monitor, const struct pollfd *watched) {
  struct supervision *supervision = &monitor->supervision;
  watchers_send_stats(monitor);
  if (!supervision->decisions)
    return;
  revoking_step(monitor);
  prompt_step(supervision->prompt, watched);
  decisions_tick(supervision->decisions);
  if (monitor->audit && decisions_pending(supervision->decisions, 0))
    audit_prepare(monitor->audit);
}

static uint64_t sooner(uint64_t first, uint64_t second) {
  return first == 0 || (second != 0 && second < first) ? second : first;
}

uint64_t supervision_next_step(const struct monitor *monitor) {
  const struct supervision *supervision = &monitor->supervision;
  uint64_t next = watchers_next_stats(monitor);
  if (!supervision->decisions)
    return next;
  next = sooner(next, decisions_next_tick(supervision->decisions));
  return sooner(next, prompt_next_step(supervision->prompt));
}

void supervision_redraw(struct monitor *monitor) {
  prompt_redraw(monitor->supervision.prompt);
}

void supervision_lend(struct monitor *monitor) {
  prompt_lend(monitor->supervision.prompt);
}

void supervision_client_gone(struct monitor *monitor, const struct client *client) {
  watchers_remove(monitor, client);
  revoking_client_gone(monitor, client);
}

void supervision_hide(struct monitor *monitor) {
  prompt_free(monitor->supervision.prompt);
  monitor->supervision.prompt = NULL;
}

void supervision_end(struct monitor *monitor) {
  struct supervision *supervision = &monitor->supervision;
  watchers_clear(monitor);
  revoking_clear(monitor);
  if (supervision->decisions)
    monitor->result->denials = decisions_denials_json(supervision->decisions);
  decisions_free(supervision->decisions);
  supervision->decisions = NULL;
}
