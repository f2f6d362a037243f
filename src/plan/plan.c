/* The plan as data: building, naming, printing. Pure. */
#include "plan/plan.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"

static const struct {
  const char *name, *doing;
} kinds[OPERATION_COUNT] = {
    [OPERATION_PLACEHOLDER_FOLDER] = {"placeholder-folder", "reserving the protected name"},
    [OPERATION_PLACEHOLDER_FILE] = {"placeholder-file", "reserving the protected name"},
    [OPERATION_PRIVATE_FOLDER] = {"private-folder", "creating the private folder"},
    [OPERATION_PRIVATE_FILE] = {"private-file", "creating the private file"},
    [OPERATION_PRIVATE_LINK] = {"private-link", "creating the private link to"},
    [OPERATION_ROOT] = {"root", "making the host's tree visible read-only"},
    [OPERATION_GATE] = {"gate", "mounting the gate at"},
    [OPERATION_LINK] = {"link", "repeating the link"},
    [OPERATION_PRIVATE] = {"private", "mounting the private folder"},
    [OPERATION_PRIVATE_SEALED] = {"private-sealed", "mounting the private folder"},
    [OPERATION_DEVICE] = {"device", "making the device available"},
    [OPERATION_DEVPTS] = {"devpts", "mounting the session's terminals at"},
    [OPERATION_PROC] = {"proc", "mounting the session's"},
    [OPERATION_SYSFS] = {"sysfs", "mounting the session's"},
    [OPERATION_WRITABLE] = {"writable", "making writable"},
    [OPERATION_READONLY] = {"readonly", "making readable"},
    [OPERATION_OVERLAY] = {"overlay", "mounting an overlay over"},
    [OPERATION_PIN] = {"pin", "fixing in its place"},
    [OPERATION_PROTECT] = {"protect", "protecting"},
    [OPERATION_SEAL] = {"seal", "making read-only"},
    [OPERATION_MASK] = {"mask", "hiding"},
};

static const char *operation_name(enum operation_kind kind) {
  return kinds[kind].name;
}

const char *operation_doing(enum operation_kind kind) {
  return kinds[kind].doing;
}

struct operation *plan_add(struct plan *plan, enum operation_kind kind, const char *path,
                           const char *source, const char *why_format, ...) {
  ARRAY_GROW(plan->operations, plan->operation_count);
  struct operation *operation = &plan->operations[plan->operation_count++];
  *operation = (struct operation){
      .kind = kind, .path = xstrdup(path), .source = source ? xstrdup(source) : NULL};
  if (why_format && !strchr(why_format, '%')) {
    operation->why = xstrdup(why_format);
  } else if (why_format) {
    va_list arguments;
    va_start(arguments, why_format);
    operation->why = xvasprintf(why_format, arguments);
    va_end(arguments);
  }
  return operation;
}

void operation_clear(struct operation *operation) {
  free(operation->path);
  free(operation->source);
  free(operation->upper);
  free(operation->text);
  free(operation->why);
}

void plan_clear(struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++)
    operation_clear(&plan->operations[i]);
  free(plan->operations);
  strv_clear(&plan->publish);
  strv_clear(&plan->hidden);
  strv_clear(&plan->touched_read);
  strv_clear(&plan->touched_write);
  strv_clear(&plan->arguments);
  strv_clear(&plan->script_arguments);
  strv_clear(&plan->executables);
  strv_clear(&plan->environment);
  strv_clear(&plan->warnings);
  strv_clear(&plan->notes);
  for (size_t i = 0; i < plan->socket_count; i++)
    free(plan->sockets[i].path);
  free(plan->sockets);
  for (size_t i = 0; i < plan->walked.count; i++)
    free(plan->walked.folders[i].path);
  free(plan->walked.folders);
  free(plan->working_folder);
  free(plan->hostname);
  landlock_plan_clear(&plan->landlock);
  host_rules_free(plan->network.rules);
  *plan = (struct plan){0};
}

/* ---- showing ---- */

static json_t *operation_to_json(const struct operation *operation) {
  json_t *object = json_object();
  json_set_string(object, "operation", operation_name(operation->kind));
  json_set_path(object, "path", operation->path);
  if (operation->source)
    json_set_path(object, "source", operation->source);
  if (operation->upper)
    json_set_path(object, "upper", operation->upper);
  if (operation->why)
    json_set_string(object, "why", operation->why);
  return object;
}

