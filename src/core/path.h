/* Paths as byte strings, lexically: no file system is touched here. Comparison is by component, so
 * "/opt/sdk" never covers "/opt/sdk-evil". */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* "a/b" under "/x" is "/x/a/b"; an absolute second part wins. New string, normalised. */
char *path_join(const char *base, const char *relative);

/* Removes "//", "/./" and a trailing "/", and resolves ".." lexically. New string. */
char *path_normalize(const char *path);

/* True if path_normalize would return it as it is: absolute, no "//", "." or "..". */
bool path_is_normal(const char *path);

/* True if path is ancestor itself or lies below it. Both normalised and absolute. */
bool path_is_under(const char *path, const char *ancestor);

/* The part of path below ancestor ("" if equal), or NULL if it is not below it. */
const char *path_below(const char *path, const char *ancestor);

/* Number of components of a normalised absolute path: 0 for "/", 2 for "/usr/lib". */
size_t path_depth(const char *path);

/* The last component; "" for "/". Points into path. */
const char *path_base(const char *path);

/* Everything before the last component ("/" for "/usr"). New string. */
char *path_parent(const char *path);

/* Does the text end so? "/a/x.toml" with ".toml". */
bool path_ends_with(const char *path, const char *end);
