/* `sandbox apply`: takes over what a session changed in its overlays. */
#include <stdio.h>
#include <string.h>

#include "cli/overlays.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "overlay/apply.h"

enum {
  APPLY_OPTION_ONLY,
  APPLY_OPTION_FORCE,
  APPLY_OPTION_INCLUDE,
  APPLY_OPTION_DRY_RUN,
  APPLY_OPTION_JSON
};

static const struct option_spec options[] = {
    {APPLY_OPTION_ONLY, "only", 0, ARGUMENT_REQUIRED, "PATH",
     "apply only PATH and what is below it; can be given more than once", COMPLETE_PATH},
    {APPLY_OPTION_INCLUDE, "include-protected",
     .help = "also apply protected names, hooks, FIFOs and links that lead outside"},
    {APPLY_OPTION_FORCE, "force",
     .help = "overwrite what was changed in the original since the session began"},
    {APPLY_OPTION_DRY_RUN, "dry-run", .help = "show what would be done and stop"},
    {APPLY_OPTION_JSON, "json", .help = "print the result as JSON, one line"},
    {0},
};

/* ---- choices ---- */

static const struct overlay_layer *layer_above(const struct overlay *overlay, const char *path) {
  for (size_t i = 0; i < overlay->layer_count; i++)
    if (path_is_under(path, overlay->layers[i].path))
      return &overlay->layers[i];
  return NULL;
}

/* Relative to where the caller stands, or, outside of every overlaid folder, to the first. */
static int choose_path(struct overlay *overlay, const char *cwd, const char *value,
                       struct sb_error *error) {
  const char *base = layer_above(overlay, cwd) ? cwd : overlay->layers[0].path;
  _cleanup_free_ char *path = path_join(base, value);
  if (!layer_above(overlay, path)) {
    _cleanup_free_ char *shown = escape_string(path);
    sb_fail(error, SB_CODE_USAGE, 0, "--only '%s' is in no overlay of session %s", shown,
            overlay->id);
    return sb_hint(error, "see the names with: sandbox diff --name-only %s", overlay->id);
  }
  strv_add(&overlay->intent.only, path);
  return 0;
}

/* An interrupted `apply` is finished with the choices it was started with. */
static int read_choices(const struct invocation *invocation, const char *cwd,
                        struct overlay *overlay, struct sb_error *error) {
  bool is_resumed = overlay->state == OVERLAY_APPLYING;
  if (!is_resumed)
    overlay_forget_intent(overlay);
  overlay->intent.force |= invocation_has(invocation, APPLY_OPTION_FORCE);
  overlay->intent.include_protected |= invocation_has(invocation, APPLY_OPTION_INCLUDE);
  for (size_t i = 0; i < invocation->option_count; i++) {
    const struct given_option *given = &invocation->options[i];
    if (given->spec->id == APPLY_OPTION_ONLY && choose_path(overlay, cwd, given->value, error) < 0)
      return -1;
  }
  return 0;
}

/* ---- saying ---- */

static void list_verdict(struct text *text, const struct apply *apply, enum apply_verdict verdict) {
  enum { SHOWN = 100 };
  size_t count = 0;
  for (size_t i = 0; i < apply->overlay->layer_count; i++)
    for (size_t k = 0; k < apply->layers[i].count; k++) {
      const struct layer_change *change = &apply->layers[i].changes[k];
      if (apply->verdicts[i][k] != verdict || ++count > SHOWN)
        continue;
      _cleanup_free_ char *path = escape_string(change->path);
      _cleanup_free_ char *why = apply_why_not(change, verdict);
      text_appendf(text, "  %-9s %s%s%s\n", change_kind_name(change->kind), path, why ? ": " : "",
                   why ? why : "");
    }
  if (count > SHOWN)
    text_appendf(text, "  and %zu more\n", count - SHOWN);
}

static void say_left_out(const struct apply *apply) {
  _cleanup_text_ struct text text = {0};
  if (apply->totals[APPLY_PROTECTED]) {
    text_append(&text, "sandbox: left out, as a person should look first "
                       "(apply with --include-protected):\n");
    list_verdict(&text, apply, APPLY_PROTECTED);
  }
  if (apply->totals[APPLY_IMPOSSIBLE]) {
    text_append(&text, "sandbox: left out, as it cannot be applied:\n");
    list_verdict(&text, apply, APPLY_IMPOSSIBLE);
  }
  (void)file_write_all(2, text_string(&text), text.length);
}

static json_t *result_to_json(const struct apply *apply, bool applied, bool removed) {
  static const char *const names[APPLY_VERDICT_COUNT] = {"applied", "conflicts", "protected",
                                                         "impossible", "not_chosen"};
  json_t *object = json_object();
  json_set_string(object, "session", apply->overlay->id);
  json_object_set_new(object, "done", json_boolean(applied));
  json_object_set_new(object, "removed", json_boolean(removed));
  json_t *lists[APPLY_VERDICT_COUNT];
  for (size_t i = 0; i < APPLY_VERDICT_COUNT; i++)
    json_object_set_new(object, names[i], lists[i] = json_array());
  for (size_t i = 0; i < apply->overlay->layer_count; i++)
    for (size_t k = 0; k < apply->layers[i].count; k++)
      json_array_append_new(lists[apply->verdicts[i][k]],
                            cli_change_to_json(&apply->layers[i], &apply->layers[i].changes[k]));
  return object;
}

