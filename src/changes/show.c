/* Changes for people and programs; see changes.h. The text is made from the JSON, so that
 * `sandbox report` shows later what the end of the session showed. */
#include <string.h>
#include <sys/stat.h>

#include "changes/changes.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/text.h"

/* ---- JSON ---- */

static json_t *flags_to_json(unsigned flags) {
  json_t *array = json_array();
  for (size_t i = 0; i < CHANGE_FLAG_COUNT; i++)
    if (flags & 1u << i)
      json_array_append_new(array, json_string(change_flag_name((enum change_flag)(1 << i))));
  return array;
}

static json_t *change_to_json(const struct change *change) {
  json_t *object = json_object();
  json_set_string(object, "kind", change_kind_name(change->kind));
  json_set_path(object, "place", change->place);
  json_set_path(object, "path", change->path);
  json_set_string(object, "type", change_type_name(change->mode));
  if (change->kind != CHANGE_DELETED) {
    char mode[8];
    snprintf(mode, sizeof mode, "%04o", (unsigned)(change->mode & 07777));
    json_set_string(object, "mode", mode);
  }
  if (change->kind == CHANGE_MODIFIED)
    json_object_set_new(object, "contents", json_boolean(change->contents));
  json_object_set_new(object, "dangerous", json_boolean(change->flags & CHANGE_DANGEROUS));
  json_object_set_new(object, "flags", flags_to_json(change->flags));
  json_set_string(object, "reason", change->reason);
  return object;
}

json_t *changes_to_json(const struct changes *changes) {
  json_t *object = json_object(), *items = json_array();
  for (size_t i = 0; i < CHANGE_KIND_COUNT; i++)
    json_object_set_new(object, change_kind_name((enum change_kind)i),
                        json_integer((json_int_t)changes->totals[i]));
  json_object_set_new(object, "dangerous", json_integer((json_int_t)changes->dangerous));
  json_object_set_new(object, "left_out", json_integer((json_int_t)changes->left_out));
  json_object_set_new(object, "unreadable", json_integer((json_int_t)changes->unreadable));
  json_object_set_new(object, "complete", json_boolean(changes->complete));
  json_object_set_new(object, "milliseconds", json_integer(changes->milliseconds));
  for (size_t i = 0; i < changes->count; i++)
    json_array_append_new(items, change_to_json(&changes->items[i]));
  json_object_set_new(object, "items", items);
  return object;
}

/* ---- text ---- */

static const char *string_of(const json_t *object, const char *key) {
  const char *string = json_string_value(json_object_get(object, key));
  return string ? string : "";
}

static long long number_of(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

static bool is_true(const json_t *object, const char *key) {
  return json_is_true(json_object_get(object, key));
}

static bool is_flagged(const json_t *item) {
  return json_array_size(json_object_get(item, "flags")) > 0;
}

static void append_reasons(struct text *text, const json_t *item) {
  const char *separator = ": ", *reason = string_of(item, "reason");
  const json_t *flags = json_object_get(item, "flags");
  for (size_t i = 0; i < json_array_size(flags); i++) {
    const char *name = json_string_value(json_array_get(flags, i));
    for (size_t bit = 0; name && bit < CHANGE_FLAG_COUNT; bit++) {
      enum change_flag flag = (enum change_flag)(1 << bit);
      if (strcmp(name, change_flag_name(flag)) != 0)
        continue;
      bool has_own_words = flag & (CHANGE_PROTECTED | CHANGE_RUN_LATER) && *reason;
      text_appendf(text, "%s%s", separator, has_own_words ? reason : change_flag_text(flag));
      separator = ", ";
    }
  }
}

/* json_set_path has already escaped what is not UTF-8; escaping that again would double it. */
static void append_name(struct text *text, const json_t *item) {
  const char *path = string_of(item, "path");
  size_t length = strlen(path);
  _cleanup_free_ char *encoded = base64_encode(path, length);
  if (strcmp(encoded, string_of(item, "path_b64")) == 0)
    escape_append(text, path, length);
  else
    text_append(text, path);
}

static void append_item(struct text *text, const json_t *item) {
  bool is_folder = strcmp(string_of(item, "type"), "folder") == 0;
  text_appendf(text, "  %-9s ", string_of(item, "kind"));
  append_name(text, item);
  text_append(text, is_folder ? "/" : "");
  append_reasons(text, item);
  text_append_char(text, '\n');
}

/* True if the item lies in the folder that was shown last, as all of it was made or removed. */
static bool is_covered(const json_t *item, const json_t *folder) {
  if (!folder || strcmp(string_of(item, "kind"), string_of(folder, "kind")) != 0 ||
      strcmp(string_of(item, "place"), string_of(folder, "place")) != 0)
    return false;
  const char *name = string_of(folder, "path"), *path = string_of(item, "path");
  size_t length = strlen(name);
  return strncmp(path, name, length) == 0 && path[length] == '/';
}

/* One of the two parts: what deserves a look, or the rest. Returns how many were not shown. */
static size_t append_part(struct text *text, const json_t *items, bool flagged, size_t lines) {
  const json_t *folder = NULL;
  size_t hidden = 0;
  for (size_t i = 0; i < json_array_size(items); i++) {
    const json_t *item = json_array_get(items, i);
    if (is_flagged(item) != flagged || (!flagged && is_covered(item, folder)))
      continue;
    if (!flagged && strcmp(string_of(item, "type"), "folder") == 0)
      folder = item;
    if (lines > 0)
      append_item(text, item);
    hidden += lines == 0;
    lines -= lines > 0;
  }
  return hidden;
}

static void append_limits(struct text *text, const json_t *json) {
  if (!is_true(json, "complete"))
    text_appendf(text, "incomplete: stopped after %lld ms\n", number_of(json, "milliseconds"));
  if (number_of(json, "unreadable") > 0)
    text_appendf(text, "%lld folders could not be read\n", number_of(json, "unreadable"));
}

static void append_titled(struct text *text, const char *title, const json_t *items, bool flagged,
                          size_t lines, size_t left_out) {
  _cleanup_text_ struct text part = {0};
  size_t hidden = append_part(&part, items, flagged, lines) + left_out;
  if (part.length == 0 && hidden == 0)
    return;
  text_appendf(text, "%s:\n%s", title, text_string(&part));
  if (hidden)
    text_appendf(text, "  and %zu more\n", hidden);
}

char *changes_json_to_text(const json_t *json, size_t lines) {
  struct text text = {0};
  const json_t *items = json_object_get(json, "items");
  size_t left_out = (size_t)number_of(json, "left_out");
  text_append(&text, "");
  if (json_array_size(items) > 0) {
    text_appendf(&text, "%lld created, %lld modified, %lld deleted\n", number_of(json, "created"),
                 number_of(json, "modified"), number_of(json, "deleted"));
    append_titled(&text, "worth a look", items, true, lines, 0);
    append_titled(&text, "changed", items, false, lines, left_out);
  }
  append_limits(&text, json);
  return text_steal(&text);
}

char *changes_to_text(const struct changes *changes, size_t lines) {
  json_t *json = changes_to_json(changes);
  char *text = changes_json_to_text(json, lines);
  json_decref(json);
  return text;
}
