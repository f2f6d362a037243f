/* Policies as files and as differences; see export.h. */
#include "policy/export.h"

#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"
#include "policy/load.h"
#include "policy/schema.h"
#include "policy/yaml.h"

/* ---- which values ---- */

static bool is_of(const struct origin *origin, enum policy_store store) {
  return store == STORE_COUNT ? origin->store != STORE_BUILTIN : origin->store == store;
}

/* Another store says something else about the very same pattern, and wins. */
static bool is_overruled(const struct policy *policy, const struct rule *rule) {
  bool final = rule->kind == RULE_HIDE && rule->origin.store == STORE_ORG;
  for (size_t i = 0; !final && i < policy->rule_count; i++) {
    const struct rule *other = &policy->rules[i];
    bool decides = other->kind <= RULE_HIDE;
    bool org_hides = other->kind == RULE_HIDE && other->origin.store == STORE_ORG;
    if (rule->kind > RULE_HIDE || !decides || other->kind == rule->kind)
      continue;
    if (strcmp(other->pattern, rule->pattern) == 0 &&
        (org_hides || other->origin.store > rule->origin.store))
      return true;
    if (org_hides && !rule->is_glob && rule_matches(other, rule->pattern))
      return true;
  }
  return false;
}

/* The entries of a list key as their author wrote them, each once. */
static void collect_rules(const struct policy *policy, const struct schema_key *key,
                          enum policy_store store, struct strv *ret_items) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind != key->kind || !is_of(&rule->origin, store) ||
        (store == STORE_COUNT && is_overruled(policy, rule)))
      continue;
    if (!strv_contains(ret_items, rule->written))
      strv_add(ret_items, rule->written);
  }
}

static void collect(const struct policy *policy, const struct schema_key *key,
                    enum policy_store store, struct strv *ret_items) {
  if (key->type == SCHEMA_RULES) {
    collect_rules(policy, key, store, ret_items);
    return;
  }
  const struct strv *list = schema_list(policy, key);
  bool paths = list == &policy->network.unix_sockets; /* expanded when they were loaded */
  STRV_FOREACH (item, list)
    strv_take(ret_items, paths ? policy_escape_path(*item) : xstrdup(*item));
}

static bool is_set(const struct policy *policy, const struct schema_key *key,
                   enum policy_store store) {
  return is_of(&policy->keys[schema_index(key)].origin, store);
}

/* ---- YAML ---- */

static void append_scalar(struct text *text, const struct policy *policy,
                          const struct schema_key *key) {
  struct schema_value value = schema_get(policy, key);
  _cleanup_free_ char *shown = schema_show(policy, key);
  if ((key->type == SCHEMA_TEXT || key->type == SCHEMA_WORD) && value.text)
    (void)yaml_append_text(text, value.text); /* UTF-8: it was read from a file */
  else
    text_append(text, shown);
  text_append_char(text, '\n');
}

static void append_items(struct text *text, const struct schema_key *key,
                         const struct strv *items) {
  text_append_char(text, '\n');
  STRV_FOREACH (item, items) {
    const char *value = *item;
    text_append(text, "    ");
    if (key->type == SCHEMA_VARIABLES) {
      size_t length = strcspn(value, "=");
      text_appendf(text, "%.*s: ", (int)length, value);
      (void)yaml_append_quoted(text, value + length + 1);
    } else {
      text_append(text, "- ");
      (void)yaml_append_text(text, value);
    }
    text_append_char(text, '\n');
  }
}

/* Appends "section:" before the first key of it. */
static void append_name(struct text *text, const char *name, char section[32]) {
  const char *dot = strchr(name, '.');
  size_t length = dot ? (size_t)(dot - name) : 0;
  if (dot && (strncmp(section, name, length) != 0 || section[length] != '\0')) {
    text_appendf(text, "%.*s:\n", (int)length, name);
    memcpy(section, name, length);
    section[length] = '\0';
  }
  text_appendf(text, "%s%s:", dot ? "  " : "", dot ? dot + 1 : name);
}

char *policy_to_yaml(const struct policy *policy, enum policy_store store, const char *comment) {
  struct text text = {0};
  char section[32] = "";
  text_append(&text, comment ? comment : "");
  text_append(&text, "version: 1\n");
  for (const struct schema_key *key = schema_table; key->name; key++) {
    _cleanup_strv_ struct strv items = {0};
    if (key->type == SCHEMA_VERSION)
      continue;
    if (schema_is_scalar(key)) {
      if (!is_set(policy, key, store))
        continue;
      append_name(&text, key->name, section);
      text_append_char(&text, ' ');
      append_scalar(&text, policy, key);
      continue;
    }
    collect(policy, key, store, &items);
    if (items.count == 0)
      continue;
    append_name(&text, key->name, section);
    append_items(&text, key, &items);
  }
  return text_steal(&text);
}

/* ---- lines and differences ---- */

void policy_to_lines(const struct policy *policy, enum policy_store store, struct strv *ret_lines) {
  for (const struct schema_key *key = schema_table; key->name; key++) {
    _cleanup_strv_ struct strv items = {0};
    if (key->type == SCHEMA_VERSION)
      continue;
    if (schema_is_scalar(key)) {
      _cleanup_free_ char *value = schema_show(policy, key);
      if (is_set(policy, key, store))
        strv_addf(ret_lines, "%s: %s", key->name, value);
      continue;
    }
    collect(policy, key, store, &items);
    STRV_FOREACH (item, &items)
      strv_addf(ret_lines, "%s: %s", key->name, *item);
  }
}

void policy_differ(const struct strv *before, const struct strv *after,
                   struct policy_difference *ret_difference) {
  STRV_FOREACH (line, before)
    if (!strv_contains(after, *line))
      strv_add(&ret_difference->removed, *line);
  STRV_FOREACH (line, after)
    if (!strv_contains(before, *line))
      strv_add(&ret_difference->added, *line);
}

void policy_difference_clear(struct policy_difference *difference) {
  strv_clear(&difference->removed);
  strv_clear(&difference->added);
}

static void append_lines(struct text *text, char sign, const struct strv *lines) {
  STRV_FOREACH (line, lines) {
    text_appendf(text, "%c ", sign);
    escape_append(text, *line, strlen(*line));
    text_append_char(text, '\n');
  }
}

char *policy_difference_to_text(const struct policy_difference *difference) {
  struct text text = {0};
  text_append(&text, "");
  append_lines(&text, '-', &difference->removed);
  append_lines(&text, '+', &difference->added);
  return text_steal(&text);
}
