/* The stores of grants; see grants.h. A change is read, made and written under one lock, and noted
 * in the audit log before it takes effect. A file that is not understood is never overwritten. */
#include "policy/grants.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/json.h"
#include "core/path.h"
#include "core/sha256.h"
#include "core/utc.h"
#include "policy/load.h"
#include "policy/rules.h"

static const struct {
  const char *name;
  enum policy_store store;
  mode_t folder_mode, file_mode;
} scopes[] = {
    [SCOPE_PROJECT] = {"project", STORE_PROJECT, 0700, 0600},
    [SCOPE_USER] = {"user", STORE_USER, 0700, 0600},
    [SCOPE_ORG] = {"org", STORE_ORG, 0755, 0644},
};

const char *grant_scope_name(enum grant_scope scope) {
  static const char *const names[] = {[SCOPE_ONCE] = "once",
                                      [SCOPE_SESSION] = "session",
                                      [SCOPE_PROJECT] = "project",
                                      [SCOPE_USER] = "user",
                                      [SCOPE_ORG] = "org"};
  return scope < ARRAY_SIZE(names) ? names[scope] : "unknown";
}

/* ---- places ---- */

/* A name that a person recognises, and a hash that makes it unique. */
static char *project_folder(const struct policy_context *context) {
  char hash[SHA256_HEX_SIZE], name[33];
  sha256_hex(context->project, strlen(context->project), hash);
  snprintf(name, sizeof name, "%s", path_base(context->project));
  for (char *at = name; *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("-_.", *at))
      *at = '_';
  return xasprintf("%s/sandbox/projects/%s-%.16s", context->config_home, name, hash);
}

static char *scope_folder(const struct policy_context *context, enum grant_scope scope) {
  if (scope == SCOPE_ORG)
    return context->org_folder ? xstrdup(context->org_folder) : NULL;
  if (!context->config_home)
    return NULL;
  return scope == SCOPE_PROJECT ? project_folder(context)
                                : xasprintf("%s/sandbox", context->config_home);
}

char *grants_file(const struct policy_context *context, enum grant_scope scope) {
  _cleanup_free_ char *folder = scope_folder(context, scope);
  return folder ? xasprintf("%s/grants.yaml", folder) : NULL;
}

static int fail_place(const char *file, enum grant_scope scope, int errnum,
                      struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file);
  bool forbidden = errnum == EACCES || errnum == EPERM || errnum == EROFS;
  sb_fail(error, forbidden ? SB_CODE_DENIED : SB_CODE_SYSTEM, errnum, "writing %s", shown);
  if (forbidden && scope == SCOPE_ORG)
    return sb_hint(error, "only an administrator of this machine may approve for everybody; choose "
                          "user or project");
  return sb_hint(error, "the folder must be yours and have room; choose this session instead");
}

/* ---- reading ---- */

static const char *project_of(const struct policy_context *context, enum grant_scope scope) {
  return scope == SCOPE_PROJECT ? context->project : NULL;
}

static int read_list(const struct policy_context *context, enum grant_scope scope, const char *file,
                     struct grant_list *ret_list, struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  size_t length = 0;
  int found = policy_probe(file, error);
  if (found <= 0)
    return found;
  int result = file_read_at(AT_FDCWD, file, POLICY_FILE_MAX, &data, &length);
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(file);
    sb_fail(error, SB_CODE_POLICY, -result, "reading %s", shown);
    return sb_hint(error, "make it a readable file of at most 1 MiB, or remove it");
  }
  return grants_parse(file, data, length, project_of(context, scope), ret_list, error);
}

int grants_load(const struct policy_context *context, enum grant_scope scope,
                struct grant_list *ret_list, struct sb_error *error) {
  _cleanup_free_ char *file = grants_file(context, scope);
  return file ? read_list(context, scope, file, ret_list, error) : 0;
}

/* ---- changing ---- */

/* One change under the lock. `edit` returns how many grants it touched; 0 writes nothing. */
typedef size_t edit_grants(struct grant_list *list, void *argument);

/* Whoever was killed while writing has left a file; nobody else writes while we hold the lock. The
 * lock of older versions was here. */
static bool is_leftover(const char *name) {
  size_t length = strlen(name);
  bool temporary = strncmp(name, "grants.yaml.", 12) == 0 && length > 16 &&
                   strcmp(name + length - 4, ".tmp") == 0;
  return temporary || strcmp(name, "grants.lock") == 0;
}

static bool remove_leftover(void *context, const struct folder_entry *entry) {
  if (is_leftover(entry->name))
    (void)unlinkat(*(const int *)context, entry->name, 0);
  return true;
}

