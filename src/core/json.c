/* JSON helpers on top of Jansson; see json.h. */
#include "core/json.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"

#define DELETE '\x7f' /* a control character that Jansson takes for a letter */

static json_t *string_value(const char *string) {
  if (!string)
    return json_null();
  json_t *value = json_string(string);
  if (value)
    return value;
  _cleanup_free_ char *escaped = escape_string(string);
  return json_string(escaped);
}

void json_set_string(json_t *object, const char *key, const char *string) {
  json_object_set_new(object, key, string_value(string));
}

void json_set_path(json_t *object, const char *key, const char *path) {
  json_set_string(object, key, path);
  if (!path)
    return;
  _cleanup_free_ char *encoded_key = xasprintf("%s_b64", key);
  _cleanup_free_ char *encoded = base64_encode(path, strlen(path));
  json_object_set_new(object, encoded_key, json_string(encoded));
}

char *json_get_path(const json_t *object, const char *key) {
  _cleanup_free_ char *encoded_key = xasprintf("%s_b64", key);
  const char *encoded = json_string_value(json_object_get(object, encoded_key));
  size_t length;
  _cleanup_free_ char *path = encoded ? base64_decode(encoded, &length) : NULL;
  return path && strlen(path) == length ? steal_pointer(path) : NULL;
}

json_t *json_string_array(char *const *items, size_t count) {
  json_t *array = json_array();
  for (size_t i = 0; i < count; i++)
    json_array_append_new(array, string_value(items[i]));
  return array;
}

static json_t *exact_words(char *const *items, size_t count) {
  json_t *array = json_array();
  for (size_t i = 0; i < count; i++)
    json_array_append_new(array, json_string(items[i]));
  if (json_array_size(array) == count)
    return array;
  json_decref(array); /* one was refused */
  return NULL;
}

void json_set_words(json_t *object, const char *key, char *const *items, size_t count) {
  json_t *array = exact_words(items, count);
  if (array) {
    json_object_set_new(object, key, array);
    return;
  }
  _cleanup_free_ char *encoded_key = xasprintf("%s_b64", key);
  array = json_array();
  for (size_t i = 0; i < count; i++) {
    _cleanup_free_ char *encoded = base64_encode(items[i], strlen(items[i]));
    json_array_append_new(array, json_string(encoded));
  }
  json_object_set_new(object, encoded_key, array);
}

char *json_plain(const json_t *value, size_t flags) {
  _cleanup_free_ char *dumped = json_dumps(value, JSON_COMPACT | JSON_ENSURE_ASCII | flags);
  if (!dumped || !strchr(dumped, DELETE))
    return steal_pointer(dumped);
  struct text text = {0};
  for (const char *at = dumped; *at; at++)
    *at == DELETE ? text_append(&text, "\\u007f") : text_append_char(&text, *at);
  return text_steal(&text);
}

char *json_line(const json_t *value) {
  _cleanup_free_ char *compact = json_plain(value, JSON_ENCODE_ANY);
  return xasprintf("%s\n", compact ? compact : "null");
}

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

char *base64_encode(const void *bytes, size_t length) {
  const unsigned char *in = bytes;
  char *out = xmalloc((length + 2) / 3 * 4 + 1), *at = out;
  for (size_t i = 0; i < length; i += 3) {
    size_t left = length - i;
    unsigned group = (unsigned)in[i] << 16 | (left > 1 ? (unsigned)in[i + 1] << 8 : 0) |
                     (left > 2 ? in[i + 2] : 0);
    *at++ = digits[group >> 18];
    *at++ = digits[group >> 12 & 63];
    *at++ = left > 1 ? digits[group >> 6 & 63] : '=';
    *at++ = left > 2 ? digits[group & 63] : '=';
  }
  *at = '\0';
  return out;
}

/* Three bytes of four digits; `padding` of them count as nothing. */
static bool decode_group(const char group[4], size_t padding, unsigned char out[3]) {
  unsigned value = 0;
  for (size_t i = 0; i < 4; i++) {
    const char *digit = i < 4 - padding ? strchr(digits, group[i]) : digits;
    if (!digit || !*digit)
      return false;
    value = value << 6 | (unsigned)(digit - digits);
  }
  out[0] = (unsigned char)(value >> 16);
  out[1] = (unsigned char)(value >> 8);
  out[2] = (unsigned char)value;
  return true;
}

char *base64_decode(const char *text, size_t *ret_length) {
  size_t length = strlen(text);
  if (length % 4 != 0)
    return NULL;
  size_t padding = length && text[length - 1] == '=' ? 1 + (text[length - 2] == '=') : 0;
  _cleanup_free_ unsigned char *out = xmalloc(length / 4 * 3 + 1);
  for (size_t i = 0; i < length; i += 4)
    if (!decode_group(text + i, i + 4 == length ? padding : 0, out + i / 4 * 3))
      return NULL;
  *ret_length = length / 4 * 3 - padding;
  out[*ret_length] = '\0';
  return (char *)steal_pointer(out);
}
