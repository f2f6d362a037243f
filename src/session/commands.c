/* What a client can ask a session: one function per command, one table. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/json.h"
#include "session/events.h"
#include "session/monitor.h"
#include "session/processes.h"

#define KILL_GRACE_NS (2ull * 1000 * 1000 * 1000)

static json_t *on_info(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  const struct monitor *monitor = context;
  return json_pack("{s:s, s:i, s:i, s:f, s:i}", "sid", monitor->request->session_id, "init",
                   (int)monitor->engine.init, "execs", (int)monitor->execs.count, "age",
                   (double)(monotonic_ns() - monitor->started_ns) / 1e9, "pending",
                   (int)decisions_counts(monitor->supervision.decisions).pending);
}

json_t *monitor_stats_json(struct monitor *monitor) {
  struct usage usage;
  monitor->limits.metrics = true; /* somebody looks: what no group counts is counted by hand */
  limit_group_sample(&monitor->limits, &usage);
  json_t *reply = usage_to_json(&usage);
  json_set_string(reply, "sid", monitor->request->session_id);
  json_object_set_new(reply, "age",
                      json_real((double)(monotonic_ns() - monitor->started_ns) / 1e9));
  json_object_set_new(reply, "limits", limit_group_to_json(&monitor->limits));
  json_object_set_new(reply, "network", network_to_json(monitor));
  json_object_set_new(reply, "execs_total", json_integer((json_int_t)monitor->execs.total));
  /* Static mode asks nobody; the counters are there for every mode. */
  json_object_set_new(reply, "decisions", decisions_counts_json(monitor->supervision.decisions));
  return reply;
}

static json_t *on_stats(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  return monitor_stats_json(context);
}

static json_t *on_processes(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  const struct monitor *monitor = context;
  return json_pack("{s:o}", "processes", processes_to_json(monitor->engine.init));
}

static json_t *on_signal(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  int signal = (int)json_integer_value(json_object_get(request->body, "signal"));
  if (signal < 1 || signal > 64) {
    sb_fail(error, SB_CODE_USAGE, 0, "cmd.signal: not a signal");
    sb_hint(error, "send \"signal\": 15");
    return NULL;
  }
  engine_send(&monitor->engine, MESSAGE_SIGNAL, signal);
  return json_pack("{s:b}", "ok", 1);
}

static json_t *on_kill(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  bool now = json_is_true(json_object_get(request->body, "now"));
  /* A session that cannot be audited any more must still be possible to end. */
  (void)events_kill(monitor, now, error);
  sb_error_clear(error);
  monitor->killed = true;
  monitor_terminate(monitor, now ? 0 : KILL_GRACE_NS);
  return json_pack("{s:b}", "ok", 1);
}

static json_t *on_exec(void *context, const struct request *request, struct sb_error *error) {
  struct monitor *monitor = context;
  if (events_exec(monitor, request->body, error) < 0)
    return NULL;
  execs_request(&monitor->execs, &monitor->engine, request, error);
  return NULL; /* answered by events */
}

static json_t *on_exec_signal(void *context, const struct request *request,
                              struct sb_error *error) {
  struct monitor *monitor = context;
  execs_signal(&monitor->execs, &monitor->engine, request, error);
  return NULL;
}

const struct control_command monitor_commands[] = {
    {"cmd.info", on_info},
    {"cmd.stats", on_stats},
    {"cmd.ps", on_processes},
    {"cmd.signal", on_signal},
    {"cmd.kill", on_kill},
    {"cmd.exec", on_exec, .takes_descriptors = true},
    {"cmd.exec.signal", on_exec_signal},
    {"cmd.watch", on_watch},
    {"cmd.pending", on_pending},
    {"cmd.approve", on_approve},
    {"cmd.deny", on_deny},
    {"cmd.revoke", on_revoke},
    {"cmd.policy.save", on_policy_save},
    {NULL, NULL},
};
