/* Writing YAML that our own strict loader reads back. Pure. */
#pragma once

#include <stdbool.h>

#include "core/text.h"

/* Appends a text as a plain scalar where it can only be read as that text, else in double quotes
 * with everything but printable ASCII escaped. False, and nothing appended, if the bytes are not
 * UTF-8: YAML has no way to write them. */
bool yaml_append_text(struct text *text, const char *value);

/* The same, always in quotes. */
bool yaml_append_quoted(struct text *text, const char *value);
