/* Clients of the control socket that watch a session and may answer its questions. */
#pragma once

#include <stdint.h>

#include "session/control.h"

struct monitor;

void watchers_remove(struct monitor *monitor, const struct client *client);
void watchers_clear(struct monitor *monitor);

/* event.stats, for those who asked for it, once a second. */
void watchers_send_stats(struct monitor *monitor);
uint64_t watchers_next_stats(const struct monitor *monitor); /* 0: nobody asked */
