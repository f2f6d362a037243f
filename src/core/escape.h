/* The one escaper: everything that a workload could have chosen and that a person or a log will
 * see goes through here. Nothing is dropped; whatever could move the cursor, reorder the line or
 * hide is made visible, so two different byte strings never look the same. */
#pragma once

#include <stddef.h>

#include "core/text.h"

/* Appends bytes as visible ASCII: printable ASCII as itself, backslash doubled, \n \t \r as such,
 * other bytes below 0x80 as \xNN, valid non-ASCII code points as \u{NNNN}, invalid bytes as \xNN.
 */
void escape_append(struct text *text, const char *bytes, size_t length);

/* The same for a NUL-terminated string, as a new string. */
char *escape_string(const char *string);

/* One word for a shell: unchanged if harmless, else in single quotes (or $'..' where needed). */
char *escape_shell_word(const char *word);

/* Decodes one UTF-8 code point; returns its length in bytes, 0 if the bytes are not valid UTF-8. */
size_t utf8_decode(const char *bytes, size_t length, unsigned *ret_code_point);
