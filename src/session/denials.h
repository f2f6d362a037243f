/* What was denied in a session, each object once, for the result and the report; and the sentence
 * that says how to allow it. Bounded: a workload can try as many names as it likes. */
#pragma once

#include <jansson.h>

#include "core/strv.h"
#include "gate/access.h"
#include "policy/policy.h"

enum denial_reason {
  DENIAL_HIDDEN,    /* policy hides it */
  DENIAL_POLICY,    /* policy denies it */
  DENIAL_ANSWERED,  /* somebody said no, now or earlier */
  DENIAL_REST,      /* "deny everything else" */
  DENIAL_TIMEOUT,   /* nobody answered in time */
  DENIAL_CLOSED,    /* whoever was asked has left */
  DENIAL_NOBODY,    /* nobody is there to be asked */
  DENIAL_FLOOD,     /* too many questions at once */
  DENIAL_READ_ONLY, /* a write to what is only readable */
  DENIAL_AUDIT,     /* the decision could not be written down */
  DENIAL_UNASKABLE, /* this call cannot wait for an answer */
  DENIAL_FAILED,    /* it was allowed, and could not be had */
};
const char *denial_reason_name(enum denial_reason reason);

struct denial {
  enum access_subject subject;
  enum want want;
  enum denial_reason reason;
  char *path, *host;
  uint16_t port;
  char *exe;
  uint64_t count;
};

struct denials {
  struct denial *items;
  size_t count;
  uint64_t left_out; /* of objects that are not in the list */
};

#define DENIALS_LIMIT 256

/* Counts it. Returns true if the object is new and in the list. */
bool denials_add(struct denials *denials, const struct access_request *request,
                 enum denial_reason reason, const char *exe);
void denials_clear(struct denials *denials);

/* The array of the result's `denials`. */
json_t *denials_to_json(const struct policy_context *context, const struct denials *denials);

/* "/usr/bin/cat (pid 7) may not read /opt/sdk: ...; to allow it: ...". New string. */
char *denial_sentence(const struct policy_context *context, const struct access_request *request,
                      enum denial_reason reason, const char *exe);
