/* The text of a grants.yaml: read as strictly as a policy, for what is not understood might have
 * been a denial. Pure. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"
#include "core/suggest.h"
#include "core/text.h"
#include "policy/grants.h"
#include "policy/schema.h"
#include "policy/tree.h"
#include "policy/yaml.h"

enum { GRANT_NODES_MAX = 100000 };

static void grant_clear(struct grant *grant) {
  char *const texts[] = {grant->path, grant->host, grant->by, grant->when, grant->why};
  for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
    free(texts[i]);
}

void grant_list_clear(struct grant_list *list) {
  for (size_t i = 0; i < list->count; i++)
    grant_clear(&list->items[i]);
  free(list->items);
  *list = (struct grant_list){0};
}

const char *grant_access(const struct grant *grant) {
  return grant->names ? "list" : grant->writable ? "write" : "read";
}

/* ---- reading ---- */

struct reading {
  const char *shown; /* the file, escaped */
  struct sb_error *error;
};

__attribute__((format(printf, 3, 4))) static int
fail_at(const struct reading *reading, const struct node *node, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  _cleanup_free_ char *what = xvasprintf(format, arguments);
  va_end(arguments);
  sb_fail(reading->error, SB_CODE_POLICY, 0, "%s:%u:%u: %s", reading->shown, node->line,
          node->column, what);
  return sb_hint(reading->error, "this file is written by 'sandbox'; correct the line, or remove "
                                 "the file and approve again");
}

static int fail_value(const struct reading *reading, const struct node *node, const char *key,
                      const char *wanted) {
  _cleanup_free_ char *value =
      node->type == NODE_SCALAR ? escape_string(node->text) : xstrdup(node_type_name(node));
  return fail_at(reading, node, "%s must be %s, not '%s'", key, wanted, value);
}

typedef int read_value(const struct reading *reading, const struct node *node, struct grant *grant);

static int read_decision(const struct reading *reading, const struct node *node,
                         struct grant *grant) {
  grant->allow = strcmp(node->text, "allow") == 0;
  return grant->allow || strcmp(node->text, "deny") == 0
             ? 0
             : fail_value(reading, node, "decision", "allow or deny");
}

static int read_access(const struct reading *reading, const struct node *node,
                       struct grant *grant) {
  grant->writable = strcmp(node->text, "write") == 0;
  grant->names = strcmp(node->text, "list") == 0;
  return strcmp(node->text, grant_access(grant)) == 0
             ? 0
             : fail_value(reading, node, "access", "read, write or list");
}

static int take_path(const struct reading *reading, const struct node *node, char *path,
                     struct grant *grant) {
  _cleanup_free_ char *owned = path;
  _cleanup_free_ char *normal = path && path[0] == '/' ? path_normalize(path) : NULL;
  if (!normal || strcmp(normal, path) != 0)
    return fail_value(reading, node, "path", "an absolute path without . and ..");
  if (grant->path || grant->host)
    return fail_at(reading, node, "a grant has one path or one host");
  grant->path = steal_pointer(owned);
  grant->subject = SUBJECT_FILE;
  return 0;
}

static int read_path(const struct reading *reading, const struct node *node, struct grant *grant) {
  return take_path(reading, node, xstrdup(node->text), grant);
}

static int read_encoded_path(const struct reading *reading, const struct node *node,
                             struct grant *grant) {
  size_t length = 0;
  char *path = base64_decode(node->text, &length);
  if (path && strlen(path) == length)
    return take_path(reading, node, path, grant);
  free(path);
  return fail_value(reading, node, "path_b64", "the Base64 of a path");
}

static int read_host(const struct reading *reading, const struct node *node, struct grant *grant) {
  const char *problem = schema_find("network", "allow")->check(node->text);
  if (problem)
    return fail_at(reading, node, "host: it %s", problem);
  if (grant->path || grant->host)
    return fail_at(reading, node, "a grant has one path or one host");
  grant->host = xstrdup(node->text);
  grant->subject = SUBJECT_NETWORK;
  return 0;
}

static int read_port(const struct reading *reading, const struct node *node, struct grant *grant) {
  char *end;
  unsigned long port = strtoul(node->text, &end, 10);
  if (*end || end == node->text || end - node->text > 5 || port < 1 || port > 65535)
    return fail_value(reading, node, "port", "a number from 1 to 65535");
  grant->port = (uint16_t)port;
  return 0;
}

