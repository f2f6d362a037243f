/* See status.h. */
#include "core/status.h"

#include <stdlib.h>
#include <string.h>

const char *status_field(const char *status, const char *label) {
  size_t length = strlen(label);
  for (const char *at = status; (at = strstr(at, label)); at += length) {
    if (at > status && at[-1] == '\n')
      return at + length + strspn(at + length, " \t");
  }
  return "";
}

pid_t status_innermost(const char *status, const char *label, size_t *ret_count) {
  const char *at = status_field(status, label);
  size_t count = 0;
  pid_t last = 0;
  for (char *end; *at && *at != '\n'; at = end + strspn(end, " \t")) {
    long number = strtol(at, &end, 10);
    if (end == at)
      break;
    last = (pid_t)number;
    count++;
  }
  if (ret_count)
    *ret_count = count;
  return last;
}
