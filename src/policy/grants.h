/* Approvals that outlive a session: `grants.yaml` of a scope, written only by us: atomically, under
 * a lock, merged with what other sessions wrote meanwhile.
 *
 *   org      /etc/sandbox/grants.yaml
 *   user     $XDG_CONFIG_HOME/sandbox/grants.yaml
 *   project  $XDG_CONFIG_HOME/sandbox/projects/NAME-HASH/grants.yaml
 *
 * What the user approves for a project is kept in the user's own configuration and never in the
 * project: a repository cannot bring approvals of its own, nothing has to be trusted, no file
 * appears in anybody's work tree, and names, times and paths of a person are not committed. */
#pragma once

#include "gate/access.h"
#include "policy/policy.h"

struct grant {
  enum access_subject subject;
  bool allow; /* false: "deny always" */
  bool writable;
  bool names;            /* allow: the names in the folder, and nothing else */
  char *path;            /* file: a tree or an object, canonical */
  char *host;            /* network */
  uint16_t port;         /* 0: every port */
  char *by, *when, *why; /* who approved, RFC 3339 time, and "exe asked for path in session SID" */
  unsigned line, column; /* where it was read; not written */
};

/* Adds a grant to a scope's store (SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG); replaces one of the same
 * subject and path. A missing `by` or `when` is filled in. */
int grants_add(const struct policy_context *context, enum grant_scope scope,
               const struct grant *grant, struct sb_error *error);

/* Removes the grants for exactly this path or host; *ret_removed says how many. */
int grants_remove(const struct policy_context *context, enum grant_scope scope, const char *subject,
                  size_t *ret_removed, struct sb_error *error);

struct grant_list {
  struct grant *items;
  size_t count;
};
void grant_list_clear(struct grant_list *list);
#define _cleanup_grants_ __attribute__((cleanup(grant_list_clear)))

/* What a scope's store has; no file is no grants. */
int grants_load(const struct policy_context *context, enum grant_scope scope,
                struct grant_list *ret_list, struct sb_error *error);

/* The file of a scope, whether it exists or not. New string; NULL if there is no place for it. */
char *grants_file(const struct policy_context *context, enum grant_scope scope);
const char *grant_scope_name(enum grant_scope scope);
json_t *grant_to_json(const struct grant *grant);

/* Does a person who writes `name` mean this host? Without a port all of it, else that port alone,
 * as 'sandbox policy grants' shows it: "example.org:443", "[2001:db8::1]:443". */
bool grant_host_is(const char *host, unsigned port, const char *name);

/* The host of such a name. New string. */
char *grant_host_of(const char *name);

/* "read", "write" or "list". */
const char *grant_access(const struct grant *grant);

/* "allow read /opt/sdk", "deny example.org:443", escaped. New string. */
char *grant_describe(const struct grant *grant);

/* Drops the rules of answers for something in a folder that another one allows to write to: that
 * may be written to, too, and is granted with the folder. After the last store. */
void grants_fold(struct policy *policy);

/* Adds what a scope's store has to a policy, as rules of that store. What cannot be honoured any
 * more (the path has become a link) goes to policy->ignored. */
int grants_apply(struct policy *policy, const struct policy_context *context,
                 enum grant_scope scope, struct sb_error *error);

/* ---- pure, for tests and the fuzzer ---- */

/* Reads a file's text. `project` is what a project's file must name, NULL for the others. */
int grants_parse(const char *file, const char *data, size_t length, const char *project,
                 struct grant_list *ret_list, struct sb_error *error);

/* The file's text. New string. */
char *grants_format(const struct grant_list *list, const char *project);
