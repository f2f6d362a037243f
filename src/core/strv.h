/* A growing list of owned strings; `items` is NULL-terminated, ready for execve. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct strv {
  char **items;
  size_t count;
};

void strv_add(struct strv *list, const char *string); /* copies */
void strv_take(struct strv *list, char *string);      /* takes ownership */
void strv_addf(struct strv *list, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool strv_contains(const struct strv *list, const char *string);

/* Removes the first such string; false if there is none. */
bool strv_remove(struct strv *list, const char *string);
void strv_clear(struct strv *list);

#define _cleanup_strv_ __attribute__((cleanup(strv_clear)))
#define STRV_FOREACH(item, list)                                                                   \
  for (char **item = (list)->items; item && item < (list)->items + (list)->count; item++)
