/* From a request to a session that runs: its first process, the plan, what has to be there before,
 * the registration. */
#include <string.h>
#include <sys/prctl.h>

#include "core/cleanup.h"
#include "doctor/doctor.h"
#include "session/events.h"
#include "session/limiting.h"
#include "session/monitor.h"

static void client_gone(void *context, struct client *client) {
  struct monitor *monitor = context;
  execs_client_gone(&monitor->execs, &monitor->engine, client);
  supervision_client_gone(monitor, client);
}

const struct strv *session_command(const struct session_request *request) {
  return request->command ? request->command : &request->plan->arguments;
}

static json_t *session_state(const struct session_request *request) {
  json_t *state = registry_state(&(struct registry_subject){
      .host = request->host,
      .session_id = request->session_id,
      .mode = request->mode,
      .backend = request->backend ? request->backend : "native",
      .command = request->idle ? NULL : session_command(request),
  });
  json_object_set_new(state, "outside_files",
                      json_boolean(plan_holds_outside_files(request->plan)));
  return state;
}

static int register_session(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  json_t *state = session_state(request);
  int result =
      registry_add(request->host, request->session_id, state, &monitor->registration, error);
  json_decref(state);
  if (result == 0)
    result = control_open(monitor->registration.folder, monitor_commands, monitor, client_gone,
                          &monitor->control, error);
  return result < 0 ? -1 : registry_publish(&monitor->registration, error);
}

static int open_capture(struct monitor *monitor, int descriptors[3], struct sb_error *error) {
  if (!monitor->request->capture)
    return 0;
  int result = capture_open(&monitor->capture, monitor->request->capture_limit);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "making pipes for the output");
  descriptors[1] = monitor->capture.streams[0].writer;
  descriptors[2] = monitor->capture.streams[1].writer;
  return 0;
}

/* The kernel's errno alone ("No space left on device") explains nothing. */
int monitor_explain_refusal(struct sb_error *error) {
  return error->code == SB_CODE_UNSUPPORTED ? doctor_explain_userns(error) : -1;
}

/* The process that was started ahead does, if nothing is special about its birth. */
static int clone_init(struct monitor *monitor, const struct engine_birth *birth,
                      struct sb_error *error) {
  struct engine *ahead = monitor->request->ahead;
  bool there = ahead && ahead->init > 0;
  if (there && monitor->limits.hierarchy_count == 0 && !monitor->request->capture) {
    monitor->engine = *ahead;
    *ahead = ENGINE_NONE;
    return 0;
  }
  if (there)
    engine_destroy(ahead, NULL);
  return engine_clone(birth, monitor->request->report, &monitor->engine, error);
}

static int begin(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  struct engine_birth birth = {
      .limits = &monitor->limits,
      .descriptors = {-1, -1, -1},
      .title = request->title,
      .title_size = request->title_size,
  };
  struct engine_input input = {
      .base = request->plan,
      .rlimits = &monitor->limits.rlimits,
      .original_mask = monitor->original_mask,
      .idle = request->idle,
      /* Limits count from then on, and what waits for an answer should not wait for us. */
      .tell_at_once =
          request->idle || !limit_set_is_empty(request->limits) || request->plan->gate != GATE_NONE,
  };
  memcpy(input.terminal, monitor->terminal.used, sizeof input.terminal);
  if (limiting_begin(monitor, error) < 0 || open_capture(monitor, birth.descriptors, error) < 0)
    return -1;
  if (clone_init(monitor, &birth, error) < 0 ||
      engine_map_identity(&monitor->engine, &input, error) < 0)
    return monitor_explain_refusal(error);
  return 0;
}

int monitor_start(struct monitor *monitor, struct sb_error *error) {
  const struct session_request *request = monitor->request;
  if (begin(monitor, error) < 0)
    return -1;
  capture_close_writers(&monitor->capture);
  prctl(PR_SET_DUMPABLE, 0); /* nobody attaches to us from now on */
  placeholders_recover(request->host);
  if (request->compile(request->compile_context, error) < 0 ||
      publisher_listen(&monitor->publisher, &request->plan->publish, error) < 0)
    return -1;
  report_phase(request->report, PHASE_PLANNED);
  /* All this while the child makes its namespaces and the base; the snapshot before our
   * placeholders are in the project. */
  if (request->watched->count > 0)
    monitor->snapshot = changes_snapshot_begin(request->watched->items, request->watched->count,
                                               &changes_default_limits);
  if (events_start(monitor, error) < 0 ||
      placeholders_create(&monitor->placeholders, request->plan, request->host, request->session_id,
                          error) < 0)
    return -1;
  report_phase(request->report, PHASE_PLACEHOLDERS);
  if (engine_go(&monitor->engine, request->plan, error) < 0)
    return -1;
  /* While the child mounts the places. */
  if (register_session(monitor, error) < 0)
    return -1;
  terminal_join(&monitor->terminal, request->host->state_home);
  if (supervision_start(monitor, error) < 0 || engine_ready(&monitor->engine, error) < 0)
    return -1;
  registry_sweep(request->host); /* what the killed have left, while the command starts */
  return 0;
}
