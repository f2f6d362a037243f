/* The gate in the monitor's loop, and the way of a question: a trigger asks, somebody decides, and
 * the call is granted (gate-grant.c), served or refused. See gate.h and waiting.h. */
#include "gate/gate.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/file.h"
#include "gate/gate-private.h"
#include "gate/replaced.h"

/* ---- questions ---- */

static void settle(struct gate *gate, struct waiting *waiting, const struct answered *answer) {
  waiting->lasts = answer->names;
  if (answer->answer != ANSWER_ALLOW)
    waiting->done(waiting, OUTCOME_REFUSE);
  else if (answer->scope == SCOPE_ONCE || answer->names)
    waiting->done(waiting, OUTCOME_SERVE);
  else
    gate_grant(gate, waiting, answer);
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answer) {
  struct waiting *waiting = context;
  (void)ticket;
  waiting->ticket = 0;
  settle(waiting->gate, waiting, answer);
}

void gate_ask(struct gate *gate, struct waiting *waiting) {
  struct answered answer = {0};
  waiting->gate = gate;
  if (gate_find_touched(gate, waiting->request.path, &answer)) {
    settle(gate, waiting, &answer);
    return;
  }
  if (!waiting->needs_mount && gate_is_served(gate, &waiting->request)) {
    waiting->lasts = true;
    waiting->done(waiting, OUTCOME_SERVE);
    return;
  }
  waiting->ticket =
      decisions_ask(gate->config.decisions, &waiting->request, on_answer, waiting, &answer);
  if (answer.answer != ANSWER_PENDING) {
    waiting->ticket = 0;
    settle(gate, waiting, &answer);
  } else
    (void)jobs_need_broker(gate); /* while the person thinks */
}

void gate_withdraw(struct gate *gate, struct waiting *waiting) {
  if (waiting->ticket)
    decisions_withdraw(gate->config.decisions, waiting->ticket);
  waiting->ticket = 0;
  if (!waiting->job)
    return;
  struct waiting **place = &waiting->job->waiting;
  while (*place != waiting)
    place = &(*place)->next_in_job;
  *place = waiting->next_in_job;
  waiting->job = NULL;
}

/* ---- the monitor's side ---- */

static void collect_mounts(const struct plan *plan, struct strv *ret_mounts) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    enum operation_kind kind = plan->operations[i].kind;
    if (kind >= OPERATION_PRIVATE && kind <= OPERATION_OVERLAY)
      strv_add(ret_mounts, plan->operations[i].path);
  }
}

int gate_new(const struct gate_config *config, struct gate **ret_gate, struct sb_error *error) {
  struct gate *gate = xcalloc(1, sizeof *gate);
  *gate = (struct gate){.config = *config, .events_fd = -1, .broker = BROKER_NONE, .changes = -1};
  gate->trigger = config->plan->gate == GATE_NOTIFY ? &notify_trigger : &fuse_trigger;
  gate->watched_fd = config->trigger;
  collect_mounts(config->plan, &gate->mounts);
  if (gate->trigger->open(gate, config->trigger, error) < 0) {
    gate_free(gate);
    return -1;
  }
  *ret_gate = gate;
  return 0;
}

void gate_free(struct gate *gate) {
  if (!gate)
    return;
  gate->trigger->close(gate); /* first: it lets go of whoever waits, the broker included */
  broker_end(&gate->broker);
  for (struct grant_job *job = gate->jobs, *next; job; job = next) {
    next = job->next;
    job_free(job);
  }
  replaced_clear(gate);
  close(gate->config.mount_ns);
  close(gate->config.user_ns);
  if (gate->config.pid_ns >= 0)
    close(gate->config.pid_ns);
  if (gate->config.whole >= 0)
    fd_abandon(gate->config.whole);
  if (gate->config.root >= 0)
    close(gate->config.root);
  strv_clear(&gate->mounts);
  strv_clear(&gate->granted);
  strv_clear(&gate->granted_writable);
  strv_clear(&gate->served);
  strv_clear(&gate->touched[0]);
  strv_clear(&gate->touched[1]);
  strv_clear(&gate->made);
  strv_clear(&gate->too_large);
  gate_forget_asked(gate);
  free(gate);
}

enum { WATCH_TRIGGER, WATCH_EVENTS, WATCH_BROKER, WATCH_CHANGES };

void gate_watch(const struct gate *gate, struct pollfd ret_watched[GATE_WATCH_COUNT]) {
  ret_watched[WATCH_TRIGGER] =
      (struct pollfd){.fd = gate ? gate->watched_fd : -1, .events = POLLIN};
  ret_watched[WATCH_EVENTS] = (struct pollfd){.fd = gate ? gate->events_fd : -1, .events = POLLIN};
  ret_watched[WATCH_BROKER] =
      (struct pollfd){.fd = gate ? gate->broker.channel : -1, .events = POLLIN};
  ret_watched[WATCH_CHANGES] = (struct pollfd){.fd = gate ? gate->changes : -1, .events = POLLIN};
}

void gate_serve(struct gate *gate, const struct pollfd watched[GATE_WATCH_COUNT]) {
  if (!gate)
    return;
  if (watched[WATCH_BROKER].revents && watched[WATCH_BROKER].fd == gate->broker.channel)
    jobs_read_broker(gate);
  if (watched[WATCH_TRIGGER].revents)
    gate->trigger->serve(gate, watched[WATCH_TRIGGER].revents);
  if (watched[WATCH_EVENTS].revents)
    gate->trigger->serve_events(gate);
  if (watched[WATCH_CHANGES].revents)
    replaced_read(gate);
  if (gate->signalled && gate->trigger->look)
    gate->trigger->look(gate);
  jobs_mind_locks(gate);
}

/* Nothing is wanted but the device: for everything else the kernel would ask us. */
dev_t gate_device(const struct gate *gate) {
  struct statx seen;
  if (!gate || gate->config.whole < 0 ||
      statx(gate->config.whole, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &seen) < 0)
    return 0;
  return makedev(seen.stx_dev_major, seen.stx_dev_minor);
}

bool gate_wants_look(const struct gate *gate) {
  return gate && (gate->signalled || jobs_are_under_way(gate));
}
