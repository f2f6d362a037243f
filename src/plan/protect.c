/* Protected names inside writable places: what the host's own tools would execute later stays
 * read-only, and what does not exist yet cannot be created. A mount point cannot be renamed or
 * removed from inside, so every folder on the way becomes one: otherwise `mv .git x; mkdir .git`
 * would walk around the protection. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "plan/compile.h"
#include "session/placeholders.h"

/* The deepest writable place above a path, or NULL. */
static const char *writable_above(const struct compiler *compiler, const char *path) {
  const char *best = NULL;
  STRV_FOREACH (place, &compiler->writable) {
    if (path_is_under(path, *place) && (!best || strlen(*place) > strlen(best)))
      best = *place;
  }
  return best;
}

static bool fix(struct compiler *compiler, const char *path) {
  if (strv_contains(&compiler->fixed, path) || strv_contains(&compiler->writable, path))
    return false;
  strv_add(&compiler->fixed, path);
  return true;
}

static void add_protect(struct compiler *compiler, const char *path, unsigned flags,
                        const char *why) {
  if (!fix(compiler, path))
    return;
  plan_add(compiler->plan, OPERATION_PROTECT, path, NULL, "%s", why)->flags = flags;
  strv_add(&compiler->sealed, path);
}

void compile_fix_link(struct compiler *compiler, const char *path, const char *why) {
  add_protect(compiler, path, OPERATION_NOFOLLOW, why);
}

static void add_pin(struct compiler *compiler, const char *path) {
  if (fix(compiler, path))
    plan_add(compiler->plan, OPERATION_PIN, path, NULL, "keeps what is protected below in place");
}

void compile_pin(struct compiler *compiler, const char *folder) {
  const char *place = writable_above(compiler, folder);
  if (!place || strcmp(place, folder) == 0 || compile_covered(&compiler->sealed, folder))
    return;
  for (const char *end = path_below(folder, place); *end;) {
    end = strchrnul(end + (*end == '/'), '/');
    _cleanup_free_ char *above = xstrndup(folder, (size_t)(end - folder));
    add_pin(compiler, above);
  }
}

static void reserve(struct compiler *compiler, const char *path, const char *content,
                    const char *why) {
  if (strv_contains(&compiler->fixed, path))
    return;
  plan_add(compiler->plan, content ? OPERATION_PLACEHOLDER_FILE : OPERATION_PLACEHOLDER_FOLDER,
           path, content, "%s", why);
  add_protect(compiler, path, 0, why);
}

/* Where a link says that it leads, in one step: a link in the project on that way can be replaced,
 * too. NULL if it is none. */
static char *link_step(const char *path) {
  char text[PATH_MAX];
  ssize_t length = readlink(path, text, sizeof text - 1);
  if (length <= 0)
    return NULL;
  text[length] = '\0';
  _cleanup_free_ char *parent = path_parent(path);
  _cleanup_free_ char *folder = compile_resolve(parent);
  return path_join(folder ? folder : parent, text);
}

/* Where a link leads, also if nothing is there yet: what is missing can be created. */
static char *link_target(const char *path, bool *ret_missing) {
  char *target = compile_resolve(path);
  *ret_missing = !target;
  return target ? target : link_step(path);
}

int compile_protect_target(struct compiler *compiler, const char *link, const char *why,
                           struct sb_error *error) {
  bool missing;
  _cleanup_free_ char *target = link_target(link, &missing);
  return target ? compile_protect(compiler, target, missing, NULL, why, error) : 0;
}

/* A link is fixed as a link, and its target, if it is writable too, is protected like the name. */
static int protect_link(struct compiler *compiler, const char *path, const char *why,
                        struct sb_error *error) {
  add_protect(compiler, path, OPERATION_NOFOLLOW, why);
  return compile_protect_target(compiler, path, why, error);
}

/* Who cannot create a name in a folder needs no placeholder there. */
static bool creatable(const char *path) {
  _cleanup_free_ char *parent = path_parent(path);
  return faccessat(AT_FDCWD, parent, W_OK, AT_EACCESS) == 0;
}

