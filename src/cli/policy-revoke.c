/* `sandbox policy revoke`; see policy-revoke.h. */
#include "cli/policy-revoke.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/session.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/grants.h"

/* A session may have to look at every process that holds a part of it. */
#define PATIENCE_MS 5000

/* A name that could be a host's is one, whether or not a file in the folder is called so: a command
 * could have made that file. */
static bool may_be_host(const struct revoke_request *request) {
  return !strchr(request->name, '/');
}

/* Grants name objects; a person may name a link to one, or something that is gone. */
static char *path_of(const struct revoke_request *request) {
  if (may_be_host(request) && access(request->name, F_OK) < 0)
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

static const enum grant_scope scopes[] = {SCOPE_PROJECT, SCOPE_USER, SCOPE_ORG};

static int revoke_stored(const struct revoke_request *request, const char *name,
                         struct revoke_result *result, struct sb_error *error) {
  for (size_t i = 0; i < ARRAY_SIZE(scopes); i++) {
    size_t removed = 0;
    if (grants_remove(&request->host->policy, scopes[i], name, &removed, error) < 0) {
      if (scopes[i] != SCOPE_ORG)
        return -1;
      result->forbidden |= error->code == SB_CODE_DENIED;
      sb_error_clear(error); /* not ours to change, and perhaps not even there */
    }
    result->stored += removed;
  }
  return 0;
}

/* Two paths of which one may lie in the other. */
typedef bool is_related(const char *kept, const char *path);

static bool lies_above(const char *kept, const char *path) {
  return path_is_under(path, kept);
}

static bool lies_inside(const char *kept, const char *path) {
  return path_is_under(kept, path) && strcmp(kept, path) != 0;
}

/* Where the names of a folder may be listed, nothing in it is covered by that. */
static bool concerns(const struct grant *grant, const char *path, is_related *is) {
  return grant->allow && grant->path && is(grant->path, path) &&
         (!grant->names || path_is_under(grant->path, path));
}

/* The longest path that is so related and for which something was approved for good, escaped; NULL
 * if there is none. New string. */
static char *find_kept(const struct revoke_request *request, const char *path, is_related *is) {
  char *found = NULL;
  for (size_t i = 0; path && i < ARRAY_SIZE(scopes); i++) {
    _cleanup_error_ struct sb_error ignored = {0};
    _cleanup_grants_ struct grant_list list = {0};
    if (grants_load(&request->host->policy, scopes[i], &list, &ignored) < 0)
      continue;
    for (size_t j = 0; j < list.count; j++) {
      const struct grant *grant = &list.items[j];
      if (!concerns(grant, path, is) || (found && strlen(found) > strlen(grant->path)))
        continue;
      free(found);
      found = escape_string(grant->path);
    }
  }
  return found;
}

static int fail_nothing(const struct revoke_request *request, const char *path, bool forbidden,
                        struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(path ? path : request->name);
  _cleanup_free_ char *above = find_kept(request, path, lies_above);
  _cleanup_free_ char *inside = find_kept(request, path, lies_inside);
  if (forbidden) {
    sb_fail(error, SB_CODE_DENIED, 0, "'%s' was approved or denied for everybody here", shown);
    return sb_hint(error, "only an administrator of this machine may revoke it");
  }
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "nothing was approved or denied for '%s'", shown);
  if (above)
    return sb_hint(error, "it is covered by '%s'; revoke that", above);
  if (inside)
    return sb_hint(error, "'%s' in it was approved; revoke that", inside);
  return sb_hint(error,
                 "'sandbox policy show' lists the rules; a hand-written one is changed in its "
                 "file");
}

/* What the stores still allow. */
static void warn_of_the_rest(const struct revoke_request *request, const char *path,
                             bool forbidden) {
  _cleanup_free_ char *above = find_kept(request, path, lies_above);
  _cleanup_free_ char *inside = find_kept(request, path, lies_inside);
  if (forbidden)
    cli_warn("for sessions to come it was approved or denied for everybody here: only an "
             "administrator may revoke that");
  else if (above)
    cli_warn("sessions to come may still read it, as a part of '%s'", above);
  if (inside)
    cli_warn("sessions to come may still use '%s' in it, which was approved by itself", inside);
}

/* By both names: the name itself may have been approved, and have become a link since. */
static int revoke_in_stores(const struct revoke_request *request, const char *path,
                            struct revoke_result *result, struct sb_error *error) {
  _cleanup_free_ char *named = path ? path_join(request->host->cwd, request->name) : NULL;
  int done = may_be_host(request) ? revoke_stored(request, request->name, result, error) : 0;
  if (done == 0 && path)
    done = revoke_stored(request, path, result, error);
  if (done == 0 && named && strcmp(named, path) != 0)
    done = revoke_stored(request, named, result, error);
  return done;
}

/* What a session has done. */
struct told {
  bool revoked, held, unsure;
};

static void tell_session(const struct registry_entry *entry, json_t *message, struct told *told) {
  _cleanup_error_ struct sb_error refused = {0};
  json_t *reply = NULL;
  if (client_call(entry->folder, PATIENCE_MS, message, &reply, &refused) < 0) {
    told->unsure |= refused.code != SB_CODE_NOT_FOUND && refused.code != SB_CODE_CONFLICT;
    return;
  }
  told->held |= json_is_true(json_object_get(reply, "held"));
  told->revoked = true;
  json_decref(reply);
}

/* False: it may still have what was revoked. */
static bool revoke_in_session(const struct revoke_request *request,
                              const struct registry_entry *entry, const char *path,
                              struct revoke_result *result) {
  struct told told = {0};
  if (path)
    tell_session(entry, revoke_message(path, NULL), &told);
  if (may_be_host(request))
    tell_session(entry, revoke_message(NULL, request->name), &told);
  result->held += told.held;
  result->sessions += told.revoked;
  return !told.unsure;
}

static int fail_unanswered(const struct strv *silent, struct sb_error *error) {
  _cleanup_text_ struct text names = {0};
  STRV_FOREACH (name, silent) {
    text_append(&names, names.length > 0 ? " " : "");
    text_append(&names, *name);
  }
  sb_fail(error, SB_CODE_SYSTEM, 0, "session %s did not confirm: it may still be open there",
          names.data);
  return sb_hint(error, "revoke it again, or end what has it: sandbox kill %s", names.data);
}

/* Whatever becomes of the stores, what runs is told; and a session that does not say that it is
 * done counts as a failure. */
int policy_revoke(const struct revoke_request *request, struct revoke_result *ret_result,
                  struct sb_error *error) {
  _cleanup_choice_ struct session_choice choice = {0};
  _cleanup_strv_ struct strv silent = {0};
  _cleanup_free_ char *path = path_of(request);
  struct revoke_result result = {0};
  if (session_choose(&choice, request->session, error) < 0)
    return -1;
  int stored = request->session ? 0 : revoke_in_stores(request, path, &result, error);
  for (size_t i = 0; i < choice.registry.count; i++) {
    const struct registry_entry *entry = &choice.registry.entries[i];
    if (request->session && entry != choice.entry)
      continue;
    if (!revoke_in_session(request, entry, path, &result))
      strv_add(&silent, entry->id);
  }
  if (silent.count > 0)
    return fail_unanswered(&silent, error);
  if (stored < 0)
    return -1;
  if (result.stored + result.sessions == 0)
    return fail_nothing(request, path, result.forbidden, error);
  if (!request->session)
    warn_of_the_rest(request, path, result.forbidden);
  *ret_result = result;
  return 0;
}