/* What leads out of the session. */
static const char *plan_network_name(const struct plan *plan) {
  if (plan->network.mode == NETWORK_NONE)
    return "none";
  return plan->network.driver ? plan->network.driver->name : "relay";
}

bool plan_reserves(const struct plan *plan, const char *path) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (operation->kind == OPERATION_PLACEHOLDER_FOLDER && strcmp(operation->path, path) == 0)
      return true;
  }
  return false;
}

bool plan_has_overlays(const struct plan *plan) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind == OPERATION_OVERLAY)
      return true;
  }
  return false;
}

bool plan_holds_outside_files(const struct plan *plan) {
  return !plan->landlock.lenient;
}

bool plan_guards_file(const struct plan *plan, const char *path) {
  bool writable = false, guarded = false;
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    bool guards = operation->kind == OPERATION_PROTECT || operation->kind == OPERATION_MASK ||
                  operation->kind == OPERATION_READONLY;
    if ((guards || operation->kind == OPERATION_WRITABLE) && path_is_under(path, operation->path)) {
      guarded |= guards;
      writable |= !guards;
    }
  }
  return writable && guarded;
}

json_t *plan_to_json(const struct plan *plan) {
  json_t *object = json_object(), *operations = json_array();
  for (size_t i = 0; i < plan->operation_count; i++)
    json_array_append_new(operations, operation_to_json(&plan->operations[i]));
  json_object_set_new(object, "operations", operations);
  json_object_set_new(object, "arguments",
                      json_string_array(plan->arguments.items, plan->arguments.count));
  json_object_set_new(object, "environment",
                      json_string_array(plan->environment.items, plan->environment.count));
  json_set_path(object, "working_folder", plan->working_folder);
  json_set_string(object, "hostname", plan->hostname);
  json_set_string(object, "network", plan_network_name(plan));
  json_object_set_new(object, "debug", json_boolean(plan->seccomp.debug));
  json_object_set_new(object, "landlock_abi", json_integer(plan->landlock.abi));
  json_object_set_new(object, "warnings",
                      json_string_array(plan->warnings.items, plan->warnings.count));
  json_object_set_new(object, "notes", json_string_array(plan->notes.items, plan->notes.count));
  return object;
}

static void append_operation(struct text *text, const struct operation *operation) {
  _cleanup_free_ char *path = escape_string(operation->path);
  text_appendf(text, "  %-18s %s", operation_name(operation->kind), path);
  if (operation->source) {
    _cleanup_free_ char *source = escape_string(operation->source);
    text_appendf(text, " <- %s", source);
  }
  if (operation->why)
    text_appendf(text, "  # %s", operation->why);
  text_append_char(text, '\n');
}

static void append_words(struct text *text, const char *title, const struct strv *words) {
  text_appendf(text, "%s:", title);
  STRV_FOREACH (word, words) {
    _cleanup_free_ char *quoted = escape_shell_word(*word);
    text_appendf(text, " %s", quoted);
  }
  text_append_char(text, '\n');
}

static void append_lines(struct text *text, const char *title, const struct strv *lines) {
  STRV_FOREACH (line, lines)
    text_appendf(text, "%s: %s\n", title, *line);
}

char *plan_to_text(const struct plan *plan) {
  struct text text = {0};
  _cleanup_free_ char *folder = escape_string(plan->working_folder);
  append_words(&text, "command", &plan->arguments);
  text_appendf(&text, "folder: %s\nhostname: %s\n", folder, plan->hostname);
  text_appendf(&text, "debugging: %s\nlandlock: ABI %d\nseccomp: allow-list\n",
               plan->seccomp.debug ? "inside the sandbox" : "off", plan->landlock.abi);
  text_append(&text, "namespaces: user mount pid network ipc uts cgroup");
  text_appendf(&text, "%s\n", plan->has_time_offset ? " time" : "");
  text_appendf(&text, "network: %s\n", plan_network_name(plan));
  append_words(&text, "environment", &plan->environment);
  text_append(&text, "view:\n");
  for (size_t i = 0; i < plan->operation_count; i++)
    append_operation(&text, &plan->operations[i]);
  append_lines(&text, "note", &plan->notes);
  append_lines(&text, "warning", &plan->warnings);
  return text_steal(&text);
}
