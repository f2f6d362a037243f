/* Text into policy: every key is looked up in the schema, parsed by its type, refused or merged.
 * Strict on purpose: what is not understood must never be skipped, for it may have been meant as a
 * protection. */
#include "policy/load.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/suggest.h"
#include "policy/rules.h"
#include "policy/schema.h"
#include "policy/tree.h"

enum { IGNORED_MAX = 50 };

struct load {
  struct policy *policy;
  const struct policy_context *context;
  const struct policy_source *source;
  const char *file;  /* owned by the policy */
  const char *shown; /* escaped */
  struct sb_error *error;
};

__attribute__((format(printf, 3, 4))) static int
fail(const struct load *load, const struct node *node, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  _cleanup_free_ char *what = xvasprintf(format, arguments);
  va_end(arguments);
  return sb_fail(load->error, SB_CODE_POLICY, 0, "%s:%u:%u: %s", load->shown, node->line,
                 node->column, what);
}

static struct origin origin_of(const struct load *load, const struct node *node) {
  return (struct origin){
      .store = load->source->store, .file = load->file, .line = node->line, .column = node->column};
}

/* ---- what an untrusted store may not say ---- */

static void ignore(const struct load *load, const struct schema_key *key, const struct node *node) {
  struct strv *ignored = &load->policy->ignored;
  _cleanup_free_ char *value = node->type == NODE_SCALAR ? escape_string(node->text) : NULL;
  /* A hostile file must not be able to bury the few lines that matter. */
  if (ignored->count < IGNORED_MAX)
    strv_addf(ignored,
              "%s:%u: %s: %s is not honoured, because this project's policy is not trusted; read "
              "the file, then run: sandbox policy trust",
              load->shown, node->line, key->name, value ? value : node_type_name(node));
  else if (ignored->count == IGNORED_MAX)
    strv_addf(ignored, "%s: and more", load->shown);
}

/* What the organisation has said about some keys is not for others to loosen. */
static bool is_final(const struct load *load, const struct schema_key *key) {
  return key->org_final && load->source->store != STORE_ORG &&
         load->policy->keys[schema_index(key)].origin.store == STORE_ORG;
}

static void ignore_loosening(const struct load *load, const struct schema_key *key,
                             const struct node *node) {
  _cleanup_free_ char *said = origin_describe(&load->policy->keys[schema_index(key)].origin);
  strv_addf(&load->policy->ignored,
            "%s:%u: %s is not honoured: the organisation says otherwise (%s)", load->shown,
            node->line, key->name, said);
}

static bool may_only_narrow(const struct load *load, const struct schema_key *key) {
  return load->source->untrusted && key->narrowing != NARROWING_ALWAYS;
}

/* ---- scalars ---- */

static bool is_null(const struct node *node) {
  static const char *const words[] = {"", "~", "null", "Null", "NULL"};
  for (size_t i = 0; node->type == NODE_SCALAR && node->plain && i < ARRAY_SIZE(words); i++)
    if (strcmp(node->text, words[i]) == 0)
      return true;
  return false;
}

static int fail_type(const struct load *load, const struct schema_key *key,
                     const struct node *node) {
  _cleanup_free_ char *wanted = schema_describe(key);
  if (node->type == NODE_SCALAR) {
    _cleanup_free_ char *value = escape_string(node->text);
    fail(load, node, "%s must be %s, not '%s'", key->name, wanted, value);
  } else {
    fail(load, node, "%s must be %s, not %s", key->name, wanted, node_type_name(node));
  }
  return sb_hint(load->error, "write %s: with %s", key->name, wanted);
}

static int fail_word(const struct load *load, const struct schema_key *key, const struct node *node,
                     const char *const *words) {
  fail_type(load, key, node);
  size_t count = 0;
  while (words[count])
    count++;
  const char *nearest = suggest_nearest(node->text, words, count);
  return nearest ? sb_hint(load->error, "did you mean '%s'?", nearest) : -1;
}

static int parse_word(const struct load *load, const struct schema_key *key,
                      const struct node *node, struct schema_value *ret) {
  for (unsigned i = 0; key->words[i]; i++)
    if (strcmp(key->words[i], node->text) == 0) {
      *ret = key->type == SCHEMA_CHOICE ? (struct schema_value){.number = i}
                                        : (struct schema_value){.text = key->words[i]};
      return 0;
    }
  return fail_word(load, key, node, key->words);
}

