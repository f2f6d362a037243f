/* What `diff`, `apply`, `discard` and `report` share. */
#pragma once

#include "cli/cli.h"
#include "overlay/layer.h"
#include "overlay/store.h"
#include "plan/project.h"

/* The one session the command line names, or an error. NULL with an error set. */
const char *cli_session_operand(const struct invocation *invocation, struct sb_error *error);

/* Opens what the session that the command line names has left. */
int cli_open_overlay(const struct invocation *invocation, struct host_context *ret_host,
                     struct overlay *ret_overlay, struct sb_error *error);

/* One change as JSON: kind, path, type, modes, flags. */
json_t *cli_change_to_json(const struct layer *layer, const struct layer_change *change);

/* Prints one line of JSON on stdout and drops the value; 0 or 125. */
int cli_print_json(json_t *json);
