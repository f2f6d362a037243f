/* JSON helpers on top of Jansson; see json.h. */
#include "core/json.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"

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

json_t *json_string_array(char *const *items, size_t count) {
  json_t *array = json_array();
  for (size_t i = 0; i < count; i++)
    json_array_append_new(array, string_value(items[i]));
  return array;
}

char *json_line(const json_t *value) {
  _cleanup_free_ char *compact = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  return xasprintf("%s\n", compact ? compact : "null");
}

char *base64_encode(const void *bytes, size_t length) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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
