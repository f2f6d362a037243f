/* The plan's operations for tools that mount by path; see view.h. Pure. */
#include "backend/view.h"

#include <string.h>

#include "core/alloc.h"
#include "core/path.h"

char *view_private_path(const struct plan *plan, const char *source) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind != OPERATION_PRIVATE && operation->kind != OPERATION_PRIVATE_SEALED)
      continue;
    size_t length = strlen(operation->source);
    if (strncmp(source, operation->source, length) != 0 ||
        (source[length] != '\0' && source[length] != '/'))
      continue;
    return xasprintf("%s%s", operation->path, source + length);
  }
  return NULL;
}

bool view_is_kernel_path(const char *path) {
  return path_is_under(path, "/proc") || path_is_under(path, "/sys") || path_is_under(path, "/dev");
}

unsigned view_private_mode(const struct plan *plan, const char *source) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_PRIVATE_FOLDER && strcmp(operation->source, source) == 0)
      return operation->mode;
  }
  return 0755;
}
