/* `sandbox diff`: what a session changed in its overlays, as a patch. Reads only. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli/overlays.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "overlay/patch.h"

enum { DIFF_STAT, DIFF_NAME_ONLY, DIFF_JSON };

static const struct option_spec options[] = {
    {DIFF_STAT, "stat", .help = "show only how much changed in each file"},
    {DIFF_NAME_ONLY, "name-only", .help = "show only the names of what changed"},
    {DIFF_JSON, "json", .help = "print the changes as JSON, one line"},
    {0},
};

/* How one change is shown: appended to `text` or to `json`. */
struct view {
  bool terminal, colour;
  struct text text;
  json_t *json;
};

typedef void show_change(struct view *view, const struct layer *layer,
                         const struct layer_change *change);

static void show_patch(struct view *view, const struct layer *layer,
                       const struct layer_change *change) {
  _cleanup_patch_ struct patch patch = patch_make(layer, change);
  if (view->terminal)
    patch_append_for_terminal(&view->text, &patch.text, view->colour);
  else
    text_append_bytes(&view->text, text_string(&patch.text), patch.text.length);
}

static void show_name(struct view *view, const struct layer *layer,
                      const struct layer_change *change) {
  (void)layer;
  patch_append_name(&view->text, "", change->path);
  text_append_char(&view->text, '\n');
}

static void show_stat(struct view *view, const struct layer *layer,
                      const struct layer_change *change) {
  _cleanup_patch_ struct patch patch = patch_make(layer, change);
  text_appendf(&view->text, "%-8s ", change_kind_name(change->kind));
  if (patch.binary)
    text_appendf(&view->text, "%13s  ", "binary");
  else
    text_appendf(&view->text, "%+6zd %6zd  ", (ssize_t)patch.added, -(ssize_t)patch.removed);
  patch_append_name(&view->text, "", change->path);
  text_append(&view->text, change->flags & CHANGE_DANGEROUS ? "  (!)\n" : "\n");
}

static void show_json(struct view *view, const struct layer *layer,
                      const struct layer_change *change) {
  _cleanup_patch_ struct patch patch = patch_make(layer, change);
  json_t *object = cli_change_to_json(layer, change);
  json_object_set_new(object, "added", json_integer((json_int_t)patch.added));
  json_object_set_new(object, "removed", json_integer((json_int_t)patch.removed));
  json_object_set_new(object, "binary", json_boolean(patch.binary));
  json_array_append_new(view->json, object);
}

static show_change *choose(const struct invocation *invocation) {
  static const struct {
    int option;
    show_change *show;
  } rows[] = {{DIFF_JSON, show_json}, {DIFF_NAME_ONLY, show_name}, {DIFF_STAT, show_stat}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    if (invocation_has(invocation, rows[i].option))
      return rows[i].show;
  return show_patch;
}

static bool wants_colour(void) {
  const char *refused = getenv("NO_COLOR");
  return !(refused && *refused);
}

/* Printed change by change: a diff may be larger than memory is worth. */
static int flush(struct view *view) {
  int result = file_write_all(STDOUT_FILENO, text_string(&view->text), view->text.length);
  view->text.length = 0;
  return result;
}

/* Names in a patch are relative; where there is more than one folder, say which. */
static void show_place(struct view *view, const struct overlay *overlay,
                       const struct layer *layer) {
  if (overlay->layer_count < 2 || view->json)
    return;
  _cleanup_free_ char *shown = escape_string(layer->place->path);
  text_appendf(&view->text, "# in %s\n", shown);
}

static int show_layers(const struct overlay *overlay, const char *home, struct view *view,
                       show_change *show, struct sb_error *error) {
  for (size_t i = 0; i < overlay->layer_count; i++) {
    _cleanup_layer_ struct layer layer = {.upper = -1, .lower = -1};
    if (layer_read(overlay, i, home, &layer, error) < 0)
      return -1;
    show_place(view, overlay, &layer);
    for (size_t k = 0; k < layer.count; k++) {
      show(view, &layer, &layer.changes[k]);
      int result = flush(view);
      if (result < 0)
        return sb_fail(error, SB_CODE_SYSTEM, -result, "cannot write to standard output");
    }
  }
  return 0;
}

static int run(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_host_ struct host_context host = {0};
  _cleanup_overlay_ struct overlay overlay = {0};
  if (cli_open_overlay(invocation, &host, &overlay, &error) < 0)
    return cli_report_for(invocation, &error);
  bool as_json = invocation_has(invocation, DIFF_JSON), terminal = isatty(STDOUT_FILENO);
  struct view view = {.terminal = terminal,
                      .colour = terminal && wants_colour(),
                      .json = as_json ? json_array() : NULL};
  int result = show_layers(&overlay, host.home, &view, choose(invocation), &error);
  text_clear(&view.text);
  if (result < 0) {
    json_decref(view.json);
    return cli_report_for(invocation, &error);
  }
  if (!as_json)
    return 0;
  json_t *object = json_object();
  json_set_string(object, "session", overlay.id);
  json_set_string(object, "state", overlay_state_name(overlay.state));
  json_object_set_new(object, "changes", view.json);
  return cli_print_json(object);
}

const struct verb diff_verb = {
    .name = "diff",
    .synopsis = "[OPTION]... SID",
    .summary = "show what a session changed in its overlays",
    .description =
        "Compares the overlays that session SID left behind with the original folders and prints a "
        "patch, which `git apply` and `patch -p1` understand. Folders, special files and modes "
        "that git does not keep are told in lines that start with #. On a terminal, characters "
        "that could deceive are made visible; in a pipe or file the patch is exact. The first "
        "letters of SID are enough.",
    .options = options,
    .operand_completion = COMPLETE_SESSION,
    .run = run,
};
