/* Globs over paths as byte strings. Pure, never allocates while matching, and the work is bounded
 * by (components of the pattern) x (components of the path): no pattern can make it explode. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What is wrong with a pattern, as the end of a sentence ("has a [ without ]"); NULL if nothing. */
const char *glob_problem(const char *pattern);

/* True if the pattern has *, ? or [ that is not escaped by a backslash. */
bool glob_has_wildcards(const char *pattern);

/* Number of components that the deepest match of the pattern takes of the path, counting the path
 * itself and every folder above it: a glob covers what lies below a match. -1 if none matches. */
ssize_t glob_match_depth(const char *pattern, const char *path);

/* One component against one name; neither contains a slash. */
bool glob_match_name(const char *pattern, size_t pattern_length, const char *name,
                     size_t name_length);

/* How much a pattern says: components without wildcards, and components that are `**`. */
struct glob_weight {
  unsigned named, crossing;
};
struct glob_weight glob_weigh(const char *pattern);

/* A literal path as a pattern that matches only itself. New string. */
char *glob_escape(const char *literal);

/* Removes the backslashes of a pattern without wildcards, in place. */
void glob_unescape(char *pattern);
