/* Between the files of the grant path: gate.c (questions, the monitor's loop), gate-known.c (what
 * is known without asking), gate-grant.c (from a decision to a mount), gate-jobs.c (work for the
 * broker) and gate-revoke.c (taking away again). */
#pragma once

#include "gate/waiting.h"

/* ---- gate-known.c ---- */

/* By itself, or by a folder above it. */
bool gate_is_hidden(const struct gate *gate, const char *path);

/* What policy allows when something first touches it, as an answer that nobody had to give. */
bool gate_find_touched(struct gate *gate, const char *path, struct answered *ret_answer);

/* ---- touched.c ---- */

/* Finds out what they are, once. */
void touched_resolve(struct gate *gate);

/* ---- gate-grant.c ---- */

/* Somebody allowed it for the session: the call goes on with a mount, or is served without. */
void gate_grant(struct gate *gate, struct waiting *waiting, const struct answered *answer);

/* ---- gate-jobs.c ---- */

struct grant_job *job_new(enum broker_kind kind, const char *path, unsigned flags);
void job_free(struct grant_job *job);
void job_join(struct grant_job *job, struct waiting *waiting);

/* It holds a lock that the mounting needs. If nothing is mounted in the end, that is noted. */
void job_send_away(struct grant_job *job, struct waiting *waiting);

/* Takes the job; it may be over before this returns. */
void job_add(struct gate *gate, struct grant_job *job);

/* Starts the broker, if there is none. 0 or a negative errno. */
int jobs_need_broker(struct gate *gate);
void jobs_read_broker(struct gate *gate);

/* Is the broker at work? Then it must not wait for ever. */
bool jobs_are_under_way(const struct gate *gate);
void jobs_mind_locks(struct gate *gate);

/* ---- gate-revoke.c ---- */

/* Whoever waits for it is refused when it is gone. */
void gate_take_back(struct gate *gate, const char *granted, struct waiting *refused);
