/* Policy as data: what the stores and flags say, merged, and the one function that decides.
 * Loading reads files; everything after that is pure. Nothing here starts, mounts or prints. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "core/arena.h"
#include "core/error.h"
#include "core/strv.h"

/* Merge order: a later store wins a tie (except that an org `hide` is final). */
enum policy_store { STORE_BUILTIN, STORE_ORG, STORE_PROJECT, STORE_USER, STORE_FLAGS, STORE_COUNT };

enum policy_mode { MODE_DYNAMIC, MODE_STATIC };
enum policy_require { REQUIRE_REQUIRED, REQUIRE_PREFERRED, REQUIRE_DISABLED };
enum seatbelt_profile { SEATBELT_RESTRICTIVE, SEATBELT_PERMISSIVE };
enum policy_network { NETWORK_NONE, NETWORK_FILTERED, NETWORK_FULL };

/* Where a rule or setting was written. `file` is NULL for the built-in tables and for flags. */
struct origin {
  enum policy_store store;
  const char *file;
  unsigned line, column;
};

enum rule_kind {
  RULE_READ,      /* readable */
  RULE_WRITE,     /* readable and writable */
  RULE_OVERLAY,   /* writable inside, the host's copy stays as it is */
  RULE_HIDE,      /* never readable, never asked */
  RULE_PROTECT,   /* readable, never writable, not creatable, inside a writable place */
  RULE_UNPROTECT, /* takes a built-in protected name back */
  RULE_LIST,      /* the names in this one folder, and nothing else */
  RULE_KIND_COUNT
};

/* All strings belong to the policy (its arena) or to the built-in tables. */
struct rule {
  enum rule_kind kind;
  const char *pattern;  /* absolute, expanded, normalised, resolved; literal path or glob */
  size_t length;        /* of the pattern; deciding compares it with hundreds of rules */
  bool is_glob;         /* has *, ? or [ ; `**` crosses folders */
  bool if_present_only; /* RULE_PROTECT: no placeholder is needed while the name does not exist */
  bool when_touched;    /* dynamic mode: granted when something first touches it */
  bool granted;        /* by an answer that was kept; dynamic mode can take it back while it runs */
  bool has_exceptions; /* built-in secret globs: secret_exceptions are not covered */
  const char *written; /* as the author wrote it, for messages; a flag with its name */
  const char *why;     /* built-in tables: what it protects; else NULL */
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
  size_t rule_count, rule_capacity;
  bool ask_writes, ask_secrets;

  struct {
    enum policy_network mode;
    struct strv allow, deny, unix_sockets, publish;
    struct strv granted; /* those of `allow` that answers which were kept have added */
    char *http_proxy, *socks_proxy, *driver;
    bool allow_local_binding, unix_datagrams;
  } network;

  struct limits limits;
  struct strv environment_pass; /* names, on top of the built-in allow-list */
  struct strv environment_set;  /* NAME=value */
  unsigned prompt_timeout_seconds;
  bool debug, containers, weaker_nested;
  struct {
    bool enabled, kvm;
    char *kernel; /* NULL: the newest of /boot */
  } vm;
  struct {
    char *image, *runtime; /* NULL: the usual ones */
    char *user;            /* keep | create */
  } container;
  char *nix; /* auto | on | off */
  struct {
    struct strv exclude;
    bool allow_unsandboxed, allow_bypass, auto_allow;
  } commands;
  struct {
    enum seatbelt_profile profile;
    char *custom_profile; /* a file to use instead of a generated profile */
  } seatbelt;

  /* Which store last set each schema key, by dotted name ("network.mode"); see policy_key_origin.
   */
  struct policy_key *keys;
  size_t key_count;

  /* What was written in an untrusted project store and not honoured, one sentence each. */
  struct strv ignored;

  struct strv protected_places; /* folders for which the protected names have become rules */
  bool resolved;                /* policy_resolve has run */
  struct arena strings;         /* what the rules and origins point to */
};

