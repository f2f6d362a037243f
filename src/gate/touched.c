/* The names that policy allows when something first touches them (src/policy/base.c), as the
 * objects that they lead to. A name may be a link: people keep their settings in one folder and
 * their caches on another disk. But whoever could write where such a name is, in an earlier session
 * perhaps, must not open to this one whatever a link can point at. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "gate/gate-private.h"
#include "session/ancestors.h"

enum { READABLE, WRITABLE };

static bool is_at_home(const struct policy_context *context, const char *path) {
  return (context->home && path_is_under(path, context->home)) ||
         (context->account_home && path_is_under(path, context->account_home));
}

/* ".vimrc" and "dotfiles/vimrc". */
static bool has_same_name(const char *path, const char *other) {
  const char *name = path_base(path), *other_name = path_base(other);
  return strcmp(name + (name[0] == '.'), other_name + (other_name[0] == '.')) == 0;
}

static bool is_out_of_reach(const char *name) {
  _cleanup_free_ char *folder = path_parent(name);
  return access(folder, W_OK) < 0;
}

static bool is_allowed(const struct gate *gate, const char *path) {
  return policy_decide(gate->config.policy, path, ACCESS_READ).verdict == VERDICT_ALLOW;
}

/* May a name that is, or lies behind, a link mean this object? Otherwise it is asked about. */
static bool may_be_meant(const struct gate *gate, const char *name, const char *object, int kind) {
  const struct policy_context *context = gate->config.context;
  if (ancestor_is_too_large(context, object) || path_is_under(context->project, object))
    return false;
  if (kind == WRITABLE)
    return has_same_name(name, object) && !is_at_home(context, object) &&
           !ancestor_is_guarded(context, object);
  return has_same_name(name, object) || is_out_of_reach(name) || is_allowed(gate, object);
}

void touched_resolve(struct gate *gate) {
  const struct plan *plan = gate->config.plan;
  const struct strv *names[] = {
      [READABLE] = &plan->touched_read, [WRITABLE] = &plan->touched_write};
  for (int kind = 0; !gate->touched_known && kind <= WRITABLE; kind++) {
    STRV_FOREACH (name, names[kind]) {
      _cleanup_free_ char *object = NULL;
      if (file_resolve(*name, &object) == 0 &&
          (strcmp(*name, object) == 0 || may_be_meant(gate, *name, object, kind)))
        strv_take(&gate->touched[kind], steal_pointer(object));
    }
  }
  gate->touched_known = true;
}

bool touched_has_writable_below(const struct gate *gate, const char *path) {
  const struct strv *lists[] = {&gate->config.plan->touched_write, &gate->touched[WRITABLE]};
  for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
    STRV_FOREACH (name, lists[i]) {
      if (path_is_under(*name, path) && strcmp(*name, path) != 0)
        return true;
    }
  }
  return false;
}

/* ---- what is not there yet ---- */

/* Not through a link: only what may be written is to be made. And the user has to be able to use it
 * afterwards. */
static int make_folder(const char *path, mode_t mode) {
  _cleanup_free_ char *parent = path_parent(path);
  struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, parent, &how, sizeof how);
  return fd < 0 || mkdirat(fd, path_base(path), (mode & 0777) | S_IRWXU) < 0 ? -errno : 0;
}

static bool is_missing(const char *path) {
  return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

bool touched_makes_in(const struct gate *gate, const char *folder) {
  if (ancestor_is_too_large(gate->config.context, folder) || access(folder, W_OK) < 0)
    return false;
  STRV_FOREACH (name, &gate->config.plan->touched_write) {
    const char *below = path_below(*name, folder);
    if (below && below[0] && !strchr(below, '/') && is_missing(*name))
      return true;
  }
  return false;
}

bool touched_make(struct gate *gate, const char *path, mode_t mode) {
  const struct strv *names = &gate->config.plan->touched_write;
  touched_resolve(gate);
  STRV_FOREACH (name, names) {
    if (!path_is_under(*name, path) || gate_is_hidden(gate, path))
      continue;
    if (make_folder(path, mode) < 0)
      return false;
    strv_add(strv_contains(names, path) ? &gate->touched[WRITABLE] : &gate->made, path);
    return true;
  }
  return false;
}
