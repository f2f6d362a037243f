/* Back ends other than the native engine, for people; see run-backend.h. */
#include "cli/run-backend.h"

#include <string.h>

#include "core/cleanup.h"
#include "core/text.h"

bool run_is_elsewhere(const char *backend) {
  return strcmp(backend, "auto") != 0 && strcmp(backend, native_backend.name) != 0;
}

static char *join(uint64_t features) {
  _cleanup_strv_ struct strv words = {0};
  struct text text = {0};
  backend_describe_features(features, &words);
  STRV_FOREACH (word, &words)
    text_appendf(&text, "%s%s", text.length > 0 ? "; " : "", *word);
  return text_steal(&text);
}

/* One line for what takes the native engine's place, with all that is lost by it. */
static void warn_fallback(const struct run_elsewhere *elsewhere,
                          const struct backend_choice *choice) {
  uint64_t lost = choice->lost | choice->weaker;
  _cleanup_free_ char *words = join(lost);
  if (lost)
    cli_warn("WEAKENED: the native engine is not available (%s); running with %s, which does not "
             "enforce: %s",
             elsewhere->instead, choice->backend->name, words);
  else if (!elsewhere->quiet)
    cli_warn("running with %s, since the native engine is not available: %s", choice->backend->name,
             elsewhere->instead);
}

/* What the policy asked for and does not get is said even to those who want to hear nothing. */
static void warn_losses(const struct run_elsewhere *elsewhere,
                        const struct backend_choice *choice) {
  const char *name = choice->backend->name;
  if (elsewhere->instead) {
    warn_fallback(elsewhere, choice);
    return;
  }
  if (choice->lost) {
    _cleanup_free_ char *words = join(choice->lost);
    cli_warn("WEAKENED: %s does not enforce: %s", name, words);
  }
  if (choice->weaker && !elsewhere->quiet) {
    _cleanup_free_ char *words = join(choice->weaker);
    cli_warn("%s has less than the native engine; missing: %s", name, words);
  }
}

static int refuse_all(const struct strv *reasons, struct sb_error *error) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (reason, reasons)
    text_appendf(&text, "%s%s", text.length > 0 ? ". " : "", *reason);
  return sb_fail(error, SB_CODE_UNSUPPORTED, 0, "no other back end can take over: %s",
                 text_string(&text));
}

int run_choose_backend(struct run_elsewhere *elsewhere, const struct backend **ret_backend,
                       struct sb_error *error) {
  const struct backend_request *request = &elsewhere->request;
  struct backend_needs needs = {
      .asked = elsewhere->asked | backend_plan_features(request->plan),
      .weaken = request->weaken,
      .only_words = elsewhere->only_words,
  };
  struct backend_choice choice;
  _cleanup_strv_ struct strv reasons = {0};
  if (elsewhere->named) {
    if (backend_choose_named(elsewhere->named, request->host, request->policy, &needs, &choice,
                             error) < 0)
      return -1;
  } else if (!backend_choose_other(request->host, request->policy, &needs, &choice, &reasons)) {
    return refuse_all(&reasons, error);
  }
  elsewhere->request.lost = choice.lost;
  warn_losses(elsewhere, &choice);
  *ret_backend = choice.backend;
  return 0;
}
