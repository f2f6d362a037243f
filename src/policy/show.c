/* A policy for people and for programs. Pure; everything that an author wrote is escaped on its way
 * out, for a project's policy is written by strangers. */
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/text.h"
#include "policy/load.h"
#include "policy/schema.h"

enum { COMMENT_COLUMN = 40 };

char *origin_describe(const struct origin *origin) {
  if (!origin->file)
    return xstrdup(origin->store == STORE_FLAGS ? "flag" : policy_store_name(origin->store));
  _cleanup_free_ char *file = escape_string(origin->file);
  if (origin->column == 0)
    return xasprintf("%s:%u", file, origin->line);
  return xasprintf("%s:%u:%u", file, origin->line, origin->column);
}

/* ---- text ---- */

static void append_line(struct text *text, size_t start, const char *comment) {
  size_t width = text->length - start;
  text_appendf(text, "%*s# %s\n", width < COMMENT_COLUMN ? (int)(COMMENT_COLUMN - width) : 1, "",
               comment);
}

/* A YAML double-quoted string where a plain one could be read as something else. */
static void append_text(struct text *text, const char *value) {
  _cleanup_free_ char *escaped = escape_string(value);
  bool plain = *value && strcmp(value, escaped) == 0 && !strpbrk(value, "*[]{}:#&!|>'\"%@` ,") &&
               !strchr("-?~", *value);
  text_appendf(text, plain ? "%s" : "\"%s\"", escaped);
}

static void append_rules(struct text *text, const struct policy *policy, enum rule_kind kind) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind != kind)
      continue;
    size_t start = text->length;
    text_append(text, "    - ");
    append_text(text, rule->pattern);
    _cleanup_free_ char *origin = origin_describe(&rule->origin);
    _cleanup_free_ char *comment =
        rule->why ? xasprintf("%s: %s", origin, rule->why) : steal_pointer(origin);
    append_line(text, start, comment);
  }
}

static void append_list(struct text *text, const struct strv *list) {
  STRV_FOREACH (item, list) {
    text_append(text, "    - ");
    append_text(text, *item);
    text_append_char(text, '\n');
  }
}

static void append_key(struct text *text, const struct policy *policy,
                       const struct schema_key *key) {
  const char *dot = strchr(key->name, '.');
  size_t start = text->length;
  text_appendf(text, "%s%s:", dot ? "  " : "", dot ? dot + 1 : key->name);
  _cleanup_free_ char *origin = origin_describe(&policy->keys[schema_index(key)].origin);
  if (key->type == SCHEMA_RULES) {
    text_append_char(text, '\n');
    append_rules(text, policy, key->kind);
  } else if (schema_is_scalar(key)) {
    _cleanup_free_ char *value = schema_show(policy, key);
    text_appendf(text, " %s", value);
    append_line(text, start, origin);
  } else if (key->type == SCHEMA_VERSION) {
    text_append(text, " 1\n");
  } else {
    const struct strv *list = schema_list(policy, key);
    text_append(text, list->count ? "" : " []");
    append_line(text, start, origin);
    append_list(text, list);
  }
}

char *policy_to_text(const struct policy *policy) {
  struct text text = {0};
  size_t section = 0;
  const char *previous = "";
  for (const struct schema_key *key = schema_table; key->name; key++) {
    size_t length = strchr(key->name, '.') ? strcspn(key->name, ".") : 0;
    if (length > 0 && (length != section || strncmp(previous, key->name, length) != 0))
      text_appendf(&text, "%.*s:\n", (int)length, key->name);
    section = length;
    previous = key->name;
    append_key(&text, policy, key);
  }
  STRV_FOREACH (sentence, &policy->ignored)
    text_appendf(&text, "# ignored: %s\n", *sentence);
  return text_steal(&text);
}

/* ---- JSON ---- */

static json_t *origin_to_json(const struct origin *origin) {
  json_t *object = json_object();
  json_set_string(object, "store", policy_store_name(origin->store));
  if (origin->file) {
    json_set_path(object, "file", origin->file);
    json_object_set_new(object, "line", json_integer(origin->line));
    json_object_set_new(object, "column", json_integer(origin->column));
  }
  return object;
}