/* The usual error object, and beside it what it is about. */
static int refuse_as_json(const struct apply *apply, const struct sb_error *error) {
  json_t *object = result_to_json(apply, false, false), *details = json_object();
  json_object_set_new(object, "applied", json_array());
  json_set_string(details, "code", sb_code_name(error->code));
  json_set_string(details, "message", error->message);
  json_set_string(details, "hint", error->hint);
  json_object_set_new(object, "error", details);
  (void)cli_print_json(object);
  return EXIT_CODE_FAILURE;
}

static int refuse_conflicts(const struct invocation *invocation, const struct apply *apply,
                            struct sb_error *error) {
  size_t count = apply->totals[APPLY_CONFLICT];
  sb_fail(error, SB_CODE_CONFLICT, 0,
          "nothing was applied: %zu change%s in conflict with the original", count,
          count == 1 ? " is" : "s are");
  sb_hint(error, "look at 'sandbox diff %s'; then apply some with --only, or all with --force",
          apply->overlay->id);
  if (invocation_has(invocation, APPLY_OPTION_JSON))
    return refuse_as_json(apply, error);
  _cleanup_text_ struct text text = {0};
  text_append(&text, "sandbox: in conflict:\n");
  list_verdict(&text, apply, APPLY_CONFLICT);
  (void)file_write_all(2, text_string(&text), text.length);
  return -1;
}

static int say_plan(const struct invocation *invocation, const struct apply *apply) {
  if (invocation_has(invocation, APPLY_OPTION_JSON))
    return cli_print_json(result_to_json(apply, false, false));
  static const char *const titles[APPLY_VERDICT_COUNT] = {"would be applied", "in conflict",
                                                          "left out (--include-protected)",
                                                          "cannot be applied", "not chosen"};
  _cleanup_text_ struct text text = {0};
  for (size_t i = 0; i < APPLY_VERDICT_COUNT; i++)
    if (apply->totals[i]) {
      text_appendf(&text, "%s:\n", titles[i]);
      list_verdict(&text, apply, (enum apply_verdict)i);
    }
  return cli_print(text.length ? text_string(&text) : "nothing to apply\n");
}

static int say_done(const struct invocation *invocation, const struct apply *apply, bool removed) {
  if (invocation_has(invocation, APPLY_OPTION_JSON))
    return cli_print_json(result_to_json(apply, true, removed));
  say_left_out(apply);
  fprintf(stderr, "sandbox: applied %zu change%s of session %s%s\n", apply->totals[APPLY_DO],
          apply->totals[APPLY_DO] == 1 ? "" : "s", apply->overlay->id,
          removed ? "" : "; the rest is kept");
  return 0;
}

/* ---- doing ---- */

static int apply_overlay(const struct invocation *invocation, const struct host_context *host,
                         struct overlay *overlay, struct sb_error *error) {
  _cleanup_apply_ struct apply apply = {0};
  bool removed = false;
  if (read_choices(invocation, host->cwd, overlay, error) < 0 ||
      apply_prepare(overlay, host->home, &apply, error) < 0)
    return -1;
  if (invocation_has(invocation, APPLY_OPTION_DRY_RUN))
    return say_plan(invocation, &apply);
  if (apply.totals[APPLY_CONFLICT])
    return refuse_conflicts(invocation, &apply, error);
  if (apply_carry_out(&apply, &removed, error) < 0)
    return -1;
  return say_done(invocation, &apply, removed);
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  _cleanup_overlay_ struct overlay overlay = {0};
  if (cli_open_overlay(invocation, &host, &overlay, &error) < 0)
    return cli_report_for(invocation, &error);
  _cleanup_close_ int lock = overlay_lock(&overlay, &error);
  if (lock < 0)
    return cli_report_for(invocation, &error);
  if (overlay.state == OVERLAY_APPLIED) {
    (void)overlay_remove(overlay.folder); /* only its removal was interrupted */
    fprintf(stderr, "sandbox: session %s had been applied%s already\n", overlay.id,
            overlay.layer_count ? "" : " or discarded");
    return 0;
  }
  int result = apply_overlay(invocation, &host, &overlay, &error);
  return result < 0 ? cli_report_for(invocation, &error) : result;
}

const struct verb apply_verb = {
    .name = "apply",
    .synopsis = "[OPTION]... SID",
    .summary = "take over what a session changed in its overlays",
    .description =
        "Carries the changes in the overlays of session SID over to the original folders, each "
        "file in one step. If something that it changed was also changed in the original, nothing "
        "is applied and the conflicts are listed. Protected names and dangerous objects are left "
        "out and listed. If it is interrupted, the same command continues. When nothing is left, "
        "the overlay is removed.",
    .options = options,
    .operand_completion = COMPLETE_SESSION,
    .run = run,
};
