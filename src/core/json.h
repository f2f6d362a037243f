/* The few things every JSON producer here needs on top of Jansson. */
#pragma once

#include <jansson.h>

/* Sets key to the string, or to null for NULL. A byte string that is not UTF-8 is escaped. */
void json_set_string(json_t *object, const char *key, const char *string);

/* Sets key (escaped if not UTF-8) and key_b64 (always exact), so every path round-trips. */
void json_set_path(json_t *object, const char *key, const char *path);

/* What json_set_path wrote, byte by byte. New string; NULL if it is missing or wrong. */
char *json_get_path(const json_t *object, const char *key);

/* An array of strings, each as json_set_string would set it. */
json_t *json_string_array(char *const *items, size_t count);

/* Sets key to the array of strings, or key_b64 to their exact bytes if one is not UTF-8. */
void json_set_words(json_t *object, const char *key, char *const *items, size_t count);

/* Compact, in printable ASCII: nothing in it can move a terminal's cursor. New string; NULL if the
 * value cannot be written. */
char *json_plain(const json_t *value, size_t flags);

/* One line of compact JSON, newline included, as a new string. ASCII: what turns text around or
 * hides in it must not reach a terminal by way of JSON either. */
char *json_line(const json_t *value);

/* Base64 of any bytes, as a new string. */
char *base64_encode(const void *bytes, size_t length);

/* The bytes again, NUL-terminated, as a new string; NULL if it is not Base64. */
char *base64_decode(const char *text, size_t *ret_length);
