/* Work for the broker: one job after the other, and a broker that may die meanwhile. A call that
 * waits for a job is told what became of it exactly once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/pages.h"
#include "gate/gate-private.h"
#include "gate/once.h"
#include "gate/replaced.h"
#include "plan/distant.h"

#define ATTEMPTS    3 /* for a job whose broker dies */
#define PATIENCE_NS (1000ull * 1000 * 1000)

struct grant_job *job_new(enum broker_kind kind, const char *path, unsigned flags) {
  struct grant_job *job = xcalloc(1, sizeof *job);
  job->path = xstrdup(path);
  job->request = (struct broker_request){
      .kind = kind, .flags = flags, .path = job->path, .kept = &job->kept, .masks = &job->masks};
  return job;
}

static void job_forget_away(struct grant_job *job) {
  while (job->away_count > 0)
    free((char *)job->away[--job->away_count].path);
  free(steal_pointer(job->away));
}

void job_free(struct grant_job *job) {
  strv_clear(&job->kept);
  strv_clear(&job->masks);
  job_forget_away(job);
  free(job->path);
  free(job);
}

void job_join(struct grant_job *job, struct waiting *waiting) {
  waiting->job = job;
  waiting->next_in_job = job->waiting;
  job->waiting = waiting;
}

void job_send_away(struct grant_job *job, struct waiting *waiting) {
  job->away = xreallocarray(job->away, job->away_count + 1, sizeof *job->away);
  job->away[job->away_count] = waiting->request;
  job->away[job->away_count++].path = xstrdup(waiting->request.path);
  waiting->job = NULL;
  waiting->done(waiting, OUTCOME_RETRY);
}

/* ---- the end of a job ---- */

static void note_mount(struct gate *gate, const struct grant_job *job) {
  strv_add(&gate->mounts, job->path);
  strv_add(&gate->granted, job->path);
  if (job->request.flags & BROKER_WRITABLE)
    strv_add(&gate->granted_writable, job->path);
}

static void forget_dropped(struct gate *gate, const struct grant_job *job) {
  struct strv *lists[] = {&gate->mounts, &gate->granted, &gate->granted_writable};
  STRV_FOREACH (kept, &job->kept) {
    for (size_t i = 0; (*kept)[0] == BROKER_DROPS && i < ARRAY_SIZE(lists); i++) {
      while (strv_remove(lists[i], *kept + 1))
        ;
    }
  }
}

static void note_grant(struct gate *gate, const struct grant_job *job) {
  bool writable = job->request.flags & BROKER_WRITABLE;
  forget_dropped(gate, job);
  note_mount(gate, job);
  gate->config.services.granted(gate->config.services.context, job->path, writable);
  replaced_watch(gate, job->path);
}

/* There may be nothing any more that could be taken. */
static bool is_left_open(const struct grant_job *job, int result) {
  return job->request.kind == BROKER_REVOKE && result < 0 && result != -ENOENT && result != -EINVAL;
}

static void tell_waiting(struct grant_job *job, enum outcome outcome, int *fd) {
  struct waiting *next;
  for (struct waiting *waiting = job->waiting; waiting; waiting = next) {
    next = waiting->next_in_job;
    waiting->job = NULL;
    if (fd && *fd >= 0)
      waiting->opened = steal_fd(fd);
    waiting->done(waiting, outcome);
  }
}

/* It brings in what somebody, or a rule, has allowed. */
static bool is_of_answer(const struct grant_job *job) {
  return job->request.kind == BROKER_GRANT || job->request.kind == BROKER_OPEN ||
         job->request.kind == BROKER_LIST;
}

/* They walk for the second time, and the kernel lets nobody walk a third time. */
static void note_away(const struct gate *gate, struct grant_job *job, int result) {
  for (size_t i = 0; i < job->away_count; i++)
    decisions_note_failed(gate->config.decisions, &job->away[i], -result);
  job_forget_away(job);
}

/* Whoever said yes would not know why the command is told no all the same. */
static void note_failure(const struct gate *gate, struct grant_job *job, int result) {
  if (job->revoked)
    return;
  for (const struct waiting *waiting = job->waiting; waiting; waiting = waiting->next_in_job)
    decisions_note_failed(gate->config.decisions, &waiting->request, -result);
  note_away(gate, job, result);
}

