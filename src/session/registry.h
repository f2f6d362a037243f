/* Which sessions there are: one folder each in the runtime folder, with `state.json` (what it is)
 * and `control.sock` (how to talk to it). A folder whose monitor is gone is swept by whoever looks.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "core/error.h"
#include "core/strv.h"
#include "plan/project.h"

/* A session's place in the registry while its monitor lives. */
struct registration {
  char *folder;
  char *final; /* the folder's name once it is published; NULL afterwards */
  int lock;    /* held on state.json: who can take it knows that the monitor is gone */
};
#define REGISTRATION_NONE ((struct registration){.lock = -1})

/* What a session is, for state.json. */
struct registry_subject {
  const struct host_context *host;
  const char *session_id, *mode, *backend;
  const struct strv *command; /* NULL: it waits for `exec` */
};
json_t *registry_state(const struct registry_subject *subject);

/* Makes the folder under a name that nobody lists yet, with what the session is. */
int registry_add(const struct host_context *host, const char *session_id, const json_t *state,
                 struct registration *ret_registration, struct sb_error *error);

/* Gives it its name, now that the control socket is in it. */
int registry_publish(struct registration *registration, struct sb_error *error);
void registry_remove(struct registration *registration);

struct registry_entry {
  char *id;
  char *folder;
  json_t *state;
};

struct registry {
  struct registry_entry *entries; /* oldest first */
  size_t count;
};

/* Removes what sessions left behind whose monitor is gone. */
void registry_sweep(const struct host_context *host);

/* Lists the live sessions of this user; sweeps the dead. No folder, no sessions; one that is not
 * the user's alone is an error. */
int registry_load(const struct host_context *host, struct registry *ret_registry,
                  struct sb_error *error);
void registry_clear(struct registry *registry);
#define _cleanup_registry_ __attribute__((cleanup(registry_clear)))

/* Says that somebody watches all sessions, also those to come, until the descriptor is closed.
 * Fails with -1: then nobody can know. */
int registry_attend(const struct host_context *host);
bool registry_is_attended(const struct host_context *host);

/* The one session whose id starts with the prefix; unknown and ambiguous ones are errors that list
 * what there is. Points into the registry. */
int registry_find(const struct registry *registry, const char *prefix,
                  const struct registry_entry **ret_entry, struct sb_error *error);