static int write_list(const struct policy_context *context, enum grant_scope scope, int folder,
                      const struct grant_list *list) {
  _cleanup_free_ char *text = grants_format(list, project_of(context, scope));
  size_t length = strlen(text);
  if (length > POLICY_FILE_MAX)
    return -EFBIG;
  _cleanup_close_ int reader = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (reader >= 0)
    (void)folder_read(reader, remove_leftover, &folder);
  return file_replace_at(folder, "grants.yaml", text, length, scopes[scope].file_mode);
}

static int note(const struct policy_context *context, enum grant_scope scope, const char *event,
                json_t *fields, struct sb_error *error) {
  json_set_string(fields, "scope", grant_scope_name(scope));
  if (scope == SCOPE_PROJECT)
    json_set_path(fields, "project", context->project);
  return audit_note(context->state_home, event, fields, error);
}

/* What cannot be written is told before the log says that it will be. */
static int open_folder(const char *path, enum grant_scope scope, const char *file,
                       struct sb_error *error) {
  int result = file_make_folders(path, scopes[scope].folder_mode);
  _cleanup_close_ int folder = result < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || faccessat(folder, ".", W_OK, AT_EACCESS) < 0)
    return fail_place(file, scope, result < 0 ? -result : errno, error);
  return steal_fd(&folder);
}

static int fail_lock(const char *folder, int errnum, struct sb_error *error) {
  if (errnum == EBUSY) {
    sb_fail(error, SB_CODE_CONFLICT, 0, "approvals are being changed by another sandbox of yours");
    return sb_hint(error, "try again; 'ps' shows it if it was stopped");
  }
  _cleanup_free_ char *shown = escape_string(folder);
  sb_fail(error, SB_CODE_SYSTEM, errnum, "locking %s/grants.lock", shown);
  return sb_hint(error, "the folder must be yours and have room; choose this session instead");
}

/* One for all stores, in the folder that no session can see: who can open a file can lock it, and a
 * command that reads the stores could keep everybody from revoking. Only administrators who change
 * the organisation's store as different users in the same instant are not kept apart. */
