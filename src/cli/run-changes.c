/* Changes at the end of `sandbox run`; see run-changes.h. */
#include "cli/run-changes.h"

#include <sys/stat.h>

#include "cli/session.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"
#include "overlay/layer.h"
#include "overlay/store.h"
#include "session/reports.h"

enum { SUMMARY_LINES = 20 };

void run_watched_places(const struct plan *plan, struct strv *ret_places) {
  _cleanup_strv_ struct strv overlaid = {0};
  for (size_t i = 0; i < plan->operation_count; i++)
    if (plan->operations[i].kind == OPERATION_OVERLAY)
      strv_add(&overlaid, plan->operations[i].path);
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    const char *path = operation->source ? operation->source : operation->path;
    struct stat status;
    if (operation->kind == OPERATION_WRITABLE && !strv_contains(&overlaid, path) &&
        lstat(path, &status) == 0 && S_ISDIR(status.st_mode))
      strv_add(ret_places, path);
  }
}

static void warn(struct sb_error *error) {
  cli_warn("%s", error->message);
  sb_error_clear(error);
}

/* How many changes the overlays hold; each goes into the report. */
static size_t read_overlay(const struct run_ending *ending, const struct overlay *overlay,
                           struct changes *changes) {
  size_t count = 0;
  for (size_t i = 0; i < overlay->layer_count; i++) {
    _cleanup_error_ struct sb_error error = {0};
    _cleanup_layer_ struct layer layer = {.upper = -1, .lower = -1};
    if (layer_read(overlay, i, ending->host->home, &layer, &error) < 0) {
      warn(&error);
      count++; /* what cannot be read is kept */
      continue;
    }
    layer_report(&layer, changes, &changes_default_limits);
    count += layer.count;
  }
  changes_sort(changes);
  return count;
}

static void finish_overlay(const struct run_ending *ending, struct changes *changes) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_overlay_ struct overlay overlay = {0};
  if (overlay_open(ending->host, ending->session_id, &overlay, &error) < 0) {
    warn(&error);
    return;
  }
  size_t count = read_overlay(ending, &overlay, changes);
  if (count == 0) {
    (void)overlay_remove(overlay.folder);
    return;
  }
  overlay_settle(overlay.folder);
  if (ending->quiet)
    return;
  _cleanup_free_ char *line =
      xasprintf("sandbox: %zu change%s kept in an overlay: sandbox diff %s, sandbox apply %s or "
                "sandbox discard %s\n",
                count, count == 1 ? " is" : "s are", overlay.id, overlay.id, overlay.id);
  session_say_last(ending->host->state_home, line);
}

static void save_report(const struct run_ending *ending, const struct changes *changes) {
  _cleanup_error_ struct sb_error error = {0};
  struct session_report report = {.session_id = ending->session_id,
                                  .command = ending->plan->arguments.items,
                                  .started = ending->started,
                                  .exit_code = ending->result->exit_code,
                                  .changes = changes,
                                  .denied = ending->result->denials};
  json_t *json = session_report_to_json(ending->host, &report);
  if (session_report_save(ending->host, ending->session_id, json, &error) < 0)
    warn(&error);
  json_decref(json);
}

static void print_summary(const struct run_ending *ending, const struct changes *changes) {
  _cleanup_free_ char *body = changes_to_text(changes, SUMMARY_LINES);
  _cleanup_text_ struct text text = {0};
  text_appendf(&text, "sandbox: session %s: %s", ending->session_id,
               *body ? body : "nothing changed\n");
  session_say_last(ending->host->state_home, text_string(&text));
}

void run_finish_changes(const struct run_ending *ending) {
  struct changes *changes = ending->result->changes;
  _cleanup_changes_ struct changes *own = changes ? NULL : changes_new();
  changes = changes ? changes : own;
  if (plan_has_overlays(ending->plan))
    finish_overlay(ending, changes);
  if (ending->wants_report || changes->count > 0)
    save_report(ending, changes);
  if (ending->wants_report && !ending->quiet)
    print_summary(ending, changes);
}
