/* Back ends other than the native engine, for people; see run-backend.h. */
#include "cli/run-backend.h"

#include <string.h>
#include <unistd.h>

#include "cli/run-changes.h"
#include "cli/run-options.h"
#include "cli/run.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"
#include "overlay/store.h"

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

/* ---- planning and running ---- */

struct run_elsewhere run_describe_elsewhere(struct run *run, const struct backend *named,
                                            const char *scratch) {
  enum terminal_mode terminal = run_terminal_mode(run->invocation);
  bool capture = invocation_has(run->invocation, RUN_JSON);
  bool is_terminal = terminal == TERMINAL_ALWAYS ||
                     (terminal == TERMINAL_AUTO && (isatty(STDIN_FILENO) || isatty(STDOUT_FILENO)));
  return (struct run_elsewhere){
      .request = {.host = &run->host,
                  .policy = run->policy,
                  .plan = &run->plan,
                  .limits = &run->limits,
                  .session_id = run->id,
                  .scratch = scratch,
                  .has_terminal = is_terminal && !capture,
                  .weaken = invocation_has(run->invocation, RUN_WEAKEN) ||
                            run->policy->require == REQUIRE_PREFERRED,
                  .terminal = terminal,
                  .capture = capture,
                  .capture_limit = run->max_output,
                  .log = &run->log,
                  .lifeline = run->lifeline,
                  .listener = run_tell,
                  .listener_context = run},
      .named = named,
      .quiet = invocation_has(run->invocation, RUN_QUIET),
  };
}

/* The plan for another engine; what it has to be able to do is in *ret_asked. Those cannot ask, so
 * their plan is a static one, and asking is among what is lost. */
int run_plan_elsewhere(struct run *run, uint64_t *ret_asked, struct sb_error *error) {
  *ret_asked = backend_policy_features(run->policy, &run->limits);
  run->elsewhere = true;
  run->policy->mode = MODE_STATIC;
  plan_clear(&run->plan);
  return run_make_plan(run, error);
}

static int execute_elsewhere(struct run *run, const struct backend *backend,
                             const struct backend_request *request,
                             struct session_result *ret_result, struct sb_error *error) {
  run->output.backend = backend->name;
  run_show_warnings(run);
  bool overlaid = plan_has_overlays(&run->plan);
  if (overlaid) {
    run->overlay_lock = overlay_create(&run->host, &run->plan, run->id, error);
    if (run->overlay_lock < 0)
      return -1;
  }
  _cleanup_snapshot_ struct snapshot *snapshot = NULL;
  if (run_wants_report(run)) {
    run_watched_places(&run->plan, &run->watched);
    snapshot =
        changes_snapshot_begin(run->watched.items, run->watched.count, &changes_default_limits);
  }
  struct timespec started = change_clock_now().start;
  int result = backend_run(backend, request, ret_result, error);
  if (snapshot)
    ret_result->changes = changes_report(snapshot, run->host.home, &changes_default_limits);
  run_conclude_changes(run, ret_result, result == 0, started);
  return result;
}

int run_named(struct run *run, struct session_result *ret_result, struct sb_error *error) {
  _cleanup_free_ char *scratch = backend_scratch_path(run->id);
  const struct backend *backend = backend_find(run->policy->backend, error);
  struct run_elsewhere elsewhere = run_describe_elsewhere(run, backend, scratch);
  if (!backend)
    return -1;
  if (invocation_has(run->invocation, RUN_DETACH)) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "--detach needs the native engine");
    return sb_hint(error, "leave out --backend, or run the command directly");
  }
  if (run_plan_elsewhere(run, &elsewhere.asked, error) < 0 ||
      run_choose_backend(&elsewhere, &backend, error) < 0)
    return -1;
  return execute_elsewhere(run, backend, &elsewhere.request, ret_result, error);
}

/* The native engine cannot run here, for the reason in the error. If nothing else can, that reason
 * is still the one to fix. */
int run_fallback(struct run *run, struct session_result *ret_result, struct sb_error *error) {
  _cleanup_free_ char *scratch = backend_scratch_path(run->id);
  _cleanup_free_ char *instead = xstrdup(error->message);
  _cleanup_error_ struct sb_error other = {0};
  struct run_elsewhere elsewhere = run_describe_elsewhere(run, NULL, scratch);
  const struct backend *backend;
  elsewhere.instead = instead;
  run_settle_mode(run->policy, true);
  if (run_plan_elsewhere(run, &elsewhere.asked, &other) < 0 ||
      run_choose_backend(&elsewhere, &backend, &other) < 0)
    return -1;
  sb_error_clear(error);
  session_result_clear(ret_result);
  return execute_elsewhere(run, backend, &elsewhere.request, ret_result, error);
}
