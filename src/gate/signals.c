/* Which signals end a call that waits for a decision. On a local disk no signal interrupts an open
 * or a stat, and few programs expect it: a window that changes its size, a child that ends or a
 * timer must not fail the call. Ctrl-C and whatever ends programs must, unless the thread blocks
 * it: then it ends nothing outside, either, and the call would begin anew for ever. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/status.h"
#include "gate/waiting.h"

#define BIT(signal) (1ull << ((signal)-1))

static unsigned long long read_mask(const char *status, const char *label) {
  return strtoull(status_field(status, label), NULL, 16);
}

bool gate_must_end(pid_t thread) {
  static const unsigned long long ending =
      BIT(SIGHUP) | BIT(SIGINT) | BIT(SIGQUIT) | BIT(SIGKILL) | BIT(SIGTERM);
  char path[32];
  _cleanup_free_ char *status = NULL;
  snprintf(path, sizeof path, "/proc/%d/status", (int)thread);
  if (thread <= 0 || file_read_at(AT_FDCWD, path, 64 << 10, &status, NULL) < 0)
    return true; /* gone, or not known: nobody is kept waiting */
  return (read_mask(status, "SigPnd:") | read_mask(status, "ShdPnd:")) &
         ~read_mask(status, "SigBlk:") & ending;
}
