/* The frame of all importers: finding the right one, walking the settings by its table, and writing
 * what came out as our YAML. */
#include "policy/importers/importer.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/glob.h"
#include "policy/schema.h"

static const struct importer *const importers[] = {
    &claude_importer, &srt_importer, &dive_importer, &mycode_importer, &neuraphage_importer,
};

/* One of our keys and what it is set to. */
struct import_value {
  const struct schema_key *key;
  struct strv items; /* one for a scalar; NAME=value for variables */
};

void import_result_clear(struct import_result *result) {
  free(result->policy);
  strv_clear(&result->lost);
  strv_clear(&result->notes);
  *result = (struct import_result){0};
}

/* ---- messages ---- */

int import_fail(struct import *import, const struct node *node, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  _cleanup_free_ char *what = xvasprintf(format, arguments);
  va_end(arguments);
  return sb_fail(import->error, SB_CODE_POLICY, 0, "%s:%u:%u: %s", import->file, node->line,
                 node->column, what);
}

void import_lose(struct import *import, const struct node *node, const char *name,
                 const char *why) {
  _cleanup_free_ char *shown = escape_string(name);
  strv_addf(&import->result->lost, "%s:%u: %s: %s", import->file, node->line, shown, why);
}

void import_note(struct import *import, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  strv_take(&import->result->notes, xvasprintf(format, arguments));
  va_end(arguments);
}

/* ---- what the policy will say ---- */

static const struct schema_key *find_key(const char *dotted) {
  for (const struct schema_key *key = schema_table; key->name; key++)
    if (strcmp(key->name, dotted) == 0)
      return key;
  return NULL;
}

static struct import_value *value_of(struct import *import, const struct schema_key *key) {
  for (size_t i = 0; i < import->value_count; i++)
    if (import->values[i].key == key)
      return &import->values[i];
  ARRAY_GROW(import->values, import->value_count);
  import->values[import->value_count] = (struct import_value){.key = key};
  return &import->values[import->value_count++];
}

void import_set(struct import *import, const struct node *node, const char *key,
                const char *value) {
  const struct schema_key *found = find_key(key);
  if (!found) {
    import_lose(import, node, key, "this version has no such key");
    return;
  }
  struct import_value *entry = value_of(import, found);
  strv_clear(&entry->items);
  strv_add(&entry->items, value);
}

void import_add(struct import *import, const struct node *node, const char *key, const char *item) {
  const struct schema_key *found = find_key(key);
  const char *problem = found->type == SCHEMA_RULES                  ? glob_problem(item)
                        : found->type == SCHEMA_LIST && found->check ? found->check(item)
                                                                     : NULL;
  if (problem) {
    import_lose(import, node, item, problem);
    return;
  }
  struct import_value *entry = value_of(import, found);
  if (!strv_contains(&entry->items, item))
    strv_add(&entry->items, item);
}

bool import_has(const struct import *import, const char *key, const char *item) {
  for (size_t i = 0; i < import->value_count; i++)
    if (strcmp(import->values[i].key->name, key) == 0)
      return !item || strv_contains(&import->values[i].items, item);
  return false;
}

char *import_path(const char *path) {
  bool home = path[0] == '~' && (path[1] == '\0' || path[1] == '/');
  _cleanup_free_ char *escaped = policy_escape_path(home ? path + 1 : path);
  return xasprintf("%s%s", home ? "~" : "", escaped);
}

char *import_glob(const char *glob) {
  struct text text = {0};
  if (glob[0] == '~' && glob[1] != '\0' && glob[1] != '/')
    text_append_char(&text, '\\');
  for (const char *at = glob; *at; at++) {
    if (*at == '$')
      text_append_char(&text, '\\');
    text_append_char(&text, *at);
  }
  return text_steal(&text);
}

/* ---- types ---- */

static int fail_type(struct import *import, const struct import_key *key, const struct node *node,
                     const char *wanted) {
  _cleanup_free_ char *value =
      node->type == NODE_SCALAR ? escape_string(node->text) : xstrdup(node_type_name(node));
  return import_fail(import, node, "%s must be %s, not %s", key->name, wanted, value);
}

bool import_is_text(struct import *import, const struct import_key *key, const struct node *node) {
  if (node->type == NODE_SCALAR)
    return true;
  fail_type(import, key, node, "text");
  return false;
}

static bool is_list(struct import *import, const struct import_key *key, const struct node *node) {
  if (node->type == NODE_SEQUENCE)
    return true;
  fail_type(import, key, node, "a list");
  return false;
}

