/* Allocation that cannot fail; see alloc.h. */
#include "core/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *alloc_last_words;

static _Noreturn void give_up(void) {
  if (alloc_last_words)
    (void)!write(STDERR_FILENO, alloc_last_words, strlen(alloc_last_words));
  abort();
}

static void *or_abort(void *pointer) {
  if (!pointer)
    give_up();
  return pointer;
}

void *xmalloc(size_t size) {
  return or_abort(malloc(size ? size : 1));
}

void *xcalloc(size_t count, size_t size) {
  return or_abort(calloc(count ? count : 1, size ? size : 1));
}

void *xreallocarray(void *pointer, size_t count, size_t size) {
  return or_abort(reallocarray(pointer, count ? count : 1, size ? size : 1));
}

char *xstrdup(const char *string) {
  return or_abort(strdup(string));
}

char *xstrndup(const char *string, size_t length) {
  return or_abort(strndup(string, length));
}

char *xvasprintf(const char *format, va_list arguments) {
  char *text = NULL;
  if (vasprintf(&text, format, arguments) < 0)
    give_up();
  return text;
}

char *xasprintf(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = xvasprintf(format, arguments);
  va_end(arguments);
  return text;
}

void *array_grow(void *items, size_t count, size_t size) {
  /* Capacity is implied by the count: it doubles at each power of two, so no field is needed. */
  if (count != 0 && (count & (count - 1)) != 0)
    return items;
  return xreallocarray(items, count ? count * 2 : 1, size);
}