/* What the machine and the caller look like; policy text is expanded against it. */
struct policy_context {
  const char *home;         /* canonical; NULL if there is none */
  const char *account_home; /* canonical: of the account, where $HOME says otherwise; else NULL */
  const char *project;      /* canonical project root: what "." means in every store */
  const char *config_home;  /* $XDG_CONFIG_HOME or ~/.config; NULL if no home */
  const char *state_home;   /* $XDG_STATE_HOME or ~/.local/state; NULL if no home */
  const char *org_folder;   /* "/etc/sandbox" */
  char *const *environment;
};

/* Is what counts as the project one, or so large a place (the home folder, a part of the system)
 * that nobody could have meant all of it? Pure. */
bool policy_has_project(const struct policy_context *context);

/* Loads and merges built-in tables and every store that exists. A wrong file is an error naming
 * file:line:column, the bad value and the nearest valid key; then nothing is returned. */
int policy_load(const struct policy_context *context, struct policy **ret_policy,
                struct sb_error *error);

/* The built-in tables alone, without reading any file. */
struct policy *policy_new(const struct policy_context *context);

/* Adds what needs no question in dynamic mode: the system, toolchains, their caches, settings of
 * everyday tools. After all stores and flags: it yields to whatever they say. */
void policy_add_base(struct policy *policy, const struct policy_context *context);

/* What `nix` says: the daemon's socket joins network.unix_sockets, or /nix is hidden. After all
 * stores and flags, before the base. A daemon that would do anything for the caller is refused. */
int policy_settle_nix(struct policy *policy, const struct policy_context *context,
                      struct sb_error *error);

/* May the names in this folder be read without a question, though nothing in it may? */
bool policy_base_lists(const char *path);

/* Reads one file on top of a policy, for `policy check` and --policy FILE. What a project store
 * may not say without trust goes to policy->ignored. The policy is half changed on failure. */
int policy_load_file(const struct policy_context *context, const char *file,
                     enum policy_store store, struct policy *policy, struct sb_error *error);

/* Adds a rule from a command-line flag ("--rw" …); the path is relative to `base`. A name that
 * exists is taken literally; else it may be a glob. Rules move in memory: keep no pointers. */
int policy_add_flag(struct policy *policy, const struct policy_context *context,
                    enum rule_kind kind, const char *base, const char *path, const char *flag,
                    struct sb_error *error);

/* What the policy says about one more folder that may be written to: the rules that concern it, and
 * the protected names in it. Shares strings with the original, which must outlive it. */
struct policy *policy_for_place(const struct policy *policy, const struct policy_context *context,
                                const char *place);

/* Tells the policy that a scalar key was set by a flag, for `policy show` and errors. */
void policy_set_key_origin(struct policy *policy, const char *key, enum policy_store store,
                           const char *file, unsigned line);
const struct origin *policy_key_origin(const struct policy *policy, const char *key);

/* Adds the resolved names of built-in hidden and protected paths that are symbolic links (stored
 * rules are resolved when they are read). Whoever decides about resolved paths calls it once; the
 * plan compiler opens every such path anyway and need not. */
void policy_resolve(struct policy *policy);

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
  const struct rule *rule; /* the rule that decided; NULL if none matched */
  const char *secret;      /* to be asked about with a warning: what a file of such a name holds */
};

/* Decides for a resolved absolute path. Order: an org hide is final; else the most specific match
 * wins: the rule that names the path or the deepest folder above it; at the same depth a literal
 * beats a glob, more named components beat fewer, and fewer `**` beat more. A tie goes to the later
 * store, then to the stricter rule. In static mode everything else is readable, as by a built-in
 * `read: /`, which is in no list. Protected names are never writable unless unprotected. In dynamic
 * mode a file outside the project that is called like a secret is asked about as one, even if an
 * answer that was kept allows the folder around it. Never allocates. */
struct decision policy_decide(const struct policy *policy, const char *path, enum access access);

/* The rule by which the names in this very folder may be listed (RULE_LIST), or NULL; rather one
 * that nobody can take back. What is hidden stays so: policy_decide comes first. */
const struct rule *policy_find_list(const struct policy *policy, const char *path);

/* Is this a name that is protected by default, or was, and that somebody has taken back? */
bool policy_is_unprotected(const struct policy *policy, const char *path);