static int take_lock(const struct policy_context *context, struct sb_error *error) {
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", context->state_home);
  _cleanup_free_ char *file = xasprintf("%s/grants.lock", folder);
  int result = file_make_folders(folder, 0700);
  _cleanup_close_ int lock =
      result < 0 ? -1 : open(file, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (result == 0)
    result = lock < 0 ? -errno : file_lock(lock, LOCK_EX);
  return result < 0 ? fail_lock(folder, -result, error) : steal_fd(&lock);
}

/* Steals `fields`. Returns how many grants were touched, or -1. */
static ssize_t change(const struct policy_context *context, enum grant_scope scope,
                      edit_grants *edit, void *argument, const char *event, json_t *fields,
                      struct sb_error *error) {
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_free_ char *path = scope_folder(context, scope), *file = grants_file(context, scope);
  if (!path || !context->state_home) {
    json_decref(fields);
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no place to keep approvals: no home folder");
    return sb_hint(error, "set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME");
  }
  _cleanup_close_ int folder = open_folder(path, scope, file, error);
  _cleanup_close_ int lock = folder < 0 ? -1 : take_lock(context, error);
  if (lock < 0 || read_list(context, scope, file, &list, error) < 0) {
    json_decref(fields);
    return -1;
  }
  size_t touched = edit(&list, argument);
  if (touched == 0) {
    json_decref(fields);
    return 0;
  }
  if (note(context, scope, event, fields, error) < 0)
    return -1;
  int result = write_list(context, scope, folder, &list);
  return result < 0 ? fail_place(file, scope, -result, error) : (ssize_t)touched;
}

static bool same_subject(const struct grant *left, const struct grant *right) {
  if (left->path || right->path)
    return left->path && right->path && strcmp(left->path, right->path) == 0;
  return strcmp(left->host, right->host) == 0 && left->port == right->port;
}

/* That something may be read and that it may not be written to are kept side by side. */
static bool is_beside(const struct grant *left, const struct grant *right) {
  return left->allow && !left->writable && !right->allow && right->writable;
}

static char *copy_text(const char *text) {
  return text ? xstrdup(text) : NULL;
}

static void remove_at(struct grant_list *list, size_t index) {
  struct grant_list one = {.items = xcalloc(1, sizeof *one.items), .count = 1};
  one.items[0] = list->items[index];
  grant_list_clear(&one);
  list->count--;
  memmove(list->items + index, list->items + index + 1,
          (list->count - index) * sizeof *list->items);
}

static size_t edit_add(struct grant_list *list, void *argument) {
  const struct grant *grant = argument;
  for (size_t i = list->count; i-- > 0;)
    if (same_subject(&list->items[i], grant) && !is_beside(&list->items[i], grant) &&
        !is_beside(grant, &list->items[i]))
      remove_at(list, i);
  ARRAY_GROW(list->items, list->count);
  struct grant *added = &list->items[list->count++];
  *added = *grant;
  added->path = copy_text(grant->path);
  added->host = copy_text(grant->host);
  added->by = copy_text(grant->by);
  added->when = copy_text(grant->when);
  added->why = copy_text(grant->why);
  return 1;
}

static size_t edit_remove(struct grant_list *list, void *argument) {
  const char *subject = argument;
  size_t removed = 0;
  for (size_t i = list->count; i-- > 0;) {
    const struct grant *grant = &list->items[i];
    if (grant->path ? strcmp(grant->path, subject) != 0
                    : !grant_host_is(grant->host, grant->port, subject))
      continue;
    remove_at(list, i);
    removed++;
  }
  return removed;
}

static char *whoami(const struct policy_context *context) {
  const char *name = context_variable(context, "USER");
  return name ? xstrdup(name) : xasprintf("uid %u", (unsigned)getuid());
}

static char *time_now(void) {
  char stamp[UTC_SIZE];
  utc_now(0, stamp);
  return xstrdup(stamp);
}

static int check_kept(enum grant_scope scope, const struct grant *grant, struct sb_error *error) {
  if (scope != SCOPE_PROJECT && scope != SCOPE_USER && scope != SCOPE_ORG)
    return sb_fail(error, SB_CODE_USAGE, 0, "an approval for %s is not kept",
                   grant_scope_name(scope));
  if (!grant->path && !grant->host)
    return sb_fail(error, SB_CODE_USAGE, 0, "an approval needs a path or a host");
  return 0;
}

int grants_add(const struct policy_context *context, enum grant_scope scope,
               const struct grant *grant, struct sb_error *error) {
  if (check_kept(scope, grant, error) < 0)
    return -1;
  _cleanup_free_ char *by = whoami(context), *when = time_now();
  struct grant whole = *grant;
  whole.by = grant->by ? grant->by : by;
  whole.when = grant->when ? grant->when : when;
  return change(context, scope, edit_add, &whole, "grant.add", grant_to_json(&whole), error) < 0
             ? -1
             : 0;
}

int grants_remove(const struct policy_context *context, enum grant_scope scope, const char *subject,
                  size_t *ret_removed, struct sb_error *error) {
  /* Nothing to take a lock or make a folder for. */
  _cleanup_grants_ struct grant_list list = {0};
  *ret_removed = 0;
  if (grants_load(context, scope, &list, error) < 0)
    return -1;
  if (edit_remove(&list, (char *)subject) == 0)
    return 0;
  json_t *fields = json_object();
  json_set_path(fields, "subject", subject);
  ssize_t removed =
      change(context, scope, edit_remove, (char *)subject, "grant.revoke", fields, error);
  if (removed < 0)
    return -1;
  *ret_removed = (size_t)removed;
  return 0;
}

/* ---- as rules ---- */

static char *host_pattern(const struct grant *grant) {
  bool literal = strchr(grant->host, ':') && grant->host[0] != '[';
  if (grant->port == 0)
    return xstrdup(grant->host);
  return xasprintf(literal ? "[%s]:%u" : "%s:%u", grant->host, grant->port);
}

static void apply_host(struct policy *policy, const struct grant *grant) {
  struct strv *list = grant->allow ? &policy->network.allow : &policy->network.deny;
  _cleanup_free_ char *pattern = host_pattern(grant);
  if (strv_contains(list, pattern))
    return;
  strv_add(list, pattern);
  if (grant->allow)
    strv_add(&policy->network.granted, pattern);
}

static char *why_granted(const struct grant *grant) {
  return xasprintf("%s%s%s%s%s%s%s", grant->allow ? "approved" : "denied", grant->by ? " by " : "",
                   grant->by ? grant->by : "", grant->when ? ", " : "",
                   grant->when ? grant->when : "", grant->why ? ": " : "",
                   grant->why ? grant->why : "");
}

/* The approved object had this very name. If the name leads elsewhere today, somebody has put a
 * link in its place, and that was not approved. */
static void ignore_link(struct policy *policy, const struct grant *grant,
                        const struct origin *origin) {
  _cleanup_free_ char *shown = escape_name(grant->path), *file = escape_string(origin->file);
  _cleanup_free_ char *word = escape_shell_word(grant->path);
  strv_addf(&policy->ignored,
            "%s:%u: %s leads elsewhere through a link since it was approved; to approve it again, "
            "run: sandbox policy revoke %s",
            file, origin->line, shown, word);
}

static int apply_path(struct policy *policy, const struct policy_context *context,
                      const struct grant *grant, const struct origin *origin,
                      struct sb_error *error) {
  _cleanup_free_ char *why = why_granted(grant), *visible = escape_string(why);
  _cleanup_free_ char *pattern = policy_escape_path(grant->path);
  struct rule rule = {.kind = grant->names      ? RULE_LIST
                              : grant->writable ? RULE_WRITE
                                                : RULE_READ,
                      .origin = *origin,
                      .granted = grant->allow,
                      .why = arena_strdup(&policy->strings, visible)};
  if (!grant->allow) { /* a denial only takes away, whatever the name leads to */
    rule.kind = grant->writable ? RULE_PROTECT : RULE_HIDE;
    return rules_add(policy, context, "/", pattern, &rule, error);
  }
  _cleanup_free_ char *resolved = rules_resolve(grant->path);
  if (strcmp(resolved, grant->path) != 0) {
    ignore_link(policy, grant, origin);
    return 0;
  }
  rule.pattern = arena_strdup(&policy->strings, grant->path);
  rule.written = arena_strdup(&policy->strings, pattern);
  rules_push(policy, &rule);
  if (grant->writable)
    rules_protect_place(policy, context, grant->path);
  return 0;
}

int grants_apply(struct policy *policy, const struct policy_context *context,
                 enum grant_scope scope, struct sb_error *error) {
  _cleanup_grants_ struct grant_list list = {0};
  _cleanup_free_ char *file = grants_file(context, scope);
  if (!file)
    return 0;
  if (read_list(context, scope, file, &list, error) < 0)
    return -1;
  struct origin origin = {.store = scopes[scope].store,
                          .file = arena_strdup(&policy->strings, file)};
  for (size_t i = 0; i < list.count; i++) {
    origin.line = list.items[i].line;
    origin.column = list.items[i].column;
    if (list.items[i].host)
      apply_host(policy, &list.items[i]);
    else if (apply_path(policy, context, &list.items[i], &origin, error) < 0)
      return -1;
  }
  return 0;
}

static bool is_in_kept_folder(const struct policy *policy, const struct rule *rule) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *other = &policy->rules[i];
    if (other->granted && other->kind == RULE_WRITE && other->length < rule->length &&
        path_is_under(rule->pattern, other->pattern))
      return true;
  }
  return false;
}