static void finish_job(struct gate *gate, struct grant_job *job, int result, int *fd) {
  bool mounted = job->request.kind == BROKER_GRANT && result == 0;
  if (mounted) {
    note_grant(gate, job);
    if (job->revoked) /* nobody goes on before it is gone again */
      gate_take_back(gate, job->path, steal_pointer(job->waiting));
  }
  if (job->request.kind == BROKER_GRANT)
    gate->trigger->granted(gate, job->path, mounted);
  if (is_left_open(job, result))
    gate->config.services.held(gate->config.services.context, job->path);
  if (result < 0 && is_of_answer(job))
    note_failure(gate, job, result);
  tell_waiting(job, result == 0 && !job->revoked ? OUTCOME_RETRY : OUTCOME_REFUSE, fd);
  job_free(job);
}

/* ---- sending ---- */

int jobs_need_broker(struct gate *gate) {
  if (gate->broker.channel >= 0)
    return 0;
  _cleanup_error_ struct sb_error error = {0};
  const struct broker_input input = {.user_ns = gate->config.user_ns,
                                     .mount_ns = gate->config.mount_ns,
                                     .gate = gate->config.whole};
  if (broker_start(&gate->broker, &input, &error) < 0)
    return -EAGAIN;
  pages_make_own(); /* so that the answer finds its way without fourteen faults */
  return 0;
}

/* To another one, if it turns out to be dead. */
static int send_job(struct gate *gate, const struct grant_job *job) {
  int result = -EPIPE;
  for (int attempt = 0; attempt < 2 && result == -EPIPE; attempt++) {
    if (attempt > 0)
      broker_end(&gate->broker);
    result = jobs_need_broker(gate);
    if (result == 0)
      result = broker_send(&gate->broker, &job->request);
  }
  return result;
}

static void send_next(struct gate *gate) {
  while (gate->jobs && !gate->jobs->sent) {
    struct grant_job *job = gate->jobs;
    int result = send_job(gate, job);
    if (result == 0) {
      job->sent = true;
      job->since_ns = monotonic_ns();
      return;
    }
    gate->jobs = job->next;
    finish_job(gate, job, result, NULL);
  }
}

void job_add(struct gate *gate, struct grant_job *job) {
  struct grant_job **last = &gate->jobs;
  while (*last)
    last = &(*last)->next;
  *last = job;
  send_next(gate);
}

/* ---- what the broker says ---- */

/* What was to be taken away must be, what follows the host harms nobody, and what was allowed is
 * brought in by another broker: but not what the first one waited for in vain. */
static bool is_repeated(struct grant_job *job, int result) {
  bool wanted = !is_of_answer(job) || (result == -EIO && !job->revoked);
  return wanted && (!job->sent || ++job->attempts < ATTEMPTS);
}

/* Was it mounted before the broker died? Nobody knows. What is there without our knowledge could
 * never be revoked: it is taken back, with what it may have covered, before anybody goes on. */
static void undo_grant(struct gate *gate, const struct grant_job *job, struct waiting *refused) {
  note_mount(gate, job);
  gate_take_back(gate, job->path, refused);
  while (strv_contains(&gate->granted, job->path))
    gate_take_back(gate, job->path, NULL);
}

/* Who was sent away for it waits on, in a look-up. */
static void repeat_job(struct gate *gate, struct grant_job *job) {
  if (job->sent && job->request.kind == BROKER_GRANT)
    undo_grant(gate, job, NULL);
  job->sent = job->ready = false;
  job_add(gate, job);
}

static void give_up_job(struct gate *gate, struct grant_job *job, int result) {
  if (job->sent && job->request.kind == BROKER_GRANT) {
    note_failure(gate, job, result);
    undo_grant(gate, job, steal_pointer(job->waiting));
  }
  finish_job(gate, job, result, NULL);
}

/* What cannot be granted stays closed; the next question starts another broker. One that has taken
 * something back is replaced at once: it kept it covered. */
static void fail_all(struct gate *gate, int result) {
  struct grant_job *jobs = gate->jobs;
  bool looks = gate->taken_back;
  broker_end(&gate->broker);
  gate->jobs = NULL;
  for (struct grant_job *job = jobs, *next; job; job = next) {
    next = job->next;
    looks &= job->request.kind != BROKER_LOOK;
    job->next = NULL;
    if (is_repeated(job, result))
      repeat_job(gate, job);
    else
      give_up_job(gate, job, result);
  }
  if (looks)
    job_add(gate, job_new(BROKER_LOOK, "/", 0));
}

static struct grant_job *find_announced(const struct gate *gate) {
  struct grant_job *job = gate->jobs;
  while (job && !job->announced)
    job = job->next;
  return job;
}

/* Calls that hold a lock on the mount point let go of it now, whatever they wait for; on their
 * second walk they wait for the mount in their look-up, which holds none. */
