/* Lexical path functions; see path.h. Pure. */
#include "core/path.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"

static void drop_last_component(struct text *text) {
  while (text->length > 0 && text->data[text->length - 1] != '/')
    text->length--;
  if (text->length > 0)
    text->length--;
  text->data[text->length] = '\0';
}

char *path_normalize(const char *path) {
  struct text text = {0};
  text_append(&text, "");
  for (const char *at = path; *at;) {
    size_t length = strcspn(at, "/");
    if (length == 2 && at[0] == '.' && at[1] == '.')
      drop_last_component(&text);
    else if (length > 0 && !(length == 1 && at[0] == '.')) {
      text_append_char(&text, '/');
      text_append_bytes(&text, at, length);
    }
    at += length + (at[length] == '/');
  }
  if (text.length == 0)
    text_append_char(&text, '/');
  return text_steal(&text);
}

bool path_is_normal(const char *path) {
  if (path[0] != '/')
    return false;
  for (const char *at = path; *at && path[1]; at += 1 + strcspn(at + 1, "/")) {
    size_t length = strcspn(at + 1, "/");
    if (length == 0 || (at[1] == '.' && (length == 1 || (length == 2 && at[2] == '.'))))
      return false;
  }
  return true;
}

char *path_join(const char *base, const char *relative) {
  if (relative[0] == '/')
    return path_normalize(relative);
  _cleanup_free_ char *joined = xasprintf("%s/%s", base, relative);
  return path_normalize(joined);
}

const char *path_below(const char *path, const char *ancestor) {
  size_t length = strlen(ancestor);
  if (length == 1 && ancestor[0] == '/')
    return path + 1;
  if (strncmp(path, ancestor, length) != 0)
    return NULL;
  if (path[length] == '\0')
    return path + length;
  return path[length] == '/' ? path + length + 1 : NULL;
}

bool path_is_under(const char *path, const char *ancestor) {
  return path_below(path, ancestor) != NULL;
}

size_t path_depth(const char *path) {
  size_t depth = 0;
  for (const char *at = path; *at; at++)
    depth += *at == '/' && at[1] != '\0';
  return depth;
}

const char *path_base(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

char *path_parent(const char *path) {
  const char *slash = strrchr(path, '/');
  if (!slash || slash == path)
    return xstrdup("/");
  return xstrndup(path, (size_t)(slash - path));
}

bool path_ends_with(const char *path, const char *end) {
  size_t length = strlen(path), wanted = strlen(end);
  return length >= wanted && strcmp(path + length - wanted, end) == 0;
}