int import_boolean(struct import *import, const struct import_key *key, const struct node *node,
                   bool *ret) {
  bool plain = node->type == NODE_SCALAR && node->plain;
  if (plain && strcmp(node->text, "true") == 0)
    *ret = true;
  else if (plain && strcmp(node->text, "false") == 0)
    *ret = false;
  else
    return fail_type(import, key, node, "true or false");
  return 0;
}

int import_integer(struct import *import, const struct import_key *key, const struct node *node,
                   long low, long high, long *ret) {
  char *end = NULL;
  long number = node->type == NODE_SCALAR && node->plain ? strtol(node->text, &end, 10) : 0;
  if (!end || end == node->text || *end != '\0' || number < low || number > high) {
    _cleanup_free_ char *wanted = xasprintf("a whole number from %ld to %ld", low, high);
    return fail_type(import, key, node, wanted);
  }
  *ret = number;
  return 0;
}

/* ---- takers ---- */

int take_boolean(struct import *import, const struct import_key *key, const struct node *node) {
  bool yes;
  if (import_boolean(import, key, node, &yes) < 0)
    return -1;
  const char *value = yes ? key->if_true : key->if_false;
  if (value && *value)
    import_set(import, node, key->target, value);
  else if (!value && key->why)
    import_lose(import, node, key->name, key->why);
  return 0;
}

int take_number(struct import *import, const struct import_key *key, const struct node *node) {
  const struct schema_key *ours = find_key(key->target);
  char *end = NULL;
  double number = node->type == NODE_SCALAR && node->plain ? strtod(node->text, &end) : 0;
  bool inside = number >= (double)ours->minimum && number <= (double)ours->maximum;
  bool whole = inside && (double)(long long)number == number;
  if (!end || end == node->text || *end != '\0' || !inside ||
      (ours->type != SCHEMA_DECIMAL && !whole)) {
    _cleanup_free_ char *wanted = schema_describe(ours);
    return fail_type(import, key, node, wanted);
  }
  /* Not as written: "5.", "0x10" and "1e3" are numbers to some. */
  _cleanup_free_ char *value = xasprintf("%.12g", number);
  import_set(import, node, key->target, value);
  return 0;
}

int take_text(struct import *import, const struct import_key *key, const struct node *node) {
  if (!import_is_text(import, key, node))
    return -1;
  import_set(import, node, key->target, node->text);
  return 0;
}

int import_items(struct import *import, const struct import_key *key, const struct node *node,
                 import_item *take) {
  if (!is_list(import, key, node))
    return -1;
  for (const struct node *item = node->first; item; item = item->next) {
    if (!import_is_text(import, key, item))
      return -1;
    take(import, key, item);
  }
  return 0;
}

int import_choice(struct import *import, const struct import_key *key, const struct node *node,
                  const char *const *words) {
  _cleanup_text_ struct text known = {0};
  if (!import_is_text(import, key, node))
    return -1;
  for (const char *const *word = words; *word; word++) {
    if (strcmp(node->text, *word) == 0) {
      import_set(import, node, key->target, *word);
      return 0;
    }
    text_appendf(&known, "%s%s", word == words ? "" : word[1] ? ", " : " or ", *word);
  }
  return import_fail(import, node, "%s must be %s", key->name, text_string(&known));
}

static void take_path(struct import *import, const struct import_key *key,
                      const struct node *item) {
  _cleanup_free_ char *path = import_path(item->text);
  import_add(import, item, key->target, path);
}

int take_paths(struct import *import, const struct import_key *key, const struct node *node) {
  return import_items(import, key, node, take_path);
}

static void take_word(struct import *import, const struct import_key *key,
                      const struct node *item) {
  import_add(import, item, key->target, item->text);
}

int take_texts(struct import *import, const struct import_key *key, const struct node *node) {
  return import_items(import, key, node, take_word);
}

int take_lost(struct import *import, const struct import_key *key, const struct node *node) {
  import_lose(import, node, key->name, key->why);
  return 0;
}

int take_nothing(struct import *import, const struct import_key *key, const struct node *node) {
  (void)import;
  (void)key;
  (void)node;
  return 0;
}

/* ---- walking ---- */

static bool is_null(const struct node *node) {
  return node->type == NODE_SCALAR && node->plain &&
         (strcmp(node->text, "null") == 0 || strcmp(node->text, "~") == 0 || *node->text == '\0');
}

static const struct import_key *find_import_key(const struct import_key *keys, const char *name) {
  for (; keys->name; keys++)
    if (strcmp(keys->name, name) == 0)
      return keys;
  return NULL;
}

static bool is_section(const struct import_key *keys, const char *name) {
  size_t length = strlen(name);
  for (; keys->name; keys++)
    if (strncmp(keys->name, name, length) == 0 && keys->name[length] == '.')
      return true;
  return false;
}

