/* Which project policies the user has read and trusts: lines "HASH PROJECT" in the state folder.
 * By content, so any change to the file asks again; by project, so a copy elsewhere does too. */
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>

#include "audit/audit.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/json.h"
#include "core/path.h"
#include "core/sha256.h"
#include "core/text.h"
#include "policy/load.h"

enum { TRUST_FILE_MAX = 1 << 20 };

/* The folder of the trust file; -1 if it does not exist. */
static int open_folder(const struct policy_context *context) {
  if (!context->state_home)
    return -1;
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", context->state_home);
  return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int make_folder(const struct policy_context *context, struct sb_error *error) {
  if (!context->state_home) {
    sb_fail(error, SB_CODE_NOT_FOUND, 0, "there is no place to record trust: no home folder");
    return sb_hint(error, "set HOME or XDG_STATE_HOME");
  }
  _cleanup_free_ char *folder = xasprintf("%s/sandbox", context->state_home);
  _cleanup_free_ char *shown = escape_string(folder);
  int result = file_make_folders(folder, 0700);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "creating %s", shown);
  int fd = open_folder(context);
  return fd >= 0 ? fd : sb_fail_errno(error, "opening %s", shown);
}

/* The lines so far; no file means none. */
static int read_entries(int folder, struct strv *ret, struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  int result = file_read_at(folder, "trust", TRUST_FILE_MAX, &data, NULL);
  if (result == -ENOENT)
    return 0;
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "reading the list of trusted policies");
  for (char *rest = data, *line; (line = strsep(&rest, "\n"));)
    if (*line)
      strv_add(ret, line);
  return 0;
}

static int write_entries(int folder, const struct strv *entries, struct sb_error *error) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (entry, entries)
    text_appendf(&text, "%s\n", *entry);
  int result = file_replace_at(folder, "trust", text_string(&text), text.length, 0600);
  return result < 0
             ? sb_fail(error, SB_CODE_SYSTEM, -result, "writing the list of trusted policies")
             : 0;
}

/* Escaped, so that a newline in a folder's name cannot forge another line. */
static char *entry_of(const struct policy_context *context, const void *data, size_t length) {
  char hash[SHA256_HEX_SIZE];
  sha256_hex(data, length, hash);
  _cleanup_free_ char *project = escape_string(context->project);
  return xasprintf("%s %s", hash, project);
}

int policy_is_trusted(const struct policy_context *context, const void *data, size_t length) {
  _cleanup_close_ int folder = open_folder(context);
  if (folder < 0)
    return 0;
  _cleanup_strv_ struct strv entries = {0};
  _cleanup_error_ struct sb_error error = {0};
  /* Unreadable means untrusted: then the store only narrows. */
  if (read_entries(folder, &entries, &error) < 0)
    return 0;
  _cleanup_free_ char *entry = entry_of(context, data, length);
  return strv_contains(&entries, entry);
}

/* Trusting what does not parse would record a promise about nothing. */
static int check_valid(const struct policy_context *context, const char *file, const char *data,
                       size_t length, struct sb_error *error) {
  _cleanup_policy_ struct policy *policy = policy_new(context);
  const struct policy_source source = {
      .file = file, .store = STORE_PROJECT, .data = data, .length = length};
  return policy_apply(policy, context, &source, error);
}

/* Trust widens what a project may do: it is in the audit log before it counts. */
static int note(const struct policy_context *context, const char *event, const char *hash,
                struct sb_error *error) {
  json_t *fields = json_object();
  json_set_path(fields, "project", context->project);
  if (hash)
    json_object_set_new(fields, "sha256", json_stringn(hash, SHA256_HEX_SIZE - 1));
  return audit_note(context->state_home, event, fields, error);
}

static int record(const struct policy_context *context, char *entry, struct sb_error *error) {
  _cleanup_free_ char *owned = entry;
  _cleanup_close_ int folder = make_folder(context, error);
  if (folder < 0)
    return -1;
  /* Two terminals may trust at the same time. */
  if (flock(folder, LOCK_EX) < 0)
    return sb_fail_errno(error, "locking the list of trusted policies");
  _cleanup_strv_ struct strv entries = {0};
  if (read_entries(folder, &entries, error) < 0)
    return -1;
  if (strv_contains(&entries, owned))
    return 0;
  if (note(context, "policy.trust", owned, error) < 0)
    return -1;
  strv_add(&entries, owned);
  return write_entries(folder, &entries, error);
}

int policy_trust(const struct policy_context *context, const char *file, struct sb_error *error) {
  _cleanup_free_ char *path =
      file ? xstrdup(file) : path_join(context->project, ".sandbox/policy.yaml");
  _cleanup_free_ char *data = NULL;
  size_t length = 0;
  int result = file_read_at(AT_FDCWD, path, POLICY_FILE_MAX, &data, &length);
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(path);
    sb_fail(error, result == -ENOENT ? SB_CODE_NOT_FOUND : SB_CODE_POLICY, -result, "reading %s",
            shown);
    return sb_hint(error, "run this in a project that has a .sandbox/policy.yaml");
  }
  if (check_valid(context, path, data, length, error) < 0)
    return -1;
  return record(context, entry_of(context, data, length), error);
}

int policy_trust_list(const struct policy_context *context, struct strv *ret_entries,
                      struct sb_error *error) {
  _cleanup_close_ int folder = open_folder(context);
  return folder < 0 ? 0 : read_entries(folder, ret_entries, error);
}

int policy_trust_revoke(const struct policy_context *context, struct sb_error *error) {
  _cleanup_close_ int folder = open_folder(context);
  if (folder < 0)
    return 0;
  if (flock(folder, LOCK_EX) < 0)
    return sb_fail_errno(error, "locking the list of trusted policies");
  _cleanup_strv_ struct strv entries = {0}, kept = {0};
  if (read_entries(folder, &entries, error) < 0)
    return -1;
  _cleanup_free_ char *project = escape_string(context->project);
  STRV_FOREACH (entry, &entries) {
    const char *space = strchr(*entry, ' ');
    if (!space || strcmp(space + 1, project) != 0)
      strv_add(&kept, *entry);
  }
  if (kept.count == entries.count)
    return 0;
  if (note(context, "policy.untrust", NULL, error) < 0)
    return -1;
  return write_entries(folder, &kept, error) < 0 ? -1 : (int)(entries.count - kept.count);
}
