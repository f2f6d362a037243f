/* Which back end runs a request. A back end that was named must hold what the policy asks for; one
 * that was not named must be as strong as the native engine as well. Nothing is given up in
 * silence: what is lost is in the choice, for the caller to say aloud. */
#include <stdlib.h>

#include "backend/backend.h"
#include "core/cleanup.h"
#include "core/text.h"

static char *join_features(uint64_t features) {
  _cleanup_strv_ struct strv words = {0};
  struct text text = {0};
  backend_describe_features(features, &words);
  STRV_FOREACH (word, &words) {
    if (text.length > 0)
      text_append(&text, "; ");
    text_append(&text, *word);
  }
  return text_steal(&text);
}

static int refuse_unavailable(const struct backend *backend, const struct backend_status *status,
                              struct sb_error *error) {
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "the back end %s is not available: %s", backend->name,
          status->why ? status->why : "unknown reason");
  return sb_hint(error, "%s", status->fix ? status->fix : "see 'sandbox backends'");
}

static int refuse_features(const struct backend *backend, uint64_t missing,
                           struct sb_error *error) {
  _cleanup_free_ char *words = join_features(missing);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "the back end %s cannot enforce: %s", backend->name,
          words);
  return sb_hint(error, "%s",
                 missing == FEATURE(ASK)
                     ? "use --static, or --weaken to run without it"
                     : "change the policy, use another back end (see 'sandbox backends'), or "
                       "accept the loss with --weaken");
}

/* An ability that is not there cannot be given up like a protection: the command would get less
 * than it needs (network, overlays), or write where it must not. */
static uint64_t never_weakened(void) {
  return FEATURE(NETWORK_FULL) | FEATURE(NETWORK_FILTERED) | FEATURE(NETWORK_NONE) |
         FEATURE(NETWORK_DRIVER) | FEATURE(OVERLAY) | FEATURE(PUBLISH) | FEATURE(UNIX_SOCKETS) |
         FEATURE(CONTAINERS) | FEATURE(VIRTUAL_MACHINES);
}

static int refuse_always(const struct backend *backend, uint64_t missing, struct sb_error *error) {
  _cleanup_free_ char *words = join_features(missing);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "the back end %s does not have: %s", backend->name, words);
  return sb_hint(error, "change the policy or use another back end: 'sandbox backends' shows what "
                        "each can do; --weaken is for protections only");
}

int backend_choose_named(const struct backend *backend, const struct host_context *host,
                         const struct policy *policy, const struct backend_needs *needs,
                         struct backend_choice *ret_choice, struct sb_error *error) {
  _cleanup_backend_status_ struct backend_status status = {0};
  backend_probe(backend, host, policy, needs->asked, true, &status);
  if (!status.available && !needs->only_words)
    return refuse_unavailable(backend, &status, error);
  uint64_t missing = needs->asked & ~status.features;
  if (missing & never_weakened())
    return refuse_always(backend, missing & never_weakened(), error);
  if (missing && !needs->weaken)
    return refuse_features(backend, missing, error);
  *ret_choice = (struct backend_choice){
      .backend = backend,
      .lost = missing,
      .weaker = backend_base_features() & ~status.features,
  };
  return 0;
}

/* True if it may be taken without having been named. */
static bool consider(const struct backend *backend, const struct host_context *host,
                     const struct policy *policy, const struct backend_needs *needs,
                     struct backend_choice *ret_choice, struct strv *reasons) {
  _cleanup_backend_status_ struct backend_status status = {0};
  backend_probe(backend, host, policy, needs->asked, false, &status);
  if (!status.available) {
    strv_addf(reasons, "%s: %s", backend->name, status.why ? status.why : "not available");
    return false;
  }
  uint64_t lost = needs->asked & ~status.features;
  uint64_t weaker = backend_base_features() & ~status.features;
  if ((lost & never_weakened()) || ((lost | weaker) && !needs->weaken)) {
    _cleanup_free_ char *words = join_features(lost | weaker);
    strv_addf(reasons, "%s: cannot enforce %s", backend->name, words);
    return false;
  }
  *ret_choice = (struct backend_choice){.backend = backend, .lost = lost, .weaker = weaker};
  return true;
}

static int loss(const struct backend_choice *choice) {
  return __builtin_popcountll(choice->lost) + __builtin_popcountll(choice->weaker);
}

bool backend_choose_other(const struct host_context *host, const struct policy *policy,
                          const struct backend_needs *needs, struct backend_choice *ret_choice,
                          struct strv *ret_reasons) {
  struct backend_choice best = {0};
  for (const struct backend *const *at = backends; *at; at++) {
    struct backend_choice choice;
    if (*at == &native_backend || (*at)->never_chosen ||
        !consider(*at, host, policy, needs, &choice, ret_reasons))
      continue;
    if (!best.backend || loss(&choice) < loss(&best))
      best = choice;
    if (loss(&best) == 0)
      break;
  }
  if (best.backend)
    *ret_choice = best;
  return best.backend != NULL;
}
