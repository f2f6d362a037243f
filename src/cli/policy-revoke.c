/* `sandbox policy revoke`; see policy-revoke.h. */
#include "cli/policy-revoke.h"

#include <string.h>
#include <unistd.h>

#include "cli/session.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "policy/grants.h"

/* Grants name objects; a person may name a link to one, or something that is gone. */
static char *path_of(const struct revoke_request *request) {
  bool is_path = strchr(request->name, '/') || access(request->name, F_OK) == 0;
  if (!is_path)
    return NULL;
  char *resolved;
  char *path = path_join(request->host->cwd, request->name);
  if (file_resolve(path, &resolved) < 0)
    return path;
  free(path);
  return resolved;
}

static json_t *revoke_message(const char *path, const char *host) {
  json_t *message = json_pack("{s:s}", "cmd", "cmd.revoke");
  if (path)
    json_set_path(message, "path", path);
  else
    json_set_string(message, "host", host);
  return message;
}

static int revoke_stored(const struct revoke_request *request, const char *name, size_t *ret_stored,
                         struct sb_error *error) {
  static const enum grant_scope scopes[] = {SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG};
  for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
    size_t removed = 0;
    if (grants_remove(&request->host->policy, scopes[i], name, &removed, error) < 0) {
      if (scopes[i] != SCOPE_ORG)
        return -1;
      sb_error_clear(error); /* not ours to change, and perhaps not even there */
    }
    *ret_stored += removed;
  }
  return 0;
}

static int fail_nothing(const char *name, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(name);
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "nothing was approved or denied for '%s'", shown);
  return sb_hint(error,
                 "'sandbox policy show' lists the rules; a hand-written one is changed in its "
                 "file");
}

int policy_revoke(const struct revoke_request *request, struct revoke_result *ret_result,
                  struct sb_error *error) {
  _cleanup_choice_ struct session_choice choice = {0};
  _cleanup_free_ char *path = path_of(request);
  const char *name = path ? path : request->name;
  struct revoke_result result = {0};
  if (session_choose(&choice, request->session, error) < 0 ||
      (!request->session && revoke_stored(request, name, &result.stored, error) < 0))
    return -1;
  /* The name itself was approved, and has become a link since. */
  _cleanup_free_ char *named = path ? path_join(request->host->cwd, request->name) : NULL;
  if (named && strcmp(named, path) != 0 && !request->session &&
      revoke_stored(request, named, &result.stored, error) < 0)
    return -1;
  for (size_t i = 0; i < choice.registry.count; i++) {
    const struct registry_entry *entry = &choice.registry.entries[i];
    _cleanup_error_ struct sb_error refused = {0};
    json_t *reply = NULL;
    if (request->session && entry != choice.entry)
      continue;
    int revoked = client_call(entry->folder, CLIENT_PATIENCE, revoke_message(path, request->name),
                              &reply, &refused);
    result.held += revoked == 0 && json_is_true(json_object_get(reply, "held"));
    json_decref(reply);
    result.sessions += revoked == 0;
  }
  if (result.stored + result.sessions == 0)
    return fail_nothing(name, error);
  *ret_result = result;
  return 0;
}
