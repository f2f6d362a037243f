/* What the verbs about running sessions share. */
#pragma once

#include "cli/cli.h"
#include "plan/project.h"
#include "session/client.h"
#include "session/registry.h"

/* The registry of the caller, and the one session the first operand names. */
struct session_choice {
  struct host_context host;
  struct registry registry;
  const struct registry_entry *entry;
};

/* Loads the registry; with a prefix, finds the session. */
int session_choose(struct session_choice *ret_choice, const char *prefix, struct sb_error *error);
void session_choice_clear(struct session_choice *choice);
#define _cleanup_choice_ __attribute__((cleanup(session_choice_clear)))

/* What there is to say about a session after its end, on standard error: not before the question of
 * another one at this terminal is answered. */
void session_say_last(const char *state_home, const char *text);

/* "3s", "12m", "2h", "5d". New string. */
char *show_age(double seconds);

/* "12 kB", "3.4 MB"; "-" if it is not known. New string. */
char *show_bytes(double bytes);
char *show_seconds(double seconds, int decimals);
