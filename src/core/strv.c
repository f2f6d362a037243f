/* A growing list of owned strings; see strv.h. */
#include "core/strv.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

void strv_take(struct strv *list, char *string) {
  ARRAY_GROW(list->items, list->count + 1);
  list->items[list->count++] = string;
  list->items[list->count] = NULL;
}

void strv_add(struct strv *list, const char *string) {
  strv_take(list, xstrdup(string));
}

void strv_addf(struct strv *list, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  strv_take(list, xvasprintf(format, arguments));
  va_end(arguments);
}

bool strv_contains(const struct strv *list, const char *string) {
  STRV_FOREACH (item, list) {
    if (strcmp(*item, string) == 0)
      return true;
  }
  return false;
}

void strv_clear(struct strv *list) {
  STRV_FOREACH (item, list)
    free(*item);
  free(list->items);
  *list = (struct strv){0};
}

bool strv_remove(struct strv *list, const char *string) {
  for (size_t i = 0; i < list->count; i++) {
    if (strcmp(list->items[i], string) != 0)
      continue;
    free(list->items[i]);
    list->count--;
    memmove(list->items + i, list->items + i + 1, (list->count - i + 1) * sizeof *list->items);
    return true;
  }
  return false;
}
