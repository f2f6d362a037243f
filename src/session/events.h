/* What a session writes into its audit log about itself. Each is written before what it speaks of
 * happens; if that fails, it must not happen. */
#pragma once

#include "session/monitor.h"

/* Where the audit logs are: the state folder, or the runtime folder for those who have no home or
 * may not write there (a sandbox in a sandbox). New string. */
char *events_home(const struct host_context *host);

/* Opens the log and records the start. */
int events_start(struct monitor *monitor, struct sb_error *error);

/* A client asks for a command inside, or for the end of the session. */
int events_exec(struct monitor *monitor, const json_t *request, struct sb_error *error);
int events_kill(struct monitor *monitor, bool now, struct sb_error *error);

/* A limit was hit: nothing that could be refused, so a failure is only a gap in the log. */
void events_limit(struct monitor *monitor, const char *limit, const char *value,
                  const char *enforcer);

/* Records the end and closes the log. */
void events_end(struct monitor *monitor);
