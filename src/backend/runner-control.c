/* A command of another engine in the registry; see runner-control.h. */
#include "backend/runner-control.h"

#include <stdlib.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/cleanup.h"
#include "core/json.h"
#include "session/events.h"
#include "session/processes.h"

static double age_of(const struct runner_subject *subject) {
  return (double)(monotonic_ns() - subject->started_ns) / 1e9;
}

/* ---- commands ---- */

static json_t *on_info(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  const struct runner_subject *subject = context;
  return json_pack("{s:s, s:i, s:i, s:f, s:i}", "sid", subject->request->session_id, "init",
                   (int)subject->guard, "execs", 0, "age", age_of(subject), "pending", 0);
}

/* All but the guard, which is ours. */
static json_t *processes_of(const struct runner_subject *subject) {
  json_t *processes = processes_to_json(subject->guard);
  json_array_remove(processes, 0);
  return processes;
}

static void fill_in(uint64_t *value, double found) {
  if (*value == USAGE_UNKNOWN)
    *value = (uint64_t)found;
}

/* What no group counts is the sum of what runs at this moment. */
static void count_processes(const struct runner_subject *subject, struct usage *usage) {
  json_t *processes = processes_of(subject), *process;
  double memory = 0, seconds = 0;
  size_t index;
  json_array_foreach(processes, index, process) {
    memory += json_number_value(json_object_get(process, "memory_kb")) * 1024;
    seconds += json_number_value(json_object_get(process, "cpu_seconds"));
  }
  fill_in(&usage->processes, (double)json_array_size(processes));
  fill_in(&usage->memory_bytes, memory);
  fill_in(&usage->cpu_ns, seconds * 1e9);
  json_decref(processes);
}

static json_t *on_stats(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  const struct runner_subject *subject = context;
  struct usage usage;
  limit_group_sample(subject->limits, &usage);
  count_processes(subject, &usage);
  json_t *reply = usage_to_json(&usage);
  json_set_string(reply, "sid", subject->request->session_id);
  json_object_set_new(reply, "age", json_real(age_of(subject)));
  json_object_set_new(reply, "limits", limit_group_to_json(subject->limits));
  json_object_set_new(reply, "network", json_null());
  json_object_set_new(reply, "execs_total", json_integer(0));
  json_object_set_new(reply, "decisions", decisions_counts_json(NULL));
  return reply;
}

static json_t *on_processes(void *context, const struct request *request, struct sb_error *error) {
  (void)request, (void)error;
  const struct runner_subject *subject = context;
  return json_pack("{s:o}", "processes", processes_of(subject));
}

static json_t *on_signal(void *context, const struct request *request, struct sb_error *error) {
  const struct runner_subject *subject = context;
  int signal = (int)json_integer_value(json_object_get(request->body, "signal"));
  if (signal < 1 || signal > 64) {
    sb_fail(error, SB_CODE_USAGE, 0, "cmd.signal: not a signal");
    sb_hint(error, "send \"signal\": 15");
    return NULL;
  }
  subject->signal(subject->context, signal);
  return json_pack("{s:b}", "ok", 1);
}

static json_t *on_kill(void *context, const struct request *request, struct sb_error *error) {
  const struct runner_subject *subject = context;
  bool now = json_is_true(json_object_get(request->body, "now"));
  if (subject->request->audit)
    (void)audit_write(subject->request->audit, "kill", json_pack("{s:b}", "now", now), error);
  sb_error_clear(error); /* what cannot be audited any more must still be possible to end */
  subject->end(subject->context, now);
  return json_pack("{s:b}", "ok", 1);
}

static int refuse_entering(const struct runner_subject *subject, struct sb_error *error) {
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "a session of the back end %s cannot be entered",
          subject->backend->name);
  return sb_hint(error, "start the command with its own 'sandbox run', or use the native engine");
}

/* Our own protocol for commands inside is that of the native engine's init. */
static json_t *on_exec(void *context, const struct request *request, struct sb_error *error) {
  (void)request;
  refuse_entering(context, error);
  return NULL;
}

/* The words with which a client enters by the tool's own means; it is in the log before. */
static json_t *on_enter(void *context, const struct request *request, struct sb_error *error) {
  const struct runner_subject *subject = context;
  const struct wrapped *wrapped = subject->wrapped;
  if (wrapped->enter_argv.count == 0) {
    refuse_entering(subject, error);
    return NULL;
  }
  if (subject->request->audit &&
      audit_write(subject->request->audit, "exec", events_exec_fields(request->body), error) < 0)
    return NULL;
  json_t *reply = json_object();
  json_set_words(reply, "argv", wrapped->enter_argv.items, wrapped->enter_argv.count);
  json_set_string(reply, "name", wrapped->enter_name);
  return reply;
}

static const struct control_command commands[] = {
    {"cmd.info", on_info},    {"cmd.stats", on_stats},
    {"cmd.ps", on_processes}, {"cmd.signal", on_signal},
    {"cmd.kill", on_kill},    {"cmd.exec", on_exec},
    {"cmd.enter", on_enter},  {NULL, NULL},
};

/* ---- being there ---- */

static void client_gone(void *context, struct client *client) {
  (void)context, (void)client;
}

static json_t *make_state(const struct runner_subject *subject) {
  const struct backend_request *request = subject->request;
  return registry_state(&(struct registry_subject){
      .host = request->host,
      .session_id = request->session_id,
      .mode = "static",
      .backend = subject->backend->name,
      .command = &request->plan->arguments,
  });
}

int runner_control_open(struct runner_control *control, const struct runner_subject *subject,
                        struct sb_error *error) {
  control->subject = *subject;
  json_t *state = make_state(subject);
  int result = registry_add(subject->request->host, subject->request->session_id, state,
                            &control->registration, error);
  json_decref(state);
  if (result == 0)
    result = control_open(control->registration.folder, commands, &control->subject, client_gone,
                          &control->control, error);
  return result < 0 ? -1 : registry_publish(&control->registration, error);
}

size_t runner_control_watch(struct runner_control *control,
                            struct pollfd watched[CONTROL_WATCH_LIMIT]) {
  return control->control ? control_watch(control->control, watched) : 0;
}

void runner_control_dispatch(struct runner_control *control, const struct pollfd *watched,
                             size_t count) {
  if (count > 0)
    control_dispatch(control->control, watched, count);
}

void runner_control_leave(struct runner_control *control) {
  registry_remove(&control->registration);
}

void runner_control_close(struct runner_control *control) {
  control_close(control->control);
  control->control = NULL;
}
