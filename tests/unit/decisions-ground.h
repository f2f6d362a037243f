/* What every test of decisions needs: a policy, services that note what they were asked to do, a
 * person who answers, and a clock that stands still. */
#pragma once

#include "unit.h"

#include "core/strv.h"
#include "session/decisions.h"
#include "session/questions.h"

#define SECOND (1000ull * 1000 * 1000)

extern const struct policy_context place;

/* The control sockets of sessions, and a secret with a second name; see test_hidden_objects. */
extern struct strv hidden;

extern bool learning; /* for the next ground */

struct ground {
  struct policy *policy;
  struct decisions *decisions;
  struct supervisor person;
  bool person_is_there;
  uint64_t now;
  /* What the services saw. */
  json_t *records;
  bool audit_fails, store_fails, unstore_fails;
  const char *audit_fails_for; /* only lines of this event */
  struct strv notices, stored, unstored, revoked, settled;
  bool expected; /* is somebody who can be asked */
  bool granted;  /* what the gate says to a revocation */
  /* What the trigger was told. */
  struct answered answers[128]; /* by ticket; the trees are copies */
  size_t answer_count;
  char *asked; /* id of the newest question */
  size_t asked_count;
  size_t records_when_answered;
};

/* With this policy, or the default. Without a person; `waits`: until there is one. */
struct ground *lay(const char *yaml, bool waits);
struct ground *lay_with_person(const char *yaml);

void cleanup_ground(struct ground **ground);
#define _ground_ __attribute__((cleanup(cleanup_ground)))

struct access_request file(const char *path, enum want want);

/* Asks; the answer at once, or PENDING with the ticket. */
enum answer ask_for(struct ground *ground, const struct access_request *request,
                    uint64_t *ret_ticket, struct answered *ret_answer);
uint64_t ask_file(struct ground *ground, const char *path, enum want want); /* it is pending */
enum answer answer_at_once(struct ground *ground, const char *path, enum want want);

/* The person's reply to the newest question. */
int reply_with(struct ground *ground, bool allow, enum grant_scope scope, const char *tree);

/* Of what was recorded. */
const json_t *last_record(const struct ground *ground);
const char *field(const json_t *object, const char *key);
