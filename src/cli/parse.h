/* From words to an invocation, by the tables. Pure: no I/O, nothing is printed. */
#pragma once

#include "cli/cli.h"

/* Parses the NULL-terminated words that follow the verb. Values and operands point into them. */
int cli_parse(const struct verb *verb, char **arguments, struct invocation *ret_invocation,
              struct sb_error *error);

void invocation_clear(struct invocation *invocation);
#define _cleanup_invocation_ __attribute__((cleanup(invocation_clear)))

/* Looks a verb up by name; the error suggests the nearest one that is not hidden. */
int cli_find_verb(const struct verb *const *table, const char *name, const struct verb **ret_verb,
                  struct sb_error *error);

/* True if the words seem to ask for --json: for reporting an error in these very words. */
bool cli_wants_json(const struct verb *verb, char *const *arguments);
