/* The caller's surroundings: who, where, which project. Reads the environment and the file system,
 * changes nothing. */
#pragma once

#include <sys/types.h>

#include "core/error.h"
#include "policy/policy.h"

struct host_context {
  struct policy_context policy; /* points into the strings below */
  uid_t user;
  gid_t group;
  char *cwd;          /* canonical */
  char *home;         /* canonical; NULL if there is none */
  char *account_home; /* canonical: of the account, where $HOME says otherwise; else NULL */
  char *project;      /* canonical: nearest ancestor of cwd with .git or .sandbox, else cwd */
  char *config_home, *state_home, *runtime_folder;
};

int host_context_load(struct host_context *ret_context, struct sb_error *error);
/* The same as if the caller stood in `folder` (NULL: where it does stand); nobody moves. */
int host_context_load_at(const char *folder, struct host_context *ret_context,
                         struct sb_error *error);
void host_context_clear(struct host_context *context);
#define _cleanup_host_ __attribute__((cleanup(host_context_clear)))

/* Where the sessions of a user have their sockets, whether it exists or not. New string. */
char *host_runtime_folder(uid_t user);
