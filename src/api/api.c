/* The public interface: thin wrappers, so that the inside may change while sandbox.h does not. */
#include "sandbox.h"

#include <stdlib.h>

#include "core/alloc.h"
#include "core/error.h"

const char *sb_version(void) {
  return SANDBOX_VERSION;
}

sb_error *sb_error_new(void) {
  return xcalloc(1, sizeof(sb_error));
}

void sb_error_free(sb_error *error) {
  if (!error)
    return;
  sb_error_clear(error);
  free(error);
}

const char *sb_error_code(const sb_error *error) {
  return sb_code_name(error->code);
}

const char *sb_error_message(const sb_error *error) {
  return error->message ? error->message : "";
}

const char *sb_error_hint(const sb_error *error) {
  return error->hint;
}
