/* "Did you mean": the candidate nearest to what a person typed. Pure. */
#pragma once

#include <stddef.h>

/* Letters to insert, delete, change or swap to get from one word to the other. Words longer than 63
 * bytes count as far from everything. */
size_t edit_distance(const char *first, const char *second);

/* The nearest of a NULL-terminated list, or NULL if none is near enough to be meant. */
const char *nearest_word(const char *word, const char *const *candidates);
