/* Many globs over one directory walk. Most patterns in practice are a double star and a name, so
 * the set answers for nearly every file from its last component alone, without running a matcher.
 */
#pragma once

#include <stddef.h>

struct glob_set;

/* Patterns are relative to the folder that will be walked; each has passed glob_problem. */
struct glob_set *glob_set_new(const char *const *patterns, size_t count);

/* Index of a pattern that matches the relative path, -1 if none does. `base` is the path's last
 * component, in it. A hit is a candidate, not a verdict: ask policy_decide, which knows exceptions.
 */
int glob_set_match(const struct glob_set *set, const char *path, const char *base);

void glob_set_free(struct glob_set *set);
