/* Clients of the control socket that watch a session and may answer its questions. A session that
 * asks nobody can be watched, too: it still tells what happens in it. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "session/control.h"

struct monitor;

void watchers_remove(struct monitor *monitor, const struct client *client);
void watchers_clear(struct monitor *monitor);

/* event.audit: a line of the audit log that no decision has told them about. */
void watchers_tell(struct monitor *monitor, const char *event, const json_t *fields);

/* event.stats, for those who asked for it, once a second. */
void watchers_send_stats(struct monitor *monitor);
uint64_t watchers_next_stats(const struct monitor *monitor); /* 0: nobody asked */
