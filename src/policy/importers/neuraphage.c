/* The [sandbox] table of neuraphage's TOML configuration. */
#include "policy/importers/importer.h"

static const struct import_key keys[] = {
    {"enabled", take_boolean, "require", "required", "disabled"},
    {"isolate_network", take_boolean, "network.mode", "none", "full"},
    {"isolate_pids", take_boolean, .if_true = "",
     .why = "processes outside are never visible inside"},
    {"extra_rw_paths", take_paths, "filesystem.write"},
    {"extra_ro_paths", take_paths, "filesystem.read"},
    {"rw_paths", take_paths, "filesystem.write"},
    {"ro_paths", take_paths, "filesystem.read"},
    {"blocked_paths", take_paths, "filesystem.hide"},
    {"env_passthrough", take_texts, "environment.pass"},
    {0},
};

/* Without a word it takes a sandbox if there is one. */
static int finish(struct import *import) {
  if (!import_has(import, "require", NULL))
    import_set(import, NULL, "require", "preferred");
  return 0;
}

static const char *const marks[] = {"isolate_network", "extra_rw_paths", "extra_ro_paths", NULL};

const struct importer neuraphage_importer = {
    .name = "neuraphage",
    .summary = "neuraphage",
    .is_toml = true,
    .root = "sandbox",
    .keys = keys,
    .recognised_by = marks,
    .finish = finish,
};
