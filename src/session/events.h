/* What a session writes into its audit log about itself. Each is written before what it speaks of
 * happens; if that fails, it must not happen. */
#pragma once

#include "session/monitor.h"

/* Where the audit logs are: the state folder, or the runtime folder for those who have no home or
 * may not write there (a sandbox in a sandbox). New string. */
char *events_home(const struct host_context *host);

/* Who starts what. */
struct events_subject {
  const struct host_context *host;
  const char *session_id, *mode, *backend;
  const struct strv *command; /* NULL: none, it waits for `exec` */
  session_listener *listener;
  void *listener_context;
};

/* Opens the log and records the start; closes it and records the end. */
int events_open(const struct events_subject *subject, struct audit **ret_audit,
                struct sb_error *error);
void events_close(struct audit *audit, const struct session_result *result);

/* The same for the native engine's monitor. */
int events_start(struct monitor *monitor, struct sb_error *error);
void events_end(struct monitor *monitor);

/* Writes a line of the log and tells those who watch. Steals `fields`; without a log it is nothing.
 */
int events_write(struct monitor *monitor, const char *event, json_t *fields,
                 struct sb_error *error);

/* The same line for the structured log, if there is one: without command lines. */
void events_log(const struct monitor *monitor, const char *event, const json_t *fields);

/* What is recorded of a request for a command inside. */
json_t *events_exec_fields(const json_t *request);

/* A client asks for a command inside, or for the end of the session. */
int events_exec(struct monitor *monitor, const json_t *request, struct sb_error *error);
int events_kill(struct monitor *monitor, bool now, struct sb_error *error);

/* A limit was hit: nothing that could be refused, so a failure is only a gap in the log. */
void events_limit(struct monitor *monitor, const char *limit, const char *value,
                  const char *enforcer);

/* A mask or protection was renewed, or something else had to be done about one: the host has
 * changed a name, which nobody could have refused. `path` and `note` may be NULL. */
void events_protection(struct monitor *monitor, const char *event, const char *path,
                       const char *note);
