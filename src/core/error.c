/* The one error object; see error.h. Must never print or exit. */
#include "core/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

static const char *const code_names[SB_CODE_COUNT] = {
    [SB_CODE_NONE] = "none",
    [SB_CODE_USAGE] = "usage",
    [SB_CODE_POLICY] = "policy",
    [SB_CODE_NOT_FOUND] = "not-found",
    [SB_CODE_UNSUPPORTED] = "unsupported",
    [SB_CODE_DENIED] = "denied",
    [SB_CODE_CONFLICT] = "conflict",
    [SB_CODE_SYSTEM] = "system",
};

const char *sb_code_name(enum sb_code code) {
  return code < SB_CODE_COUNT ? code_names[code] : "unknown";
}

enum sb_code sb_code_named(const char *name) {
  for (size_t i = 0; name && i < SB_CODE_COUNT; i++) {
    if (strcmp(code_names[i], name) == 0)
      return (enum sb_code)i;
  }
  return SB_CODE_SYSTEM;
}

void sb_error_clear(struct sb_error *error) {
  free(error->message);
  free(error->hint);
  *error = (struct sb_error){0};
}

int sb_fail(struct sb_error *error, enum sb_code code, int errnum, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *text = xvasprintf(format, arguments);
  va_end(arguments);

  sb_error_clear(error);
  error->code = code;
  error->errnum = errnum;
  if (errnum == 0) {
    error->message = text;
    return -1;
  }
  error->message = xasprintf("%s: %s", text, strerror(errnum));
  free(text);
  return -1;
}

int sb_wrap(struct sb_error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *context = xvasprintf(format, arguments);
  va_end(arguments);

  char *message = xasprintf("%s: %s", context, error->message ? error->message : "failed");
  free(context);
  free(error->message);
  error->message = message;
  return -1;
}

int sb_hint(struct sb_error *error, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  char *hint = xvasprintf(format, arguments);
  va_end(arguments);

  free(error->hint);
  error->hint = hint;
  return -1;
}
