/* A growing string, always NUL-terminated once something was appended. Zero-initialise it. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

struct text {
  char *data;
  size_t length;
  size_t capacity;
};

void text_append(struct text *text, const char *string);
void text_append_bytes(struct text *text, const void *bytes, size_t length);
void text_append_char(struct text *text, char character);
void text_appendf(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text_clear(struct text *text);

/* The string so far ("" if nothing was appended); owned by the text. */
const char *text_string(const struct text *text);

/* Hands the string to the caller and leaves the text empty. */
char *text_steal(struct text *text);

#define _cleanup_text_ __attribute__((cleanup(text_clear)))
