/* What the verbs around overlays share; see overlays.h. */
#include "cli/overlays.h"

#include <stdio.h>

#include "core/cleanup.h"
#include "core/json.h"

const char *cli_session_operand(const struct invocation *invocation, struct sb_error *error) {
  if (invocation->operand_count == 1)
    return invocation->operands[0];
  sb_fail(error, SB_CODE_USAGE, 0, "%s: %s", invocation->verb->name,
          invocation->operand_count ? "more than one session was named" : "which session?");
  sb_hint(error, "name one, as it was said at its end: sandbox %s SID", invocation->verb->name);
  return NULL;
}

int cli_open_overlay(const struct invocation *invocation, struct host_context *ret_host,
                     struct overlay *ret_overlay, struct sb_error *error) {
  const char *session = cli_session_operand(invocation, error);
  if (!session || host_context_load(ret_host, error) < 0)
    return -1;
  return overlay_open(ret_host, session, ret_overlay, error);
}

static void set_mode(json_t *object, const char *key, mode_t mode) {
  char text[8];
  snprintf(text, sizeof text, "%04o", (unsigned)(mode & 07777));
  json_set_string(object, key, mode ? text : NULL);
}

json_t *cli_change_to_json(const struct layer *layer, const struct layer_change *change) {
  json_t *object = json_object(), *flags = json_array();
  json_set_string(object, "kind", change_kind_name(change->kind));
  json_set_path(object, "place", layer->place->path);
  json_set_path(object, "path", change->path);
  json_set_string(object, "type", change_type_name(change->mode ? change->mode : change->old_mode));
  set_mode(object, "old_mode", change->old_mode);
  set_mode(object, "mode", change->mode);
  for (size_t i = 0; i < CHANGE_FLAG_COUNT; i++)
    if (change->flags & 1u << i)
      json_array_append_new(flags, json_string(change_flag_name((enum change_flag)(1 << i))));
  json_object_set_new(object, "flags", flags);
  json_set_string(object, "reason", change->reason);
  json_set_string(object, "conflict", change->conflict);
  json_set_string(object, "problem", change->problem);
  return object;
}

int cli_print_json(json_t *json) {
  _cleanup_free_ char *line = json_line(json);
  json_decref(json);
  return cli_print(line);
}