json_t *rule_to_json(const struct rule *rule) {
  if (!rule)
    return json_null();
  json_t *object = json_object();
  json_set_string(object, "kind", rule_kind_name(rule->kind));
  json_set_path(object, "pattern", rule->pattern);
  json_object_set_new(object, "glob", json_boolean(rule->is_glob));
  json_set_string(object, "written", rule->written);
  json_set_string(object, "why", rule->why);
  if (rule->kind == RULE_PROTECT)
    json_object_set_new(object, "ifPresentOnly", json_boolean(rule->if_present_only));
  json_object_set_new(object, "origin", origin_to_json(&rule->origin));
  return object;
}

static json_t *number_to_json(double number) {
  if (number == 0)
    return json_null();
  return number == (double)(json_int_t)number ? json_integer((json_int_t)number)
                                              : json_real(number);
}

static json_t *paths_to_json(const struct policy *policy, enum rule_kind kind) {
  json_t *array = json_array();
  for (size_t i = 0; i < policy->rule_count; i++) {
    if (policy->rules[i].kind != kind)
      continue;
    char *pattern = (char *)policy->rules[i].pattern;
    json_t *one = json_string_array(&pattern, 1);
    json_array_extend(array, one);
    json_decref(one);
  }
  return array;
}

static json_t *variables_to_json(const struct strv *list) {
  json_t *object = json_object();
  STRV_FOREACH (item, list) {
    size_t length = strcspn(*item, "=");
    _cleanup_free_ char *name = xstrndup(*item, length);
    json_set_string(object, name, *item + length + 1);
  }
  return object;
}

static json_t *text_to_json(const char *text) {
  json_t *holder = json_object();
  json_set_string(holder, "text", text);
  json_t *value = json_incref(json_object_get(holder, "text"));
  json_decref(holder);
  return value;
}

static json_t *value_to_json(const struct policy *policy, const struct schema_key *key) {
  struct schema_value value = schema_get(policy, key);
  switch (key->type) {
  case SCHEMA_VERSION:
    return json_integer(1);
  case SCHEMA_CHOICE:
    return json_string(key->words[(unsigned)value.number]);
  case SCHEMA_BOOLEAN:
    return json_boolean(value.number != 0);
  case SCHEMA_WORD:
  case SCHEMA_TEXT:
    return text_to_json(value.text);
  case SCHEMA_LIST:
    return json_string_array(schema_list(policy, key)->items, schema_list(policy, key)->count);
  case SCHEMA_RULES:
    return paths_to_json(policy, key->kind);
  case SCHEMA_VARIABLES:
    return variables_to_json(schema_list(policy, key));
  default:
    return number_to_json(value.number);
  }
}

static void set_dotted(json_t *root, const char *name, json_t *value) {
  const char *dot = strchr(name, '.');
  if (!dot) {
    json_object_set_new(root, name, value);
    return;
  }
  _cleanup_free_ char *section = xstrndup(name, (size_t)(dot - name));
  if (!json_object_get(root, section))
    json_object_set_new(root, section, json_object());
  json_object_set_new(json_object_get(root, section), dot + 1, value);
}

json_t *policy_to_json(const struct policy *policy) {
  json_t *root = json_object(), *settings = json_object(), *origins = json_object();
  for (const struct schema_key *key = schema_table; key->name; key++) {
    set_dotted(settings, key->name, value_to_json(policy, key));
    if (key->type != SCHEMA_RULES && key->type != SCHEMA_VERSION)
      json_object_set_new(origins, key->name,
                          origin_to_json(&policy->keys[schema_index(key)].origin));
  }
  json_t *rules = json_array();
  for (size_t i = 0; i < policy->rule_count; i++)
    json_array_append_new(rules, rule_to_json(&policy->rules[i]));
  json_object_set_new(root, "policy", settings);
  json_object_set_new(root, "origins", origins);
  json_object_set_new(root, "rules", rules);
  json_object_set_new(root, "ignored",
                      json_string_array(policy->ignored.items, policy->ignored.count));
  return root;
}
