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

/* A name in a sentence or a table: in double quotes if it has spaces, so that no part of it looks
 * like the words around it. Quotes in it are escaped, and spaces side by side, which could push the
 * rest into the next line. */
char *escape_name(const char *name);

/* The same without the quotes around it. */
char *escape_spaces(const char *name);

/* One word for a shell: unchanged if harmless, else in single quotes (or $'..' where needed). */
char *escape_shell_word(const char *word);

/* Decodes one UTF-8 code point; returns its length in bytes, 0 if the bytes are not valid UTF-8. */
size_t utf8_decode(const char *bytes, size_t length, unsigned *ret_code_point);
