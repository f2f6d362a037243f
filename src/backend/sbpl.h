/* The Seatbelt profile of a policy, in Apple's profile language. Pure: nothing is looked up, so the
 * same profile comes out on every machine. In a profile the last rule that matches decides; in a
 * policy the most specific one does. The order in which rules are written makes the two agree. */
#pragma once

#include "core/error.h"
#include "core/strv.h"
#include "core/text.h"
#include "plan/plan.h"
#include "policy/policy.h"

struct sbpl_request {
  const struct policy *policy;
  const struct plan *plan; /* protected objects that only a look at the disk finds; may be NULL */
  const char *project, *temporary; /* canonical */
  const char *home;                /* canonical; NULL if there is none */
  const char *own_folder;          /* ours, never visible inside; may be NULL */
};

struct sbpl {
  struct text profile;
  struct strv parameters; /* NAME=value, for -D */
};

/* Fails for what a profile cannot say. */
int sbpl_generate(const struct sbpl_request *request, struct sbpl *ret, struct sb_error *error);
void sbpl_clear(struct sbpl *sbpl);
#define _cleanup_sbpl_ __attribute__((cleanup(sbpl_clear)))

/* A proxy on this machine ("http://127.0.0.1:8080", "localhost:1080"): its port; 0 if it is none.
 */
unsigned sbpl_proxy_port(const char *proxy);

/* TARGET_DIR, TMP_DIR, HOME_DIR and CACHE_DIR: what every profile may use, a custom one too. */
void sbpl_add_parameters(const struct sbpl_request *request, struct strv *parameters);
