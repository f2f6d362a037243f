/* The JSON settings of mycode's sandbox manager (type, limits, network, filesystem). */
#include <string.h>

#include "core/cleanup.h"
#include "policy/importers/importer.h"

static int take_type(struct import *import, const struct import_key *key, const struct node *node) {
  static const char *const types[] = {"docker", "firejail", "nsjail", "vm"};
  if (!import_is_text(import, key, node))
    return -1;
  for (size_t i = 0; i < ARRAY_SIZE(types); i++)
    if (strcmp(node->text, types[i]) == 0) {
      import_set(import, node, key->target, types[i]);
      return 0;
    }
  return import_fail(import, node, "%s must be docker, firejail, nsjail or vm", key->name);
}

static const struct import_key keys[] = {
    {"type", take_type, "backend"},
    {"enabled", take_boolean, "require", NULL, "disabled"},
    {"image", take_text, "container.image"},
    {"profile", take_lost, .why = "firejail gets its rules from this policy, not from a profile"},
    {"limits.cpuPercent", take_number, "limits.cpu_percent"},
    {"limits.memoryMB", take_number, "limits.memory_mb"},
    {"limits.diskMB", take_number, "limits.disk_mb"},
    {"limits.timeoutSeconds", take_number, "limits.timeout_seconds"},
    {"limits.maxProcesses", take_number, "limits.max_processes"},
    {"network.enabled", take_boolean, "network.mode", "full", "none"},
    {"network.allowedHosts", take_texts, "network.allow"},
    {"network.blockedPorts", take_lost, .why = "ports are allowed with their hosts, not blocked"},
    {"filesystem.readOnly", take_paths, "filesystem.read"},
    {"filesystem.readWrite", take_paths, "filesystem.write"},
    {"filesystem.hidden", take_paths, "filesystem.hide"},
    {"filesystem.tempDir", take_lost, .why = "temporary folders are private to each session"},
    {0},
};

static int finish(struct import *import) {
  if (import_has(import, "network.allow", NULL) && import_has(import, "network.mode", "full"))
    import_set(import, NULL, "network.mode", "filtered");
  return 0;
}

static const char *const marks[] = {"type", "limits", NULL};

const struct importer mycode_importer = {
    .name = "mycode",
    .summary = "mycode",
    .root = "sandbox",
    .root_is_optional = true,
    .keys = keys,
    .recognised_by = marks,
    .finish = finish,
};