static int check_key(struct import *import, const struct node *mapping, const struct node *entry) {
  if (entry->key->type != NODE_SCALAR)
    return import_fail(import, entry->key, "a key must be text");
  for (const struct node *earlier = mapping->first; earlier != entry; earlier = earlier->next)
    if (strcmp(earlier->key->text, entry->key->text) == 0) {
      _cleanup_free_ char *shown = escape_string(entry->key->text);
      return import_fail(import, entry->key, "'%s' is written twice, first in line %u", shown,
                         earlier->key->line);
    }
  return 0;
}

static int walk(struct import *import, const struct import_key *keys, const char *prefix,
                const struct node *mapping);

static int walk_entry(struct import *import, const struct import_key *keys, const char *prefix,
                      const struct node *entry) {
  _cleanup_free_ char *name = xasprintf("%s%s%s", prefix, *prefix ? "." : "", entry->key->text);
  const struct import_key *key = find_import_key(keys, name);
  if (is_null(entry))
    return 0;
  if (key)
    return key->take(import, key, entry);
  if (is_section(keys, name))
    return walk(import, keys, name, entry);
  import_lose(import, entry->key, name, "not a key that is known here");
  return 0;
}

static int walk(struct import *import, const struct import_key *keys, const char *prefix,
                const struct node *mapping) {
  if (mapping->type != NODE_MAPPING)
    return import_fail(import, mapping, "%s must be a mapping, not %s",
                       *prefix ? prefix : "the file", node_type_name(mapping));
  for (const struct node *entry = mapping->first; entry; entry = entry->next)
    if (check_key(import, mapping, entry) < 0 || walk_entry(import, keys, prefix, entry) < 0)
      return -1;
  return 0;
}

static const struct node *find_entry(const struct node *mapping, const char *name) {
  for (const struct node *entry = mapping->type == NODE_MAPPING ? mapping->first : NULL; entry;
       entry = entry->next)
    if (entry->key->type == NODE_SCALAR && strcmp(entry->key->text, name) == 0)
      return entry;
  return NULL;
}

/* What stands beside the section with the settings. */
static int walk_beside(struct import *import, const struct node *root) {
  static const struct import_key none[] = {{0}};
  const struct importer *importer = import->importer;
  const struct import_key *keys = importer->beside ? importer->beside : none;
  for (const struct node *entry = root->first; entry; entry = entry->next) {
    if (check_key(import, root, entry) < 0)
      return -1;
    if (strcmp(entry->key->text, importer->root) == 0)
      continue;
    if (find_import_key(keys, entry->key->text) || is_section(keys, entry->key->text)) {
      if (walk_entry(import, keys, "", entry) < 0)
        return -1;
    } else {
      import_lose(import, entry->key, entry->key->text, "not about the sandbox");
    }
  }
  return 0;
}

static int walk_root(struct import *import, const struct node *root) {
  const struct importer *importer = import->importer;
  const struct node *section = importer->root ? find_entry(root, importer->root) : NULL;
  if (!importer->root || (!section && importer->root_is_optional))
    return walk(import, importer->keys, "", root);
  if (root->type != NODE_MAPPING)
    return import_fail(import, root, "the file must be a mapping, not %s", node_type_name(root));
  if (walk_beside(import, root) < 0)
    return -1;
  return section && !is_null(section) ? walk(import, importer->keys, "", section) : 0;
}

/* ---- writing ---- */

static void append_string(struct text *text, const char *string) {
  json_t *value = json_string(string);
  char *quoted = json_dumps(value, JSON_ENCODE_ANY);
  text_append(text, quoted);
  free(quoted);
  json_decref(value);
}

static bool is_quoted(const struct schema_key *key) {
  return key->type == SCHEMA_TEXT || key->type == SCHEMA_WORD;
}

static void append_variables(struct text *text, const struct strv *items) {
  text_append_char(text, '{');
  STRV_FOREACH (item, items) {
    const char *equals = strchr(*item, '=');
    text_appendf(text, "%s%.*s: ", item == items->items ? "" : ", ", (int)(equals - *item), *item);
    append_string(text, equals + 1);
  }
  text_append(text, "}\n");
}

static void append_value(struct text *text, const struct import_value *value) {
  if (value->key->type == SCHEMA_VARIABLES) {
    append_variables(text, &value->items);
  } else if (schema_is_scalar(value->key)) {
    if (is_quoted(value->key))
      append_string(text, value->items.items[0]);
    else
      text_append(text, value->items.items[0]);
    text_append_char(text, '\n');
  } else {
    text_append_char(text, '\n');
    STRV_FOREACH (item, &value->items) {
      text_append(text, "    - ");
      append_string(text, *item);
      text_append_char(text, '\n');
    }
  }
}