static int take_text(char **place, const struct node *node) {
  free(*place);
  *place = xstrdup(node->text);
  return 0;
}
static int read_by(const struct reading *reading, const struct node *node, struct grant *grant) {
  (void)reading;
  return take_text(&grant->by, node);
}
static int read_when(const struct reading *reading, const struct node *node, struct grant *grant) {
  (void)reading;
  return take_text(&grant->when, node);
}
static int read_why(const struct reading *reading, const struct node *node, struct grant *grant) {
  (void)reading;
  return take_text(&grant->why, node);
}

static const struct {
  const char *name;
  read_value *read;
} grant_keys[] = {
    {"decision", read_decision},
    {"path", read_path},
    {"path_b64", read_encoded_path},
    {"host", read_host},
    {"port", read_port},
    {"access", read_access},
    {"by", read_by},
    {"when", read_when},
    {"why", read_why},
};

static int read_entry(const struct reading *reading, const struct node *entry,
                      struct grant *grant) {
  const char *names[ARRAY_SIZE(grant_keys)];
  if (entry->key->type != NODE_SCALAR || entry->type != NODE_SCALAR)
    return fail_at(reading, entry, "a grant is a list of 'key: text'");
  for (size_t i = 0; i < ARRAY_SIZE(grant_keys); i++) {
    names[i] = grant_keys[i].name;
    if (strcmp(names[i], entry->key->text) == 0)
      return grant_keys[i].read(reading, entry, grant);
  }
  _cleanup_free_ char *name = escape_string(entry->key->text);
  const char *nearest = suggest_nearest(entry->key->text, names, ARRAY_SIZE(names));
  fail_at(reading, entry->key, "unknown key '%s'", name);
  return nearest ? sb_hint(reading->error, "did you mean '%s'?", nearest) : -1;
}

static int refuse_repeated(const struct reading *reading, const struct node *mapping) {
  for (const struct node *entry = mapping->first; entry; entry = entry->next)
    for (const struct node *earlier = mapping->first; earlier != entry; earlier = earlier->next)
      if (entry->key->type == NODE_SCALAR && earlier->key->type == NODE_SCALAR &&
          strcmp(entry->key->text, earlier->key->text) == 0)
        return fail_at(reading, entry->key, "a key is written twice, first in line %u",
                       earlier->key->line);
  return 0;
}

static int check_grant(const struct reading *reading, const struct node *node,
                       const struct grant *grant, bool decided) {
  if (!decided)
    return fail_at(reading, node, "the grant has no decision");
  if (!grant->path && !grant->host)
    return fail_at(reading, node, "the grant has neither a path nor a host");
  if (grant->path && grant->port)
    return fail_at(reading, node, "a path has no port");
  if (grant->host && (grant->writable || grant->names))
    return fail_at(reading, node, "a host has no access");
  if (grant->names && !grant->allow)
    return fail_at(reading, node, "that names are listed is allowed for good, or not at all");
  return 0;
}

static int read_grant(const struct reading *reading, const struct node *node,
                      struct grant_list *list) {
  struct grant grant = {.line = node->line, .column = node->column};
  bool decided = false;
  if (node->type != NODE_MAPPING)
    return fail_at(reading, node, "a grant must be a mapping, not %s", node_type_name(node));
  int result = refuse_repeated(reading, node);
  for (const struct node *entry = node->first; result == 0 && entry; entry = entry->next) {
    result = read_entry(reading, entry, &grant);
    decided |= strcmp(entry->key->text ? entry->key->text : "", "decision") == 0;
  }
  if (result == 0)
    result = check_grant(reading, node, &grant, decided);
  if (result < 0) {
    grant_clear(&grant);
    return -1;
  }
  ARRAY_GROW(list->items, list->count);
  list->items[list->count++] = grant;
  return 0;
}

static int read_grants(const struct reading *reading, const struct node *node,
                       struct grant_list *list) {
  if (node->type != NODE_SEQUENCE)
    return fail_at(reading, node, "grants must be a list, not %s", node_type_name(node));
  for (const struct node *item = node->first; item; item = item->next)
    if (read_grant(reading, item, list) < 0)
      return -1;
  return 0;
}

static bool is_key(const struct node *entry, const char *name) {
  return entry->key->type == NODE_SCALAR && strcmp(entry->key->text, name) == 0;
}

