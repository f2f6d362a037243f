/* Decides what policy leaves open: policy → cache → ask. Lives in the monitor's loop and never
 * blocks: an answer comes at once or later through a callback. Audits before it answers, stores
 * what was approved for longer than the session. Triggers (gate, relay) know only this file. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/error.h"
#include "gate/access.h"

struct decisions;
struct grant;
struct policy;
struct policy_context;
struct question;
struct strv;

/* ---- for triggers ---- */

/* Called exactly once for every pending ticket that was not withdrawn. `answer` and its strings
 * are valid during the call. Must not call back into decisions_ask. */
typedef void answer_callback(void *context, uint64_t ticket, const struct answered *answer);

/* Decides at once (*ret_answer has an answer other than PENDING; its strings are valid until the
 * next call) or returns PENDING with a ticket (> 0). Identical requests (object and access class)
 * join one question; each has its own ticket. For the network, what the policy says has been looked
 * at before: here is only asked. */
uint64_t decisions_ask(struct decisions *decisions, const struct access_request *request,
                       answer_callback *callback, void *context, struct answered *ret_answer);

/* The asking call was interrupted or its process died: the question goes when nobody waits. */
void decisions_withdraw(struct decisions *decisions, uint64_t ticket);

/* False while every host that no rule names would be denied: nobody is there to be asked, and none
 * was approved before. */
bool decisions_may_allow_hosts(const struct decisions *decisions);

/* What was denied below a tree, for reading or for writing only: to allow the tree does not allow
 * it. */
void decisions_denied_below(const struct decisions *decisions, const char *tree, bool writes,
                            struct strv *ret_paths);

/* Was a part of the tree taken back, and not allowed again since? What is granted as a whole would
 * open it without a question. */
bool decisions_revoked_below(const struct decisions *decisions, const char *tree, bool writes);

/* Is reading it asked about because it was taken back, whatever is allowed around it? */
bool decisions_is_revoked(const struct decisions *decisions, const char *path);

/* May the names in this folder be listed, and was that decided and written down before? Only the
 * names: what is in it is another question. */
bool decisions_list(struct decisions *decisions, const char *path);

/* Does an answer that was kept, and not taken back since, allow writing there? */
bool decisions_keep_writable(struct decisions *decisions, const char *path);

/* A write to a gated place that is refused without a question: audited, counted, summarised. */
void decisions_note_refused(struct decisions *decisions, const struct access_request *request,
                            const char *reason);

/* An access of a kind that cannot wait for an answer is refused: the same. */
void decisions_note_unaskable(struct decisions *decisions, const struct access_request *request);

/* What was allowed could not be mounted or opened, so the access is refused after all: the same. */
void decisions_note_failed(struct decisions *decisions, const struct access_request *request,
                           int errnum);

/* A call is refused, whatever it is about, because too many wait: counted, summarised. */
void decisions_note_flooded(struct decisions *decisions);

/* A process of which not even that can be known: said once. */
enum unread { UNREAD_FILES, UNREAD_SOCKETS };
void decisions_note_unreadable(struct decisions *decisions, const char *name, enum unread what);

/* ---- for the monitor ---- */

/* What decisions have done outside themselves. Each may be NULL. */
struct decision_services {
  /* Writes one line of the audit log; steals `fields`. On failure nothing may take effect. */
  int (*record)(void *context, const char *event, json_t *fields, struct sb_error *error);
  /* Keeps an approval or denial beyond the session. */
  int (*store)(void *context, enum grant_scope scope, const struct grant *grant,
               struct sb_error *error);
  /* Removes what was kept for exactly this path or host. */
  int (*unstore)(void *context, enum grant_scope scope, const char *name, size_t *ret_removed,
                 struct sb_error *error);
  /* Takes a granted tree out of the running session; false if there is none. */
  bool (*revoke)(void *context, const char *path);
  /* One sentence for whoever reads stderr. */
  void (*notice)(void *context, const char *sentence);
  /* Is somebody about to come who can be asked? Called while nobody is there. */
  bool (*expects)(void *context);
  uint64_t (*clock)(void *context); /* monotonic nanoseconds */
  void *context;
};

struct decisions_config {
  struct policy *policy;                /* outlives the decisions; resolved when first needed */
  const struct policy_context *context; /* outlives them, too */
  /* Objects that are never shown, besides what rules hide by name: our own control sockets, files
   * behind hidden names. Canonical; may be NULL. */
  const struct strv *hidden;
  const char *session_id;
  bool learns; /* nobody is asked: reads are allowed and recorded, the rest is denied */
  bool waits;  /* questions wait for their time even if nobody is there to answer */
  struct decision_services services;
};

struct decisions *decisions_new(const struct decisions_config *config);

/* Everything that still waits is denied. NULL is fine. */
void decisions_free(struct decisions *decisions);

/* Denies what nobody answered in time and says what was not asked. */
void decisions_tick(struct decisions *decisions);

/* When the next tick is due, on the services' clock; 0: not at all. */
uint64_t decisions_next_tick(const struct decisions *decisions);

struct decision_counts {
  uint64_t allowed, denied; /* denied: by whomever, for whatever reason */
  uint64_t asked;           /* questions that were put to somebody */
  uint64_t timeouts, flooded, refused_writes;
  uint64_t pending; /* questions waiting now */
};
struct decision_counts decisions_counts(const struct decisions *decisions);
json_t *decisions_counts_json(const struct decisions *decisions);

/* What was denied so far, as in the result's `denials`. */
json_t *decisions_denials_json(const struct decisions *decisions);

/* ---- for supervisors: whoever is told about questions and may answer them ---- */

struct supervisor {
  bool observes; /* is told, but nobody waits for it */
  void (*asked)(void *context, const struct question *question);
  /* No longer waiting. `how` is "allowed", "denied", "withdrawn", "timeout" …; `by` may be NULL. */
  void (*settled)(void *context, const struct question *question, const char *how, const char *by);
  void (*audited)(void *context, const char *event, const json_t *fields);
  void *context;
};

/* The supervisor must stay where it is until it is removed. It is told about what waits already. */
void decisions_add_supervisor(struct decisions *decisions, struct supervisor *supervisor);

/* When the last one that answers is gone, what waits is denied once. */
void decisions_remove_supervisor(struct decisions *decisions, struct supervisor *supervisor);

struct reply {
  bool allow;
  enum grant_scope scope;
  const char *tree; /* a folder above the object, or NULL for the object */
  bool rest;        /* deny: and everything else in this session */
  const char *by;   /* who answers */
};

/* The first answer wins; later ones, unknown ids and answers that may not be given are errors and
 * change nothing. */
int decisions_answer(struct decisions *decisions, const char *id, const struct reply *reply,
                     struct sb_error *error);

/* Oldest first; NULL past the last. Valid until the next call that changes something. */
const struct question *decisions_pending(const struct decisions *decisions, size_t index);

struct revocation {
  const char *path; /* one of them: a path … */
  const char *host; /* … or a host */
  bool stored;      /* also from the stores of project and user */
  bool granted;     /* something that was stored allowed the host until now */
  const char *by;
};

/* Takes approvals and denials for exactly this path or host back. New accesses are asked about. */
int decisions_revoke(struct decisions *decisions, const struct revocation *revocation,
                     size_t *ret_stored, struct sb_error *error);

/* Stores what was approved or denied for this session in a longer scope. */
int decisions_save(struct decisions *decisions, enum grant_scope scope, const char *by,
                   size_t *ret_count, struct sb_error *error);