static void announce(struct gate *gate, struct grant_job *job) {
  job->ready = job->announced = true;
  job->since_ns = monotonic_ns();
  for (struct waiting **place = &job->waiting; *place;) {
    struct waiting *waiting = *place;
    if (!waiting->holds_lock) {
      place = &waiting->next_in_job;
      continue;
    }
    *place = waiting->next_in_job;
    job_send_away(job, waiting);
  }
  if (gate->trigger->mounting)
    gate->trigger->mounting(gate, job->path);
}

/* A name that the kernel does not remember is looked up with its folder locked, and what leads to a
 * mount point it remembers: only who walks to a new one may have to wait. So may who walks where a
 * broker has died, for those who wait in their look-ups since it was ready. */
static void clear_way(struct gate *gate, struct grant_job *job) {
  struct grant_job *announced = find_announced(gate);
  job->since_ns = monotonic_ns(); /* who comes back is not sent away at once: it would fail */
  if (!gate->trigger->walking || !(announced || job->request.kind == BROKER_GRANT))
    return;
  if (announced)
    note_away(gate, announced, -ETIMEDOUT);
  gate->trigger->walking(gate, job->path);
}

/* The broker waits for a lock that somebody holds who waits for us, or for a server: everything
 * else would wait behind it, revocations too. */
void jobs_mind_locks(struct gate *gate) {
  struct grant_job *job = gate->jobs;
  if (!job || !job->sent || monotonic_ns() <= job->since_ns + PATIENCE_NS)
    return;
  if (distant_answers(job->path) < 0)
    fail_all(gate, -ETIMEDOUT);
  else if (!job->ready)
    clear_way(gate, job);
  else if (gate->trigger->mounting)
    gate->trigger->mounting(gate, NULL); /* a lock that we do not know of */
}

bool jobs_are_under_way(const struct gate *gate) {
  return gate->jobs && gate->jobs->sent;
}

void jobs_read_broker(struct gate *gate) {
  int result;
  _cleanup_close_ int fd = -1;
  int got = broker_receive(&gate->broker, &result, &fd);
  if (got < 0) {
    fail_all(gate, -EIO);
    return;
  }
  struct grant_job *job = gate->jobs;
  if (got == 0 || !job || !job->sent)
    return;
  if (result == BROKER_READY) {
    announce(gate, job);
    return;
  }
  gate->jobs = job->next;
  finish_job(gate, job, result, &fd);
  send_next(gate);
}

/* ---- what is under way ---- */

bool gate_is_granting(const struct gate *gate, const char *path) {
  return gate->jobs && gate->jobs->sent && strcmp(gate->jobs->path, path) == 0;
}

const char *gate_mounting(const struct gate *gate) {
  const struct grant_job *job = find_announced(gate);
  return job ? job->path : NULL;
}

bool gate_is_revoking(const struct gate *gate) {
  for (const struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->revoked)
      return true;
  }
  return false;
}

/* ---- jobs that need no decision ---- */

void gate_repeat(struct gate *gate, struct waiting *waiting, const char *path, const char *target) {
  struct grant_job *job = job_new(BROKER_REPEAT, path, 0);
  if (target)
    strv_add(&job->masks, target);
  if (waiting)
    job_join(job, waiting);
  if (target && waiting)
    replaced_watch(gate, path);
  job_add(gate, job);
}

void gate_forget_link(struct gate *gate, const char *path, const char *target) {
  struct grant_job *job = job_new(BROKER_FORGET, path, 0);
  strv_add(&job->masks, target);
  job_add(gate, job);
}

/* What the session has of its own, or has been granted, stays as it is. */
static bool is_native(const struct gate *gate, const char *path) {
  const struct plan *plan = gate->config.plan;
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind >= OPERATION_LINK && strcmp(plan->operations[i].path, path) == 0)
      return true;
  }
  return gate_leads_to_mount(gate, path);
}

void gate_follow(struct gate *gate, const char *path) {
  if (gate->config.whole < 0 || is_native(gate, path))
    return;
  for (const struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->request.kind == BROKER_FOLLOW && !job->sent && strcmp(job->path, path) == 0)
      return;
  }
  job_add(gate, job_new(BROKER_FOLLOW, path, 0));
}

void gate_open(struct gate *gate, struct waiting *waiting) {
  enum broker_kind kind = waiting->request.folder ? BROKER_LIST : BROKER_OPEN;
  struct grant_job *job = job_new(kind, waiting->request.path, 0);
  int result = distant_reads(job->path);
  job->request.device = waiting->request.device;
  job->request.inode = waiting->request.inode;
  job_join(job, waiting);
  if (result < 0)
    finish_job(gate, job, result, NULL);
  else
    job_add(gate, job);
}