/* The same for the path that a literal hide rule names: is it hidden? Quick, for there are
 * hundreds.
 */
bool policy_hides_itself(const struct policy *policy, const struct rule *hide);

/* The best rule that lost against the one that decided, or NULL. */
const struct rule *policy_overridden(const struct policy *policy, const char *path,
                                     enum access access, const struct decision *decision);

/* True if the pattern of the rule covers the path (a literal covers itself and all below it). */
bool rule_matches(const struct rule *rule, const char *path);

/* Glob matching on whole paths: * and ? stay within a component, ** crosses, [..] sets. */
bool glob_match(const char *pattern, const char *path);

/* ---- trust of project stores ---- */

/* Records the content hash of <project>/.sandbox/policy.yaml (or `file`, if not NULL) as trusted by
 * this user for this project. The file must be valid. */
int policy_trust(const struct policy_context *context, const char *file, struct sb_error *error);

/* 1 if these very bytes are trusted for context->project, else 0. */
int policy_is_trusted(const struct policy_context *context, const void *data, size_t length);

/* The entries, "HASH PROJECT" with the project escaped. */
int policy_trust_list(const struct policy_context *context, struct strv *ret_entries,
                      struct sb_error *error);

/* Forgets every entry of context->project. Returns how many there were, or -1. */
int policy_trust_revoke(const struct policy_context *context, struct sb_error *error);

/* ---- showing ---- */

json_t *policy_to_json(const struct policy *policy);
json_t *rule_to_json(const struct rule *rule);

/* The merged policy as YAML with the origin of each value in a comment. New string. */
char *policy_to_text(const struct policy *policy);

/* "built-in", "flag" or "FILE:LINE:COLUMN", escaped. New string. */
char *origin_describe(const struct origin *origin);
const char *policy_store_name(enum policy_store store);
const char *rule_kind_name(enum rule_kind kind);

/* ~, $VAR and ${VAR}, then relative to base, then normalised. Error names the unset variable; an
 * empty one counts as unset, or "$DIR/cache" would become "/cache". */
int policy_expand(const struct policy_context *context, const char *base, const char *text,
                  char **ret_path, struct sb_error *error);

/* ---- the built-in tables, one file each ---- */

struct secret {
  const char
      *pattern; /* "~/.ssh", "/etc/shadow", "**" "/.env" (below the project), "$KUBECONFIG" */
  const char *why;
};
extern const struct secret secret_table[]; /* ends with a NULL pattern */

/* Patterns that take a file back from a built-in secret glob (".env.example" is no secret). */
extern const char *const secret_exceptions[]; /* NULL-terminated */

/* Those lines of the table that are names in any folder ("**" "/.env"). Inside the project they are
 * rules that hide; elsewhere they make a question one about a secret. */
extern const struct secret secret_names[]; /* ends with a NULL pattern */

/* What a file of this name holds if it is the name of a secret; else NULL. Pure, and quick for any
 * other name. */
const char *secret_of_name(const char *name, size_t length);

/* The same for the components of a path after its first `skip` bytes: for what lies below, too. */
const char *secret_of_path(const char *path, size_t skip);

/* Is the name one of secret_exceptions? */
bool secret_is_exception(const char *name, size_t length);

struct protected_name {
  const char *name; /* relative to a writable place: ".git/hooks", ".mcp.json" */
  const char *why;
  bool if_present_only; /* creating it would not make a host tool run anything by itself */
  bool at_home; /* in the home folder never creatable; elsewhere only guarded with the above */
};
extern const struct protected_name protected_table[]; /* ends with a NULL name */

/* Names of environment variables that pass; a trailing * is a prefix. NULL-terminated. */
extern const char *const environment_table[];

/* True if a variable of the caller's environment reaches the workload: by the built-in list or by
 * environment.pass. Pure. */
bool environment_passes(const struct policy *policy, const char *name);

/* A literal path as a pattern that matches only itself, for machine-written rules. It is UTF-8:
 * what is not is written as \xNN. New string. */
char *policy_escape_path(const char *path);

/* The same as a word of a policy file: '/opt/sdk', or in double quotes with escapes where the name
 * needs them. New string. */
char *policy_quote_path(const char *path);
