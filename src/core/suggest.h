/* "Did you mean ...?": the nearest of some valid words. Pure. */
#pragma once

#include <stddef.h>

/* The candidate that was most likely meant, or NULL if none is near enough to be worth naming.
 * Among equally near ones the first wins. NULL candidates are skipped. */
const char *suggest_nearest(const char *word, const char *const *candidates, size_t count);
