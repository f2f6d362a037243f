/* Whether a signal ends a call that waits for a decision. */
#include <fcntl.h>
#include <stdio.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/status.h"
#include "gate/waiting.h"

bool gate_must_end(pid_t thread) {
  char path[32];
  _cleanup_free_ char *status = NULL;
  snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
  if (thread <= 0 || file_read_at(AT_FDCWD, path, 64 << 10, &status, NULL) < 0)
    return true; /* gone, or not known: nobody is kept waiting */
  return status_ends_wait(status);
}
