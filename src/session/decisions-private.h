/* Private to the parts of decisions: judging (decisions-judge.c), asking (decisions.c) and
 * answering (decisions-answer.c). */
#pragma once

#include "core/strv.h"
#include "policy/policy.h"
#include "session/approvals.h"
#include "session/bucket.h"
#include "session/decisions.h"
#include "session/denials.h"
#include "session/questions.h"

/* What was decided about a request, by whom and why. */
struct outcome {
  enum answer answer;
  enum grant_scope scope;
  const char *tree;
  bool writable, names;
  const char *by;            /* "policy", "session", a person */
  enum denial_reason reason; /* if denied */
  const struct rule *rule;   /* if policy decided */
  const char *secret;        /* PENDING: ask with this warning */
};

#define REMEMBERED_IDS 64

struct decisions {
  struct decisions_config config;
  struct question **questions; /* oldest first */
  size_t count;
  struct approvals approvals;
  struct strv listed;   /* folders whose names are allowed, and the log says so */
  struct strv unlisted; /* those of them that a kept answer allowed, and that were taken back */
  struct denials denials;
  struct decision_counts counts;
  struct supervisor **supervisors;
  size_t supervisor_count;
  uint64_t last_ticket;
  bool deny_rest;
  bool in_vain; /* nobody came who was expected: not waited for again */
  struct bucket asking, auditing, noticing;
  uint64_t flooded, unaudited, unnoticed; /* not yet summarised */
  uint64_t summary_ns;                    /* when they are; 0: nothing to say */
  /* Ids that were settled lately and how, so that a second answer is told. */
  struct {
    char id[QUESTION_ID_SIZE];
    const char *how;
  } settled[REMEMBERED_IDS];
  size_t next_settled;
  char *tree;          /* of the last answer */
  char unreadable[32]; /* the last program of which that was said */
};

struct outcome outcome_denied(enum denial_reason reason, const char *by);

/* Why a file that is to be asked about is a secret although it is not called so, or NULL: it is one
 * under another name that lies beside it. */
const char *decisions_second_name(const struct decisions *decisions,
                                  const struct access_request *request);

/* By policy, then by what was answered before; PENDING if neither decides. */
struct outcome decisions_judge(struct decisions *decisions, const struct access_request *request);

/* From now on the names in this folder are listed without another line in the log. */
void decisions_note_listed(struct decisions *decisions, const char *path);

/* Is somebody there who can be asked, or do questions wait even without? */
bool decisions_are_attended(const struct decisions *decisions);

/* When a question that somebody has seen is over. */
uint64_t decisions_deadline(const struct decisions *decisions, const struct question *question);

/* Writes the audit line and tells observers. Steals fields. */
int decisions_record(struct decisions *decisions, const char *event, json_t *fields,
                     struct sb_error *error);

/* Answers everybody who waits and forgets the question: audits, counts, calls back, tells. Returns
 * -1 with the error if it could not be audited; then an approval has become a denial. */
int decisions_settle(struct decisions *decisions, struct question *question,
                     const struct outcome *outcome, struct sb_error *error);

/* Settles what the approvals, as they are now, decide. */
void decisions_settle_covered(struct decisions *decisions);

/* Denies everything that waits. */
void decisions_deny_all(struct decisions *decisions, enum denial_reason reason, const char *by);