/* A folder whose mode forbids writing, but which is the caller's: one chmod inside would open it,
 * and nothing could be reserved in it before. It stays read-only as a whole. */
static void seal_if_own(struct compiler *compiler, const char *path) {
  _cleanup_free_ char *parent = path_parent(path);
  struct stat status;
  if (compile_covered(&compiler->sealed, parent) || stat(parent, &status) < 0 ||
      status.st_uid != compiler->host->user)
    return;
  plan_add(compiler->plan, OPERATION_SEAL, parent, NULL, "its mode forbids writing");
  strv_add(&compiler->sealed, parent);
}

static void reserve_missing_name(struct compiler *compiler, const char *path, const char *content,
                                 const char *why) {
  if (creatable(path))
    reserve(compiler, path, content, why);
  else
    seal_if_own(compiler, path);
}

/* One of another session, of a crash, or one that went away since we saw it: another session in the
 * same project has just ended. */
static bool is_placeholder(const char *path, const char *content) {
  return placeholder_matches(path, content) ||
         (faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT);
}

/* Walks from the place down to the name; returns 1 when a missing or linked part settled it. */
static int fix_folders(struct compiler *compiler, const char *place, const char *path,
                       bool reserve_missing, const char *why, struct sb_error *error) {
  const char *below = path_below(path, place);
  for (const char *slash = strchr(below, '/'); slash; slash = strchr(slash + 1, '/')) {
    _cleanup_free_ char *folder = xstrndup(path, (size_t)(slash - path));
    struct stat status;
    if (lstat(folder, &status) < 0) {
      if (errno == ENOENT && reserve_missing)
        reserve_missing_name(compiler, folder, NULL, why);
      return 1;
    }
    if (S_ISLNK(status.st_mode)) {
      add_protect(compiler, folder, OPERATION_NOFOLLOW, why);
      bool missing;
      _cleanup_free_ char *target = link_target(folder, &missing);
      _cleanup_free_ char *moved = target ? path_join(target, slash + 1) : NULL;
      if (moved &&
          compile_protect(compiler, moved, reserve_missing || missing, NULL, why, error) < 0)
        return -1;
      return 1;
    }
    if (!S_ISDIR(status.st_mode))
      return 1; /* a file where a folder would be needed: nothing can be created below it */
    if (is_placeholder(folder, NULL)) {
      reserve(compiler, folder, NULL, why);
      return 1;
    }
    add_pin(compiler, folder);
  }
  return 0;
}

static int refuse_closed(const struct closed_folder *closed, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(closed->path);
  sb_fail(error, SB_CODE_SYSTEM, closed->errnum, "looking into '%s'", shown);
  if (closed->errnum == EMFILE || closed->errnum == ENFILE)
    return sb_hint(error, "allow more open files: ulimit -n 256");
  if (closed->errnum != EACCES && closed->errnum != EPERM)
    return sb_hint(error, "if it was changed just now, run the command again; or remove it");
  return sb_hint(error,
                 "the command could open it again, and what should be hidden or protected in "
                 "it would not be: chmod u+rwx it, or remove it");
}

static bool is_writable_by_policy(const struct compiler *compiler, const char *path) {
  return policy_decide(compiler->policy, path, ACCESS_WRITE).verdict == VERDICT_ALLOW;
}

int compile_check_closed(const struct compiler *compiler, const struct walk_closed *closed,
                         struct sb_error *error) {
  for (size_t i = 0; i < closed->count; i++) {
    if (is_writable_by_policy(compiler, closed->items[i].path))
      return refuse_closed(&closed->items[i], error);
  }
  return 0;
}

/* The folder above it that we cannot enter, if it is ours; else NULL. */
static char *closed_above(const char *path) {
  struct stat status;
  char *folder = path_parent(path);
  while (lstat(folder, &status) < 0 && strcmp(folder, "/") != 0) {
    char *parent = path_parent(folder);
    free(folder);
    folder = parent;
  }
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid())
    return folder;
  free(folder);
  return NULL;
}

