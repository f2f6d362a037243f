/* The JSON settings of mycode's sandbox manager (type, limits, network, filesystem). */
#include "core/alloc.h"
#include "core/cleanup.h"
#include "policy/importers/importer.h"

static int take_type(struct import *import, const struct import_key *key, const struct node *node) {
  return import_choice(import, key, node,
                       (const char *const[]){"docker", "firejail", "nsjail", "vm", NULL});
}

static void take_blocked_port(struct import *import, const struct import_key *key,
                              const struct node *item) {
  _cleanup_free_ char *rule = xasprintf("*:%s", item->text);
  import_add(import, item, key->target, rule);
}

static int take_blocked_ports(struct import *import, const struct import_key *key,
                              const struct node *node) {
  return import_items(import, key, node, take_blocked_port);
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
    {"network.blockedPorts", take_blocked_ports, "network.deny"},
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
