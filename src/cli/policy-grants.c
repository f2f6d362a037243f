/* sandbox policy grants: what was approved or denied for good, by whom, when and why. Reads only.
 */
#include "cli/policy.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"
#include "policy/grants.h"

static const enum grant_scope scopes[] = {SCOPE_ORG, SCOPE_PROJECT, SCOPE_USER};

static void append_text(struct text *text, const struct grant *grant, enum grant_scope scope) {
  _cleanup_free_ char *what = grant_describe(grant);
  _cleanup_free_ char *by = escape_string(grant->by ? grant->by : "?");
  _cleanup_free_ char *when = escape_string(grant->when ? grant->when : "?");
  _cleanup_free_ char *why = grant->why ? escape_string(grant->why) : NULL;
  text_appendf(text, "%-8s %s\n         by %s, %s%s%s\n", grant_scope_name(scope), what, by, when,
               why ? ": " : "", why ? why : "");
}

static void append_json(json_t *array, const struct grant *grant, enum grant_scope scope,
                        const char *file) {
  json_t *object = grant_to_json(grant);
  json_set_string(object, "scope", grant_scope_name(scope));
  json_set_path(object, "file", file);
  json_object_set_new(object, "line", json_integer(grant->line));
  json_array_append_new(array, object);
}

int policy_run_grants(const struct policy_request *request) {
  json_t *array = json_array();
  _cleanup_text_ struct text text = {0};
  int result = 0;
  for (size_t i = 0; result == 0 && i < ARRAY_SIZE(scopes); i++) {
    _cleanup_grants_ struct grant_list list = {0};
    _cleanup_free_ char *file = grants_file(request->context, scopes[i]);
    result = grants_load(request->context, scopes[i], &list, request->error);
    for (size_t j = 0; j < list.count; j++) {
      append_json(array, &list.items[j], scopes[i], file);
      append_text(&text, &list.items[j], scopes[i]);
    }
  }
  if (result == 0 && policy_wants_json(request))
    return policy_print_json(json_pack("{s:o}", "grants", array));
  json_decref(array);
  return result < 0 ? -1 : cli_print(text_string(&text));
}
