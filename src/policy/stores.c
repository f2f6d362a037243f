/* Which files make a policy, in which order, and reading them. A store that cannot be read is an
 * error: skipping it would silently drop what it protects. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"
#include "policy/grants.h"
#include "policy/load.h"

static const char *file_type_name(mode_t mode) {
  switch (mode & S_IFMT) {
  case S_IFREG:
    return "a file";
  case S_IFDIR:
    return "a folder";
  case S_IFLNK:
    return "a symbolic link";
  case S_IFIFO:
    return "a FIFO";
  case S_IFSOCK:
    return "a socket";
  default:
    return "a device";
  }
}

static int fail_type(const char *file, mode_t mode, const char *wanted, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file);
  sb_fail(error, SB_CODE_POLICY, 0, "%s: this is %s, not %s", shown, file_type_name(mode), wanted);
  return sb_hint(error, "replace it by %s, or remove it", wanted);
}

static int fail_read(const char *file, int errnum, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(file);
  if (errnum == EFBIG) {
    sb_fail(error, SB_CODE_POLICY, 0, "%s: larger than 1 MiB", shown);
    return sb_hint(error, "a policy is a page of text; use globs instead of long lists");
  }
  sb_fail(error, errnum == ENOENT ? SB_CODE_NOT_FOUND : SB_CODE_POLICY, errnum, "reading policy %s",
          shown);
  return sb_hint(error,
                 errnum == ENOENT ? "check the file's name" : "make it readable, or remove it");
}

static int fail_link(const char *file, int errnum, struct sb_error *error) {
  if (errnum != ENOENT && errnum != ENOTDIR)
    return fail_read(file, errnum, error);
  _cleanup_free_ char *shown = escape_string(file);
  sb_fail(error, SB_CODE_POLICY, 0, "%s: this is a symbolic link that leads nowhere", shown);
  return sb_hint(error, "make what it leads to, or remove it");
}

/* 0 if the deepest of the folders above that has a name is one; -1 with an error else. A link that
 * leads nowhere is no absent folder: somebody has put his rules behind it. */
static int check_above(const char *file, struct sb_error *error) {
  struct stat status;
  _cleanup_free_ char *folder = path_parent(file);
  if (lstat(folder, &status) < 0)
    return errno == ENOENT || errno == ENOTDIR ? check_above(folder, error)
                                               : fail_read(folder, errno, error);
  if (stat(folder, &status) < 0)
    return fail_link(folder, errno, error);
  /* XDG_CONFIG_HOME=/dev/null is how people say that there is nothing. */
  if (S_ISDIR(status.st_mode) || S_ISCHR(status.st_mode))
    return 0;
  return fail_type(folder, status.st_mode, "a folder", error);
}

static int probe(const char *file, mode_t type, int flags, struct sb_error *error) {
  struct stat status;
  if (fstatat(AT_FDCWD, file, &status, AT_SYMLINK_NOFOLLOW) < 0)
    return errno == ENOENT || errno == ENOTDIR ? check_above(file, error)
                                               : fail_read(file, errno, error);
  if (S_ISLNK(status.st_mode) && !(flags & AT_SYMLINK_NOFOLLOW) &&
      fstatat(AT_FDCWD, file, &status, 0) < 0)
    return fail_link(file, errno, error);
  if ((status.st_mode & S_IFMT) == type)
    return 1;
  return fail_type(file, status.st_mode, type == S_IFDIR ? "a folder" : "a regular file", error);
}

int policy_probe(const char *file, struct sb_error *error) {
  return probe(file, S_IFREG, 0, error);
}

static int apply_file(struct policy *policy, const struct policy_context *context, const char *file,
                      enum policy_store store, struct sb_error *error) {
  _cleanup_free_ char *data = NULL;
  struct policy_source source = {.file = file, .store = store};
  int result = file_read_at(AT_FDCWD, file, POLICY_FILE_MAX, &data, &source.length);
  if (result < 0)
    return fail_read(file, -result, error);
  source.data = data;
  source.untrusted = store == STORE_PROJECT && !policy_is_trusted(context, data, source.length);
  return policy_apply(policy, context, &source, error);
}

int policy_load_file(const struct policy_context *context, const char *file,
                     enum policy_store store, struct policy *policy, struct sb_error *error) {
  int found = policy_probe(file, error);
  if (found < 0)
    return -1;
  return found ? apply_file(policy, context, file, store, error) : fail_read(file, ENOENT, error);
}

static int load_if_present(struct policy *policy, const struct policy_context *context,
                           enum policy_store store, const char *folder, const char *name,
                           struct sb_error *error) {
  if (!folder)
    return 0;
  _cleanup_free_ char *file = xasprintf("%s/%s", folder, name);
  int found = policy_probe(file, error);
  return found <= 0 ? found : apply_file(policy, context, file, store, error);
}

/* A repository chose this file: neither the folder nor the file may lead elsewhere. */
static int load_project(struct policy *policy, const struct policy_context *context,
                        struct sb_error *error) {
  _cleanup_free_ char *folder = path_join(context->project, ".sandbox");
  _cleanup_free_ char *file = path_join(folder, "policy.yaml");
  int found = probe(folder, S_IFDIR, AT_SYMLINK_NOFOLLOW, error);
  if (found > 0)
    found = probe(file, S_IFREG, AT_SYMLINK_NOFOLLOW, error);
  return found <= 0 ? found : apply_file(policy, context, file, STORE_PROJECT, error);
}

static int load_stores(struct policy *policy, const struct policy_context *context,
                       struct sb_error *error) {
  const char *org = context->org_folder, *user = context->config_home;
  if (load_if_present(policy, context, STORE_ORG, org, "policy.yaml", error) < 0 ||
      grants_apply(policy, context, SCOPE_ORG, error) < 0 ||
      load_project(policy, context, error) < 0 ||
      grants_apply(policy, context, SCOPE_PROJECT, error) < 0 ||
      load_if_present(policy, context, STORE_USER, user, "sandbox/policy.yaml", error) < 0 ||
      grants_apply(policy, context, SCOPE_USER, error) < 0)
    return -1;
  grants_fold(policy);
  return 0;
}

int policy_load(const struct policy_context *context, struct policy **ret_policy,
                struct sb_error *error) {
  _cleanup_policy_ struct policy *policy = policy_new(context);
  if (load_stores(policy, context, error) < 0)
    return -1;
  *ret_policy = steal_pointer(policy);
  return 0;
}