static int parse_boolean(const struct load *load, const struct schema_key *key,
                         const struct node *node, struct schema_value *ret) {
  static const char *const words[] = {"false", "true", NULL};
  bool yes = strcmp(node->text, "true") == 0;
  if (node->plain && (yes || strcmp(node->text, "false") == 0)) {
    ret->number = yes;
    return 0;
  }
  return fail_word(load, key, node, words);
}

/* Digits, and for decimals one point between digits; no signs, exponents or other bases. */
static bool is_number(const char *text, bool decimal) {
  size_t digits = strspn(text, "0123456789");
  const char *rest = text + digits;
  if (digits == 0 || digits > 15)
    return false;
  if (decimal && *rest == '.') {
    size_t fraction = strspn(rest + 1, "0123456789");
    return fraction > 0 && fraction < 15 && rest[1 + fraction] == '\0';
  }
  return *rest == '\0';
}

static int parse_number(const struct load *load, const struct schema_key *key,
                        const struct node *node, struct schema_value *ret) {
  if (!node->plain || !is_number(node->text, key->type == SCHEMA_DECIMAL)) {
    fail_type(load, key, node);
    return is_number(node->text, true)
               ? sb_hint(load->error, "write the number without quotes%s",
                         key->type == SCHEMA_DECIMAL ? "" : " and without a fraction")
               : -1;
  }
  double number = strtod(node->text, NULL);
  if (number < (double)key->minimum || number > (double)key->maximum)
    return fail_type(load, key, node);
  ret->number = number;
  return 0;
}

static int parse_text(const struct load *load, const struct schema_key *key,
                      const struct node *node, struct schema_value *ret) {
  const char *problem = key->check ? key->check(node->text) : NULL;
  if (problem) {
    _cleanup_free_ char *value = escape_string(node->text);
    fail(load, node, "%s: '%s' %s", key->name, value, problem);
    _cleanup_free_ char *better = schema_suggest(key, node->text);
    if (better)
      return sb_hint(load->error, "write %s", better);
    return sb_hint(load->error, "%s takes %s", key->name, key->help);
  }
  ret->text = node->text;
  return 0;
}

typedef int (*parse_function)(const struct load *, const struct schema_key *, const struct node *,
                              struct schema_value *);

static const struct {
  parse_function parse;
  bool nullable;
} scalar_types[SCHEMA_TYPE_COUNT] = {
    [SCHEMA_VERSION] = {parse_number, false},  [SCHEMA_CHOICE] = {parse_word, false},
    [SCHEMA_WORD] = {parse_word, false},       [SCHEMA_TEXT] = {parse_text, true},
    [SCHEMA_BOOLEAN] = {parse_boolean, false}, [SCHEMA_COUNT] = {parse_number, true},
    [SCHEMA_SECONDS] = {parse_number, false},  [SCHEMA_DECIMAL] = {parse_number, true},
};

static int load_scalar(const struct load *load, const struct schema_key *key,
                       const struct node *node) {
  struct schema_value value = {0};
  bool null = is_null(node);
  if (node->type != NODE_SCALAR || (null && !scalar_types[key->type].nullable))
    return fail_type(load, key, node);
  if (!null && scalar_types[key->type].parse(load, key, node, &value) < 0)
    return -1;
  if (may_only_narrow(load, key) && !schema_narrows(schema_get(load->policy, key), value, key)) {
    ignore(load, key, node);
    return 0;
  }
  if (is_final(load, key) && !schema_narrows(schema_get(load->policy, key), value, key)) {
    ignore_loosening(load, key, node);
    return 0;
  }
  schema_set(load->policy, key, value);
  load->policy->keys[schema_index(key)].origin = origin_of(load, node);
  return 0;
}

/* ---- lists ---- */

