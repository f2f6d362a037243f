/* See status.h. */
#include "core/status.h"

#include <signal.h>
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

uint64_t status_signals(const char *status, const char *label) {
  return strtoull(status_field(status, label), NULL, 16);
}

uint64_t status_pending(const char *status) {
  return (status_signals(status, "SigPnd:") | status_signals(status, "ShdPnd:")) &
         ~status_signals(status, "SigBlk:");
}

#define BIT(signal) (UINT64_C(1) << ((signal)-1))

bool status_ends_wait(const char *status) {
  static const uint64_t ending =
      BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGKILL) | BIT(SIGTERM);
  return status_pending(status) & ending;
}