/* If an answer that was kept for a folder above it allows all the same without this one. */
static void drop_if_needless(struct policy *policy, size_t index) {
  struct rule rule = policy->rules[index];
  if (!rule.granted || !is_in_kept_folder(policy, &rule))
    return;
  size_t after = (--policy->rule_count - index) * sizeof rule;
  memmove(&policy->rules[index], &policy->rules[index + 1], after);
  struct decision decision = policy_decide(policy, rule.pattern, ACCESS_READ);
  if (decision.rule && decision.rule->granted && decision.rule->kind == RULE_WRITE)
    return;
  memmove(&policy->rules[index + 1], &policy->rules[index], after);
  policy->rules[index] = rule;
  policy->rule_count++;
}

void grants_fold(struct policy *policy) {
  for (size_t i = policy->rule_count; i-- > 0;)
    drop_if_needless(policy, i);
}

/* ---- showing ---- */

json_t *grant_to_json(const struct grant *grant) {
  json_t *object = json_object();
  json_set_string(object, "decision", grant->allow ? "allow" : "deny");
  if (grant->path) {
    json_set_path(object, "path", grant->path);
    json_set_string(object, "access", grant_access(grant));
  } else {
    json_set_string(object, "host", grant->host);
    json_object_set_new(object, "port", grant->port ? json_integer(grant->port) : json_null());
  }
  json_set_string(object, "by", grant->by);
  json_set_string(object, "when", grant->when);
  json_set_string(object, "why", grant->why);
  return object;
}

char *grant_describe(const struct grant *grant) {
  const char *decision = grant->allow ? "allow" : "deny";
  if (grant->path) {
    _cleanup_free_ char *path = escape_string(grant->path);
    return xasprintf("%s %s %s%s", decision, grant_access(grant), path,
                     grant->names ? " (its names, nothing else)" : "");
  }
  _cleanup_free_ char *pattern = host_pattern(grant), *host = escape_string(pattern);
  return xasprintf("%s connect %s", decision, host);
}
