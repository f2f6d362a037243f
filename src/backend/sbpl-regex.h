/* Our globs as the regular expressions of Seatbelt profiles (POSIX extended, whole paths). Pure. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/text.h"

/* What an inexact translation must err towards. A rule that takes something away matches in either
 * case (macOS file systems usually do not tell `.Git` from `.git`) and rather one name too many. It
 * does so from this byte of the pattern on: what is before is the name of a folder that exists. */
struct regex_bias {
  bool wide;
  size_t from;
};

/* Appends the expression for what the glob covers: its matches and all below them. */
void regex_append_glob(struct text *text, const char *pattern, struct regex_bias bias);

/* The same for a literal path. */
void regex_append_path(struct text *text, const char *path, struct regex_bias bias);

/* For what the glob matches itself, nothing below. */
void regex_append_glob_itself(struct text *text, const char *pattern, struct regex_bias bias);

/* For a file's name, in whatever folder it is. */
void regex_append_name(struct text *text, const char *pattern);

/* What of the glob can match strictly below a folder: calls back with one expression for each way.
 */
typedef void regex_visit(void *context, const char *expression);
void regex_below(const char *pattern, const char *folder, bool wide, regex_visit *visit,
                 void *context);
