/* `sandbox kill`: ends whole sessions. */
#include "cli/session.h"
#include "core/cleanup.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum kill_option { KILL_NOW, KILL_ALL, KILL_JSON };

static const struct option_spec kill_options[] = {
    {KILL_NOW, "now", 0, ARGUMENT_NONE, NULL, "SIGKILL at once, without SIGTERM before it",
     COMPLETE_NONE},
    {KILL_ALL, "all", 0, ARGUMENT_NONE, NULL, "end every session of yours", COMPLETE_NONE},
    {KILL_JSON, "json", 0, ARGUMENT_NONE, NULL, "print JSON", COMPLETE_NONE},
    {0},
};

/* One that was stopped with Ctrl-Z could not even read what we ask. Its lock is held, so the pid is
 * still its own. */
static void wake(const struct registry_entry *entry) {
  pid_t monitor = (pid_t)json_integer_value(json_object_get(entry->state, "pid"));
  if (monitor > 1)
    kill(monitor, SIGCONT);
}

/* Returns once the session is gone: its monitor closes the connection as its last act. */
static int end_session(const struct registry_entry *entry, bool now, struct sb_error *error) {
  _cleanup_client_ struct client_connection connection = {.fd = -1};
  json_t *reply = NULL;
  wake(entry);
  if (client_open(entry->folder, &connection, error) < 0 ||
      client_send(&connection, json_pack("{s:s, s:b}", "cmd", "cmd.kill", "now", now), NULL, 0,
                  error) < 0 ||
      client_read(&connection, &reply, error) < 0)
    return -1;
  json_decref(reply);
  client_set_patience(&connection, CLIENT_WAIT_FOREVER);
  char byte;
  while (read(connection.fd, &byte, 1) > 0)
    ;
  return 0;
}

static int end_chosen(const struct invocation *invocation, struct session_choice *choice,
                      struct sb_error *error) {
  bool now = invocation_has(invocation, KILL_NOW);
  for (size_t i = 0; i < choice->registry.count; i++) {
    if (invocation_has(invocation, KILL_ALL) &&
        end_session(&choice->registry.entries[i], now, error) < 0)
      return -1;
  }
  /* All names are looked up before the first session ends: a typo ends nothing. */
  const struct registry_entry *entry;
  for (size_t i = 0; i < invocation->operand_count; i++) {
    if (registry_find(&choice->registry, invocation->operands[i], &entry, error) < 0)
      return -1;
  }
  for (size_t i = 0; i < invocation->operand_count; i++) {
    if (registry_find(&choice->registry, invocation->operands[i], &entry, error) < 0 ||
        end_session(entry, now, error) < 0)
      return -1;
  }
  return 0;
}

static int kill_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_choice_ struct session_choice choice = {0};
  if (invocation->operand_count == 0 && !invocation_has(invocation, KILL_ALL)) {
    sb_fail(&error, SB_CODE_USAGE, 0, "kill needs a session");
    sb_hint(&error, "sandbox kill SID, or --all; 'sandbox ps' lists the sessions");
    return cli_report_for(invocation, &error);
  }
  if (session_choose(&choice, NULL, &error) < 0 || end_chosen(invocation, &choice, &error) < 0)
    return cli_report_for(invocation, &error);
  return invocation_has(invocation, KILL_JSON) ? cli_print("{\"ok\":true}\n") : 0;
}

const struct verb kill_verb = {
    .name = "kill",
    .synopsis = "[OPTION]... SID...",
    .summary = "end sessions",
    .description = "Ends whole sessions: SIGTERM to every process, and when the command has ended, "
                   "or after two seconds, SIGKILL to everything that is left. Returns when nothing "
                   "is left.",
    .options = kill_options,
    .operand_completion = COMPLETE_SESSION,
    .run = kill_main,
};
