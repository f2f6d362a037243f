/* The one table of policy keys. Loading, error messages, `policy show`, JSON and the table in
 * docs/POLICY.md are all made from it. Private to src/policy and its tests. */
#pragma once

#include "policy/policy.h"

enum schema_type {
  SCHEMA_VERSION,   /* the number 1 */
  SCHEMA_CHOICE,    /* one of `words`, stored as its index */
  SCHEMA_WORD,      /* one of `words`, stored as text */
  SCHEMA_TEXT,      /* any text, or null */
  SCHEMA_BOOLEAN,   /* true or false */
  SCHEMA_COUNT,     /* a whole number from minimum to maximum, or null */
  SCHEMA_SECONDS,   /* the same, never null */
  SCHEMA_DECIMAL,   /* a number from minimum to maximum, or null */
  SCHEMA_LIST,      /* texts, each checked by `check` */
  SCHEMA_RULES,     /* paths or globs, each one rule of `kind` */
  SCHEMA_VARIABLES, /* a mapping of names to texts */
  SCHEMA_TYPE_COUNT
};

/* What a project store may do to a key before the user trusts it. */
enum schema_narrowing {
  NARROWING_NEVER,   /* nothing, unless it says what is true anyway */
  NARROWING_SMALLER, /* choices go from strict to loose and booleans from false to true */
  NARROWING_LIMIT,   /* the same, but 0 means without limit */
  NARROWING_ALWAYS,  /* it can only take away */
};

struct schema_key {
  const char *name; /* dotted: "network.mode" */
  enum schema_type type;
  size_t offset; /* in struct policy; unused for RULES and VERSION */
  enum schema_narrowing narrowing;
  const char *const *words;                /* NULL-terminated, for CHOICE and WORD */
  unsigned long long minimum, maximum;     /* for numbers */
  enum rule_kind kind;                     /* for RULES */
  const char *(*check)(const char *value); /* what is wrong with a list's entry, or NULL */
  bool org_final; /* what the organisation says can only be narrowed by others */
  const char *help;
};

extern const struct schema_key schema_table[]; /* ends with a NULL name */

/* What to write in place of a value that the key's check refuses, or NULL. */
char *schema_suggest(const struct schema_key *key, const char *value);

/* Key of a name in a section ("" at the top), or NULL. */
const struct schema_key *schema_find(const char *section, const char *name);
bool schema_is_section(const char *name);
size_t schema_index(const struct schema_key *key);
size_t schema_count(void);

/* What the author may have meant by an unknown key, as a dotted name; NULL if nothing is near. */
const char *schema_nearest(const char *section, const char *name);

/* A scalar as loading, comparing and showing see it; null is {0, NULL}. */
struct schema_value {
  double number;    /* choices, booleans, numbers */
  const char *text; /* words and texts */
};
struct schema_value schema_get(const struct policy *policy, const struct schema_key *key);
void schema_set(struct policy *policy, const struct schema_key *key, struct schema_value value);
bool schema_narrows(struct schema_value old, struct schema_value new, const struct schema_key *key);

/* The list behind LIST and VARIABLES. */
struct strv *schema_list(const struct policy *policy, const struct schema_key *key);

bool schema_is_scalar(const struct schema_key *key);

/* "none, filtered or full"; "a whole number from 1 to 100"; for messages and docs. New string. */
char *schema_describe(const struct schema_key *key);

/* The value as YAML ("null", "true", "512", "filtered"), escaped. New string. */
char *schema_show(const struct policy *policy, const struct schema_key *key);
