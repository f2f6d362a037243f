/* What the names of sessions and questions are made of: 32 letters that are not taken for others
 * (no l, o, 0, 1). */
#pragma once

#include <stddef.h>

#define ID_LETTERS "abcdefghijkmnpqrstuvwxyz23456789"

/* Draws so many letters, that nobody can guess, and ends them with a NUL byte. */
void id_draw(char *ret_id, size_t length);
