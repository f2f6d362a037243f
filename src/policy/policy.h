/* Policy as data: what the stores and flags say, merged, and the one function that decides.
 * Loading reads files; everything after that is pure. Nothing here starts, mounts or prints. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/error.h"
#include "core/strv.h"

/* Merge order: a later store wins a tie (except that an org `hide` is final). */
enum policy_store { STORE_BUILTIN, STORE_ORG, STORE_PROJECT, STORE_USER, STORE_FLAGS, STORE_COUNT };

enum policy_mode { MODE_DYNAMIC, MODE_STATIC };
enum policy_require { REQUIRE_REQUIRED, REQUIRE_PREFERRED, REQUIRE_DISABLED };
enum policy_network { NETWORK_NONE, NETWORK_FILTERED, NETWORK_FULL };

/* Where a rule or setting was written. `file` is NULL for the built-in tables and for flags. */
struct origin {
  enum policy_store store;
  char *file;
  unsigned line, column;
};

enum rule_kind {
  RULE_READ,      /* readable */
  RULE_WRITE,     /* readable and writable */
  RULE_OVERLAY,   /* writable inside, the host's copy stays as it is */
  RULE_HIDE,      /* never readable, never asked */
  RULE_PROTECT,   /* readable, never writable, not creatable, inside a writable place */
  RULE_UNPROTECT, /* takes a built-in protected name back */
  RULE_KIND_COUNT
};

struct rule {
  enum rule_kind kind;
  char *pattern; /* absolute, expanded, normalised; literal path or glob */
  bool is_glob;  /* has *, ? or [ ; `**` crosses folders */
  char *written; /* as the author wrote it, for messages */
  char *why;     /* built-in tables: what it protects; else NULL */
  struct origin origin;
};

struct limits {
  /* 0 means: not limited. Units as in the schema. */
  double cpu_percent;
  unsigned long long memory_mb, disk_mb, max_processes, timeout_seconds, io_mb_per_s;
  unsigned long long open_files, file_size_mb, inodes;
};

struct policy {
  enum policy_mode mode;
  enum policy_require require;
  char *backend;

  struct rule *rules;
  size_t rule_count;
  bool ask_writes;

  struct {
    enum policy_network mode;
    struct strv allow, deny, unix_sockets, publish;
    char *http_proxy, *socks_proxy, *driver;
    bool allow_local_binding;
  } network;

  struct limits limits;
  struct strv environment_pass; /* names, on top of the built-in allow-list */
  struct strv environment_set;  /* NAME=value */
  unsigned prompt_timeout_seconds;
  bool debug, containers;
  struct {
    bool enabled, kvm;
  } vm;
  char *nix; /* auto | on | off */
  struct {
    struct strv exclude;
    bool allow_unsandboxed;
  } commands;

  /* Which store last set each schema key, by dotted name ("network.mode"); see policy_key_origin.
   */
  struct policy_key *keys;
  size_t key_count;

  /* What was written in an untrusted project store and not honoured, one sentence each. */
  struct strv ignored;
};

/* What the machine and the caller look like; policy text is expanded against it. */
struct policy_context {
  const char *home;        /* canonical; NULL if there is none */
  const char *project;     /* canonical project root: what "." means in every store */
  const char *config_home; /* $XDG_CONFIG_HOME or ~/.config; NULL if no home */
  const char *state_home;  /* $XDG_STATE_HOME or ~/.local/state; NULL if no home */
  const char *org_folder;  /* "/etc/sandbox" */
  char *const *environment;
};

/* Loads and merges built-in tables and every store that exists. A wrong file is an error naming
 * file:line:column, the bad value and the nearest valid key; then nothing is returned. */
int policy_load(const struct policy_context *context, struct policy **ret_policy,
                struct sb_error *error);

/* Reads one file alone, for `policy check` and --policy FILE. */
int policy_load_file(const struct policy_context *context, const char *file,
                     enum policy_store store, struct policy *policy, struct sb_error *error);

/* Adds a rule from a command-line flag ("--rw" …); the path is relative to `base`. */
int policy_add_flag(struct policy *policy, const struct policy_context *context,
                    enum rule_kind kind, const char *base, const char *path, const char *flag,
                    struct sb_error *error);

/* Tells the policy that a scalar key was set by a flag, for `policy show` and errors. */
void policy_set_key_origin(struct policy *policy, const char *key, enum policy_store store,
                           const char *file, unsigned line);
const struct origin *policy_key_origin(const struct policy *policy, const char *key);

void policy_free(struct policy *policy);
static inline void cleanup_policy(struct policy **policy) {
  policy_free(*policy);
}
#define _cleanup_policy_ __attribute__((cleanup(cleanup_policy)))

/* ---- deciding (pure) ---- */

enum access { ACCESS_READ, ACCESS_WRITE };
enum verdict { VERDICT_ALLOW, VERDICT_DENY, VERDICT_HIDE, VERDICT_ASK };

struct decision {
  enum verdict verdict;
  const struct rule *rule;       /* the rule that decided; NULL if none matched */
  const struct rule *overridden; /* the best rule that lost, or NULL */
};

/* Decides for a resolved absolute path. Order: an org hide is final; else the most specific match
 * wins, component-wise; a tie goes to the later store, then to the stricter rule. */
struct decision policy_decide(const struct policy *policy, const char *path, enum access access);

/* True if the pattern of the rule covers the path (a literal covers itself and all below it). */
bool rule_matches(const struct rule *rule, const char *path);

/* Glob matching on whole paths: * and ? stay within a component, ** crosses, [..] sets. */
bool glob_match(const char *pattern, const char *path);

/* ---- trust of project stores ---- */

/* Records the content hash of <project>/.sandbox/policy.yaml as trusted by this user. */
int policy_trust(const struct policy_context *context, const char *file, struct sb_error *error);
int policy_is_trusted(const struct policy_context *context, const void *data, size_t length);

/* ---- showing ---- */

json_t *policy_to_json(const struct policy *policy);
const char *policy_store_name(enum policy_store store);
const char *rule_kind_name(enum rule_kind kind);

/* ~, $VAR and ${VAR}, then relative to base, then normalised. Error names the unset variable. */
int policy_expand(const struct policy_context *context, const char *base, const char *text,
                  char **ret_path, struct sb_error *error);

/* ---- the built-in tables, one file each ---- */

struct secret {
  const char *pattern; /* "~/.ssh", "/etc/shadow", "**" "/.env" (below the project) */
  const char *why;
};
extern const struct secret secret_table[]; /* ends with a NULL pattern */

/* Patterns that take a file back from a built-in secret glob (".env.example" is no secret). */
extern const char *const secret_exceptions[]; /* NULL-terminated */

struct protected_name {
  const char *name; /* relative to a writable place: ".git/hooks", ".mcp.json" */
  const char *why;
};
extern const struct protected_name protected_table[]; /* ends with a NULL name */

/* Names of environment variables that pass; a trailing * is a prefix. NULL-terminated. */
extern const char *const environment_table[];