static int check_above(const struct compiler *compiler, const char *path, struct sb_error *error) {
  _cleanup_free_ char *folder = closed_above(path);
  const struct closed_folder closed = {.path = folder, .errnum = EACCES};
  return folder && is_writable_by_policy(compiler, folder) ? refuse_closed(&closed, error) : 0;
}

int compile_protect(struct compiler *compiler, const char *path, bool reserve_missing,
                    const char *content, const char *why, struct sb_error *error) {
  const char *place = writable_above(compiler, path);
  if (!place || strcmp(place, path) == 0 || compile_covered(&compiler->sealed, path))
    return 0; /* not writable anyway, or made writable by name */
  struct stat status;
  int missing = lstat(path, &status) < 0 ? errno : 0;
  if (missing == EACCES && check_above(compiler, path, error) < 0)
    return -1;
  int settled = fix_folders(compiler, place, path, reserve_missing, why, error);
  if (settled != 0)
    return settled < 0 ? -1 : 0;
  if (missing == ENOENT && reserve_missing)
    reserve_missing_name(compiler, path, content, why);
  if (missing)
    return 0;
  if (S_ISLNK(status.st_mode))
    return protect_link(compiler, path, why, error);
  if (is_placeholder(path, content))
    reserve(compiler, path, content, why);
  else
    add_protect(compiler, path, 0, why);
  return 0;
}

/* ---- what the home folder has links to ---- */

/* Such a step of a name, or of one behind a link: "~/.config/fish", where "~/.config" is one. */
static char *step_elsewhere(const char *home, const char *path) {
  for (const char *end = path + strlen(home); *end;) {
    end = strchrnul(end + 1, '/');
    _cleanup_free_ char *above = xstrndup(path, (size_t)(end - path));
    _cleanup_free_ char *target = link_step(above);
    if (target)
      return *end ? path_join(target, end + 1) : steal_pointer(target);
  }
  return NULL;
}

static int protect_elsewhere(struct compiler *compiler, const char *path, bool reserve_missing,
                             const char *why, struct sb_error *error) {
  return !path || compile_unprotected(compiler, path)
             ? 0
             : compile_protect(compiler, path, reserve_missing, NULL, why, error);
}

/* People keep their settings in a project, under any name ("dotfiles/bashrc"), and link to them:
 * what the home folder's names lead to runs as they would. */
static int protect_linked_from_home(struct compiler *compiler, struct sb_error *error) {
  const char *home = compiler->host->home;
  for (const struct protected_name *name = protected_table; home && name->name; name++) {
    _cleanup_free_ char *path = path_join(home, name->name);
    if (!listings_may_exist(&compiler->names, path))
      continue;
    _cleanup_free_ char *step = step_elsewhere(home, path);
    _cleanup_free_ char *target = step ? compile_resolve(path) : NULL;
    bool reserve_missing = name->at_home || !name->if_present_only;
    if (protect_elsewhere(compiler, step, reserve_missing, name->why, error) < 0 ||
        protect_elsewhere(compiler, target, false, name->why, error) < 0)
      return -1;
  }
  return 0;
}

int compile_protections(struct compiler *compiler, struct sb_error *error) {
  for (size_t i = 0; i < compiler->policy->rule_count; i++) {
    const struct rule *rule = &compiler->policy->rules[i];
    if (rule->kind != RULE_PROTECT || rule->is_glob || compile_unprotected(compiler, rule->pattern))
      continue;
    _cleanup_free_ char *why = compile_reason(rule);
    if (compile_protect(compiler, rule->pattern, !rule->if_present_only, NULL, why, error) < 0)
      return -1;
  }
  for (size_t i = 0; i < compiler->globbed.count; i++) {
    const struct found *found = &compiler->globbed.items[i];
    _cleanup_free_ char *why = compile_reason(found->rule);
    if (found->rule->kind == RULE_PROTECT &&
        compile_protect(compiler, found->path, false, NULL, why, error) < 0)
      return -1;
  }
  return protect_linked_from_home(compiler, error);
}
