/* Reading git configuration, as far as we have to know what it names. */
#pragma once

#include "core/strv.h"
#include "policy/policy.h"

/* The value of "key = value" if the line says so, else NULL; git_config_text makes it a string. The
 * section may stand before it on the same line. */
const char *git_config_value(const char *line, const char *key);

/* What a value says, without quotes and comment. New string. */
char *git_config_text(const char *value);

/* The files and folders that the person's own configuration names and git reads: includes, lists of
 * ignored names, hooks, templates. Absolute; nobody has looked whether they exist. */
void git_config_named(const struct policy_context *context, struct strv *ret_paths);
