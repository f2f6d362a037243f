/* Making rules: expansion, resolution and the protected names that follow from a writable place.
 * Private to src/policy. */
#pragma once

#include "policy/policy.h"

/* The value of a variable in the caller's environment, NULL if unset or empty. */
const char *context_variable(const struct policy_context *context, const char *name);

/* The same as policy_expand, for a pattern: what is inserted is escaped, so that a project called
 * "[x]" stays a literal name. */
int expand_pattern(const struct policy_context *context, const char *base, const char *text,
                   char **ret_pattern, struct sb_error *error);

/* Adds what the author wrote as one rule, or as two where a hidden or protected name and its
 * resolved name differ. Errors have no location yet: the caller knows it. */
int rules_add(struct policy *policy, const struct policy_context *context, const char *base,
              const char *text, const struct rule *template, struct sb_error *error);

/* The canonical name: links of the part that exists resolved, the rest as it is. New string. */
char *rules_resolve(const char *path);

/* Appends one finished rule whose strings the policy already owns. */
struct rule *rules_push(struct policy *policy, const struct rule *rule);

/* The protected names below a folder that becomes writable (and below the home and project folders
 * in it), once per folder. */
void rules_protect_place(struct policy *policy, const struct policy_context *context,
                         const char *place);

/* Fills in the built-in tables. */
void rules_add_builtin(struct policy *policy, const struct policy_context *context);