static int compare_values(const void *first, const void *second) {
  const struct import_value *a = first, *b = second;
  return (a->key > b->key) - (a->key < b->key);
}

/* In the order of the schema, one section after the other. */
static char *write_policy(struct import *import) {
  struct text text = {0};
  const char *section = "";
  size_t length = 0;
  text_appendf(&text, "# from %s (%s)\nversion: 1\n", import->file, import->importer->summary);
  if (import->value_count > 0)
    qsort(import->values, import->value_count, sizeof *import->values, compare_values);
  for (size_t i = 0; i < import->value_count; i++) {
    const struct import_value *value = &import->values[i];
    const char *name = value->key->name, *dot = strchr(name, '.');
    if (dot && (strncmp(name, section, length) != 0 || length != (size_t)(dot - name)))
      text_appendf(&text, "%.*s:\n", (int)(dot - name), name);
    section = dot ? name : "";
    length = dot ? (size_t)(dot - name) : 0;
    text_appendf(&text, "%s%s: ", dot ? "  " : "", dot ? dot + 1 : name);
    append_value(&text, value);
  }
  return text_steal(&text);
}

/* ---- finding the importer ---- */

static int parse(const struct importer *importer, const char *file, const char *text, size_t length,
                 struct arena *arena, struct node **ret_root, struct sb_error *error) {
  return importer->is_toml ? toml_parse(file, text, length, arena, ret_root, error)
                           : tree_parse(file, text, length, arena, ret_root, error);
}

static const struct node *find_dotted(const struct node *mapping, const char *name) {
  const char *dot = strchr(name, '.');
  if (!dot)
    return find_entry(mapping, name);
  _cleanup_free_ char *section = xstrndup(name, (size_t)(dot - name));
  const struct node *found = find_entry(mapping, section);
  return found ? find_entry(found, dot + 1) : NULL;
}

/* By a key that only this format has, or by the file's name. */
static bool recognises(const struct importer *importer, const char *file, const struct node *root) {
  const struct node *section = importer->root ? find_entry(root, importer->root) : root;
  if (importer->file_name && path_ends_with(file, importer->file_name))
    return true;
  if (!section && importer->root_is_optional)
    section = root;
  for (const char *const *key = importer->recognised_by; section && *key; key++)
    if (find_dotted(section, *key))
      return true;
  return false;
}

static int find_importer(const char *format, const char *file, const char *text, size_t length,
                         const struct importer **ret, struct sb_error *error) {
  for (size_t i = 0; format && i < ARRAY_SIZE(importers); i++)
    if (strcmp(importers[i]->name, format) == 0) {
      *ret = importers[i];
      return 0;
    }
  _cleanup_arena_ struct arena arena = {0};
  struct node *root = NULL;
  bool toml = path_ends_with(file, ".toml");
  for (size_t i = 0; !format && i < ARRAY_SIZE(importers); i++) {
    if (importers[i]->is_toml != toml)
      continue;
    if (!root && parse(importers[i], file, text, length, &arena, &root, error) < 0)
      return -1;
    if (recognises(importers[i], file, root)) {
      *ret = importers[i];
      return 0;
    }
  }
  sb_fail(error, SB_CODE_USAGE, 0, format ? "unknown format '%s'" : "%s: not a format known here",
          format ? format : file);
  return sb_hint(error, "name one: claude, srt, dive, mycode or neuraphage");
}

static void import_clear(struct import *import) {
  for (size_t i = 0; i < import->value_count; i++)
    strv_clear(&import->values[i].items);
  free(import->values);
}

int policy_import_foreign(const char *format, const char *file, const char *text, size_t length,
                          struct import_result *ret, struct sb_error *error) {
  _cleanup_arena_ struct arena arena = {0};
  _cleanup_import_ struct import_result result = {0};
  _cleanup_free_ char *shown = escape_string(file);
  __attribute__((cleanup(import_clear))) struct import import = {
      .file = shown, .result = &result, .error = error};
  struct node *root = NULL;
  if (find_importer(format, shown, text, length, &import.importer, error) < 0 ||
      parse(import.importer, shown, text, length, &arena, &root, error) < 0 ||
      walk_root(&import, root) < 0)
    return -1;
  if (import.importer->finish && import.importer->finish(&import) < 0)
    return -1;
  /* None of these programs asks about reading: what is not hidden is readable. */
  import_set(&import, root, "mode", "static");
  result.policy = write_policy(&import);
  result.format = import.importer->name;
  *ret = result;
  result = (struct import_result){0};
  return 0;
}
