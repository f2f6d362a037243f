/* The monitor's side of published ports: starts their process, and says when it is gone. */
#pragma once

#include <poll.h>

struct monitor;

/* The session's init has sent its user and network namespace; they stay the caller's. */
void publishing_start(struct monitor *monitor, const int *fds);

/* What to poll for, and what to do then. */
struct pollfd publishing_watch(const struct monitor *monitor);
void publishing_step(struct monitor *monitor, const struct pollfd *watched);
