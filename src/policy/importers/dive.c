/* The `sandbox:` block of dive.yaml. */
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "policy/importers/importer.h"

static int take_environment(struct import *import, const struct import_key *key,
                            const struct node *node) {
  if (node->type != NODE_MAPPING)
    return import_fail(import, node, "%s must be a mapping of names to values", key->name);
  for (const struct node *entry = node->first; entry; entry = entry->next) {
    if (entry->key->type != NODE_SCALAR || !import_is_text(import, key, entry))
      return import_fail(import, entry, "the name and value of a variable must be text");
    _cleanup_free_ char *pair = xasprintf("%s=%s", entry->key->text, entry->text);
    import_add(import, entry, key->target, pair);
  }
  return 0;
}

/* "3000" is the same port on both sides; "8080:80" as ours. */
static void take_port(struct import *import, const struct import_key *key,
                      const struct node *item) {
  _cleanup_free_ char *pair =
      strchr(item->text, ':') ? xstrdup(item->text) : xasprintf("%s:%s", item->text, item->text);
  import_add(import, item, key->target, pair);
}

static int take_ports(struct import *import, const struct import_key *key,
                      const struct node *node) {
  return import_items(import, key, node, take_port);
}

/* HOST:CONTAINER[:OPTIONS]. Paths are the same inside and outside here. */
static void take_mount(struct import *import, const struct import_key *key,
                       const struct node *item) {
  (void)key;
  _cleanup_free_ char *copy = xstrdup(item->text);
  char *rest = copy, *host = strsep(&rest, ":"), *container = strsep(&rest, ":"), *options = rest;
  if (!container || strcmp(host, container) != 0) {
    import_lose(import, item, item->text, "a path is the same inside and outside");
    return;
  }
  bool readonly = options && (strcmp(options, "ro") == 0 || strncmp(options, "ro,", 3) == 0);
  if (options && !readonly && strcmp(options, "rw") != 0)
    import_lose(import, item, item->text, "only the options ro and rw are known");
  _cleanup_free_ char *path = import_path(host);
  import_add(import, item, readonly ? "filesystem.read" : "filesystem.write", path);
}

static int take_mounts(struct import *import, const struct import_key *key,
                       const struct node *node) {
  return import_items(import, key, node, take_mount);
}

static int take_command(struct import *import, const struct import_key *key,
                        const struct node *node) {
  return import_choice(import, key, node, (const char *const[]){"docker", "podman", NULL});
}

static int take_profile(struct import *import, const struct import_key *key,
                        const struct node *node) {
  return import_choice(import, key, node, (const char *const[]){"restrictive", "permissive", NULL});
}

static int take_work_dir(struct import *import, const struct import_key *key,
                         const struct node *node) {
  if (!import_is_text(import, key, node))
    return -1;
  if (strcmp(node->text, ".") != 0)
    import_lose(import, node, key->name, "the project is where the command is started");
  return 0;
}

static const struct import_key keys[] = {
    {"enabled", take_boolean, "require", NULL, "disabled"},
    {"work_dir", take_work_dir},
    {"allow_network", take_boolean, "network.mode", "full", "none"},
    {"allowed_write_paths", take_paths, "filesystem.write"},
    {"environment", take_environment, "environment.set"},
    {"docker.image", take_text, "container.image"},
    {"docker.command", take_command, "backend"},
    {"docker.additional_mounts", take_mounts},
    {"docker.ports", take_ports, "network.publish"},
    {"seatbelt.profile", take_profile, "seatbelt.profile"},
    {"seatbelt.custom_profile_path", take_text, "seatbelt.custom_profile"},
    {0},
};

static int finish(struct import *import) {
  if (!import_has(import, "require", NULL))
    import_note(import, "where no sandbox can be had the command is not run; Dive would go on "
                        "without one (require: preferred)");
  return 0;
}

static const char *const marks[] = {"allow_network", "allowed_write_paths", NULL};

const struct importer dive_importer = {
    .name = "dive",
    .summary = "Dive",
    .root = "sandbox",
    .root_is_optional = true,
    .keys = keys,
    .recognised_by = marks,
    .file_name = "dive.yaml",
    .finish = finish,
};
