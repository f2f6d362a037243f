/* Which names are those of secrets, in whatever folder: see secret_names. Pure. */
#include <string.h>

#include "policy/glob.h"
#include "policy/policy.h"

bool secret_is_exception(const char *name, size_t length) {
  for (const char *const *exception = secret_exceptions; *exception; exception++) {
    if (glob_match_name(*exception, strlen(*exception), name, length))
      return true;
  }
  return false;
}

/* Nearly every name is refused by one byte: a pattern begins with a plain one, or ends with it. */
static bool may_match(const char *pattern, size_t pattern_length, const char *name, size_t length) {
  return pattern[0] == '*' ? pattern[pattern_length - 1] == name[length - 1]
                           : pattern[0] == name[0];
}

const char *secret_of_name(const char *name, size_t length) {
  for (const struct secret *secret = secret_names; length > 0 && secret->pattern; secret++) {
    const char *pattern = secret->pattern + strlen("**/");
    size_t pattern_length = strlen(pattern);
    if (may_match(pattern, pattern_length, name, length) &&
        glob_match_name(pattern, pattern_length, name, length))
      return secret_is_exception(name, length) ? NULL : secret->why;
  }
  return NULL;
}

const char *secret_of_path(const char *path, size_t skip) {
  for (const char *at = path + skip; *at;) {
    size_t length = strcspn(at, "/");
    const char *why = secret_of_name(at, length);
    if (why)
      return why;
    at += length + (at[length] == '/');
  }
  return NULL;
}