static int read_root(const struct reading *reading, const struct node *root, const char *project,
                     struct grant_list *list) {
  bool version = false, named = !project;
  if (root->type != NODE_MAPPING)
    return fail_at(reading, root, "a mapping with version and grants is expected, not %s",
                   node_type_name(root));
  if (refuse_repeated(reading, root) < 0)
    return -1;
  for (const struct node *entry = root->first; entry; entry = entry->next) {
    if (is_key(entry, "version")) {
      version = entry->type == NODE_SCALAR && strcmp(entry->text, "1") == 0;
    } else if (is_key(entry, "grants")) {
      if (read_grants(reading, entry, list) < 0)
        return -1;
    } else if (is_key(entry, "project") && project) {
      named = entry->type == NODE_SCALAR && strcmp(entry->text, project) == 0;
    } else {
      _cleanup_free_ char *name = escape_string(entry->key->text ? entry->key->text : "");
      fail_at(reading, entry->key, "unknown key '%s'", name);
      return sb_hint(reading->error, "rules of your own belong into policy.yaml");
    }
  }
  if (!version)
    return fail_at(reading, root, "the version is missing or not 1");
  return named ? 0 : fail_at(reading, root, "these are the grants of another project");
}

int grants_parse(const char *file, const char *data, size_t length, const char *project,
                 struct grant_list *ret_list, struct sb_error *error) {
  _cleanup_arena_ struct arena arena = {0};
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_free_ char *shown = escape_string(file);
  const struct reading reading = {.shown = shown, .error = error};
  struct node *root = NULL;
  /* A project's name that is no UTF-8 stands there escaped. */
  _cleanup_free_ char *name = project ? escape_string(project) : NULL;
  if (tree_parse_limited(shown, data, length, GRANT_NODES_MAX, &arena, &root, error) < 0 ||
      read_root(&reading, root, name, &list) < 0)
    return -1;
  *ret_list = list;
  list = (struct grant_list){0};
  return 0;
}

/* ---- hosts, as a person names them ---- */

bool grant_host_is(const char *host, unsigned port, const char *name) {
  _cleanup_free_ char *plain = xasprintf("%s:%u", host, port);
  _cleanup_free_ char *bracketed = xasprintf("[%s]:%u", host, port);
  return strcasecmp(name, host) == 0 ||
         (port && (strcasecmp(name, plain) == 0 || strcasecmp(name, bracketed) == 0));
}

char *grant_host_of(const char *name) {
  const char *colon = strchr(name, ':'), *bracket = name[0] == '[' ? strchr(name, ']') : NULL;
  if (bracket)
    return xstrndup(name + 1, (size_t)(bracket - name) - 1);
  bool has_port = colon && !strchr(colon + 1, ':');
  return has_port ? xstrndup(name, (size_t)(colon - name)) : xstrdup(name);
}

/* ---- writing ---- */

static void append_pair(struct text *text, const char *key, const char *value) {
  if (!value)
    return;
  text_appendf(text, "    %s: ", key);
  if (!yaml_append_quoted(text, value)) {
    _cleanup_free_ char *escaped = escape_string(value);
    yaml_append_quoted(text, escaped);
  }
  text_append_char(text, '\n');
}

static void append_path(struct text *text, const char *path) {
  _cleanup_text_ struct text quoted = {0};
  if (yaml_append_quoted(&quoted, path)) {
    text_appendf(text, "    path: %s\n", text_string(&quoted));
    return;
  }
  _cleanup_free_ char *encoded = base64_encode(path, strlen(path));
  _cleanup_free_ char *shown = escape_string(path);
  text_appendf(text, "    path_b64: \"%s\" # %s\n", encoded, shown);
}

static void append_grant(struct text *text, const struct grant *grant) {
  text_appendf(text, "  - decision: %s\n", grant->allow ? "allow" : "deny");
  if (grant->path) {
    append_path(text, grant->path);
    text_appendf(text, "    access: %s\n", grant_access(grant));
  }
  append_pair(text, "host", grant->host);
  if (grant->port)
    text_appendf(text, "    port: %u\n", grant->port);
  append_pair(text, "by", grant->by);
  append_pair(text, "when", grant->when);
  append_pair(text, "why", grant->why);
}

char *grants_format(const struct grant_list *list, const char *project) {
  struct text text = {0};
  text_append(&text,
              "# Approvals that were kept, written by 'sandbox'. To see and to remove them:\n"
              "#   sandbox policy grants\n"
              "#   sandbox policy revoke PATH\n"
              "version: 1\n");
  if (project) {
    _cleanup_free_ char *name = escape_string(project);
    text_append(&text, "project: ");
    yaml_append_quoted(&text, name);
    text_append_char(&text, '\n');
  }
  text_append(&text, list->count ? "grants:\n" : "grants: []\n");
  for (size_t i = 0; i < list->count; i++)
    append_grant(&text, &list->items[i]);
  return text_steal(&text);
}
