/* Decides what policy leaves open: policy → cache → ask. Lives in the monitor's loop and never
 * blocks: an answer comes at once or later through a callback. Audits before it answers, stores
 * what was approved for longer than the session. Triggers (gate, relay) know only this file. */
#pragma once

#include "gate/access.h"

struct decisions;

/* Called exactly once for every pending ticket that was not withdrawn. `answer` and its strings
 * are valid during the call. Must not call back into decisions_ask. */
typedef void answer_callback(void *context, uint64_t ticket, const struct answered *answer);

/* Decides at once (*ret_answer has an answer other than PENDING; its strings are valid until the
 * next call) or returns PENDING with a ticket (> 0). Identical requests (object and access class)
 * join one question; each has its own ticket. */
uint64_t decisions_ask(struct decisions *decisions, const struct access_request *request,
                       answer_callback *callback, void *context, struct answered *ret_answer);

/* The asking call was interrupted or its process died: the question goes when nobody waits. */
void decisions_withdraw(struct decisions *decisions, uint64_t ticket);

/* A write to a gated place that is refused without a question: audited, counted, summarised. */
void decisions_note_refused(struct decisions *decisions, const struct access_request *request,
                            const char *reason);
