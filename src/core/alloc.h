/* Allocation that cannot fail. A few kilobytes that cannot be had on Linux are not an error that
 * any caller could handle, so these abort, as GLib's do; callers need no error path for memory. */
#pragma once

#include <stdarg.h>
#include <stddef.h>

/* What a command, which has a stderr of its own, says there before; NULL: nothing. */
extern const char *alloc_last_words;

void *xmalloc(size_t size);
void *xcalloc(size_t count, size_t size);
void *xreallocarray(void *pointer, size_t count, size_t size);
char *xstrdup(const char *string);
char *xstrndup(const char *string, size_t length);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));
char *xvasprintf(const char *format, va_list arguments) __attribute__((format(printf, 1, 0)));

/* Makes room for one more element in a growing array: ARRAY_GROW(list->items, list->count). */
#define ARRAY_GROW(items, count) ((items) = array_grow((items), (count), sizeof *(items)))
void *array_grow(void *items, size_t count, size_t size);