static int load_rule(const struct load *load, const struct schema_key *key,
                     const struct node *node) {
  if (may_only_narrow(load, key)) {
    ignore(load, key, node);
    return 0;
  }
  struct rule template = {.kind = key->kind, .origin = origin_of(load, node)};
  if (rules_add(load->policy, load->context, load->context->project, node->text, &template,
                load->error) == 0)
    return 0;
  _cleanup_free_ char *value = escape_string(node->text);
  load->error->code = SB_CODE_POLICY;
  sb_wrap(load->error, "%s:%u:%u: %s: '%s'", load->shown, node->line, node->column, key->name,
          value);
  return load->error->hint ? -1
                           : sb_hint(load->error, "write a path or a glob; put \\ before a *, ? or "
                                                  "[ that is part of a file's name");
}

static int add_to_list(const struct load *load, const struct schema_key *key,
                       const struct node *node) {
  struct strv *list = schema_list(load->policy, key);
  _cleanup_free_ char *path = NULL;
  if (list == &load->policy->network.unix_sockets &&
      policy_expand(load->context, load->context->project, node->text, &path, load->error) < 0)
    return sb_wrap(load->error, "%s:%u:%u: %s", load->shown, node->line, node->column, key->name);
  const char *item = path ? path : node->text;
  if (strv_contains(list, item))
    return 0;
  if (may_only_narrow(load, key))
    ignore(load, key, node);
  else
    strv_add(list, item);
  return 0;
}

static int load_item(const struct load *load, const struct schema_key *key,
                     const struct node *node) {
  struct schema_value value;
  /* YAML reads ~ as null, but among paths everybody means the home folder. */
  bool home = key->type == SCHEMA_RULES && node->type == NODE_SCALAR && *node->text == '~';
  if (node->type != NODE_SCALAR || (is_null(node) && !home)) {
    fail(load, node, "an entry of %s must be text, not %s", key->name,
         node->type == NODE_SCALAR ? "null" : node_type_name(node));
    return sb_hint(load->error, "write one text per entry, in quotes if needed");
  }
  if (key->type == SCHEMA_RULES)
    return load_rule(load, key, node);
  return parse_text(load, key, node, &value) < 0 ? -1 : add_to_list(load, key, node);
}

static int load_list(const struct load *load, const struct schema_key *key,
                     const struct node *node) {
  if (is_null(node))
    return 0;
  if (node->type == NODE_SCALAR) {
    fail_type(load, key, node);
    _cleanup_free_ char *value = escape_string(node->text);
    return sb_hint(load->error, "write %s: [\"%s\"]", strrchr(key->name, '.') + 1, value);
  }
  if (node->type != NODE_SEQUENCE)
    return fail_type(load, key, node);
  for (const struct node *item = node->first; item; item = item->next)
    if (load_item(load, key, item) < 0)
      return -1;
  load->policy->keys[schema_index(key)].origin = origin_of(load, node);
  return 0;
}

/* ---- mappings ---- */

static int refuse_duplicate(const struct load *load, const struct node *mapping,
                            const struct node *entry) {
  for (const struct node *earlier = mapping->first; earlier != entry; earlier = earlier->next)
    if (strcmp(earlier->key->text, entry->key->text) == 0) {
      _cleanup_free_ char *name = escape_string(entry->key->text);
      fail(load, entry->key, "'%s' is written twice, first in line %u", name, earlier->key->line);
      return sb_hint(load->error, "keep one of the two");
    }
  return 0;
}

static int check_key(const struct load *load, const struct node *mapping,
                     const struct node *entry) {
  if (entry->key->type == NODE_SCALAR)
    return refuse_duplicate(load, mapping, entry);
  return fail(load, entry->key, "a key must be text, not %s", node_type_name(entry->key));
}

static void set_variable(struct strv *list, const char *name, const char *value) {
  size_t length = strlen(name);
  STRV_FOREACH (item, list)
    if (strncmp(*item, name, length) == 0 && (*item)[length] == '=') {
      free(*item);
      *item = xasprintf("%s=%s", name, value);
      return;
    }
  strv_addf(list, "%s=%s", name, value);
}

static int load_variable(const struct load *load, const struct schema_key *key,
                         const struct node *entry) {
  struct schema_value ignored;
  if (parse_text(load, key, entry->key, &ignored) < 0)
    return -1;
  if (entry->type != NODE_SCALAR || is_null(entry)) {
    fail(load, entry, "the value of %s must be text", entry->key->text);
    return sb_hint(load->error, "write '' for an empty value");
  }
  if (may_only_narrow(load, key))
    ignore(load, key, entry->key);
  else
    set_variable(schema_list(load->policy, key), entry->key->text, entry->text);
  return 0;
}

