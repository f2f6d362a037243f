/* A growing string; see text.h. */
#include "core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static void reserve(struct text *text, size_t more) {
  size_t needed = text->length + more + 1;
  if (needed <= text->capacity)
    return;
  size_t capacity = text->capacity ? text->capacity : 64;
  while (capacity < needed)
    capacity *= 2;
  text->data = xreallocarray(text->data, capacity, 1);
  text->capacity = capacity;
}

void text_append_bytes(struct text *text, const void *bytes, size_t length) {
  reserve(text, length);
  if (length)
    memcpy(text->data + text->length, bytes, length);
  text->length += length;
  text->data[text->length] = '\0';
}

void text_append(struct text *text, const char *string) {
  text_append_bytes(text, string, strlen(string));
}

void text_append_char(struct text *text, char character) {
  text_append_bytes(text, &character, 1);
}

void text_appendf(struct text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *piece = xvasprintf(format, arguments);
  va_end(arguments);
  text_append(text, piece);
  free(piece);
}

const char *text_string(const struct text *text) {
  return text->data ? text->data : "";
}

char *text_steal(struct text *text) {
  char *string = text->data ? text->data : xstrdup("");
  *text = (struct text){0};
  return string;
}

void text_clear(struct text *text) {
  free(text->data);
  *text = (struct text){0};
}
