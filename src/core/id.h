/* What the names of sessions and questions are made of: 32 letters that are not taken for others
 * (no l, o, 0, 1). */
#pragma once

#define ID_LETTERS "abcdefghijkmnpqrstuvwxyz23456789"