static int load_variables(const struct load *load, const struct schema_key *key,
                          const struct node *node) {
  if (is_null(node))
    return 0;
  if (node->type != NODE_MAPPING)
    return fail_type(load, key, node);
  unsigned count = 0;
  for (const struct node *entry = node->first; entry; entry = entry->next) {
    /* Duplicates are looked for pairwise: the bound keeps a hostile file from costing seconds. */
    if (++count > 1000)
      return fail(load, entry, "%s has more than 1000 entries", key->name);
    if (check_key(load, node, entry) < 0 || load_variable(load, key, entry) < 0)
      return -1;
  }
  load->policy->keys[schema_index(key)].origin = origin_of(load, node);
  return 0;
}

static int load_value(const struct load *load, const struct schema_key *key,
                      const struct node *node) {
  switch (key->type) {
  case SCHEMA_VERSION:
    return 0; /* checked before everything else */
  case SCHEMA_LIST:
  case SCHEMA_RULES:
    return load_list(load, key, node);
  case SCHEMA_VARIABLES:
    return load_variables(load, key, node);
  default:
    return load_scalar(load, key, node);
  }
}

static int fail_unknown(const struct load *load, const char *section, const struct node *key) {
  _cleanup_free_ char *name = escape_string(key->text);
  fail(load, key, "unknown key '%s%s%s'", section, *section ? "." : "", name);
  const char *nearest = schema_nearest(section, key->text);
  return nearest
             ? sb_hint(load->error, "did you mean '%s'?", nearest)
             : sb_hint(load->error, "docs/POLICY.md lists every key; remove or correct this one");
}

static int load_section(const struct load *load, const char *section, const struct node *mapping);

static int load_entry(const struct load *load, const char *section, const struct node *entry) {
  const char *name = entry->key->text;
  if (*section == '\0' && schema_is_section(name))
    return load_section(load, name, entry);
  const struct schema_key *key = schema_find(section, name);
  return key ? load_value(load, key, entry) : fail_unknown(load, section, entry->key);
}

static int load_section(const struct load *load, const char *section, const struct node *mapping) {
  if (is_null(mapping))
    return 0;
  if (mapping->type != NODE_MAPPING) {
    fail(load, mapping, "%s must be a mapping of keys to values, not %s",
         *section ? section : "a policy", node_type_name(mapping));
    return sb_hint(load->error, "write one 'key: value' per line%s",
                   *section ? ", indented below it" : "");
  }
  for (const struct node *entry = mapping->first; entry; entry = entry->next)
    if (check_key(load, mapping, entry) < 0 || load_entry(load, section, entry) < 0)
      return -1;
  return 0;
}

static int check_version(const struct load *load, const struct node *root) {
  const struct schema_key *key = schema_find("", "version");
  struct schema_value value;
  for (const struct node *entry = root->type == NODE_MAPPING ? root->first : NULL; entry;
       entry = entry->next) {
    if (entry->key->type != NODE_SCALAR || strcmp(entry->key->text, "version") != 0)
      continue;
    if (entry->type == NODE_SCALAR && parse_number(load, key, entry, &value) == 0)
      return 0;
    fail_type(load, key, entry);
    return sb_hint(load->error, "this program reads version 1; write: version: 1");
  }
  fail(load, root, "the version is missing");
  return sb_hint(load->error, "add the line: version: 1");
}

int policy_apply(struct policy *policy, const struct policy_context *context,
                 const struct policy_source *source, struct sb_error *error) {
  _cleanup_arena_ struct arena arena = {0};
  _cleanup_free_ char *shown = escape_string(source->file);
  struct load load = {.policy = policy,
                      .context = context,
                      .source = source,
                      .file = arena_strdup(&policy->strings, source->file),
                      .shown = shown,
                      .error = error};
  struct node *root = NULL;
  if (tree_parse(shown, source->data, source->length, &arena, &root, error) < 0)
    return -1;
  if (root->type == NODE_MAPPING && check_version(&load, root) < 0)
    return -1;
  if (is_null(root))
    return check_version(&load, root);
  return load_section(&load, "", root);
}
