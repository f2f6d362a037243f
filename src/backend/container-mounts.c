/* Which host objects appear in a container, and what lies over them. The plan was made for a view
 * of the whole host; a container shows its image instead, so only places that were asked for are
 * mounted, and masks and protections only where they cover such a place. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/container.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

struct collector {
  const struct container_setup *setup;
  const struct backend_request *request;
  struct container_mounts *mounts;
};

static void mount_clear(struct container_mount *mount) {
  free(mount->path);
  free(mount->source);
  free(mount->upper);
}

void container_mounts_clear(struct container_mounts *mounts) {
  for (size_t i = 0; i < mounts->count; i++)
    mount_clear(&mounts->items[i]);
  free(mounts->items);
  *mounts = (struct container_mounts){0};
}

static bool is_folder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

/* The mount that shows a path: the deepest one that is the path or above it. */
static struct container_mount *covering(struct container_mounts *mounts, const char *path) {
  struct container_mount *best = NULL;
  for (size_t i = 0; i < mounts->count; i++) {
    struct container_mount *mount = &mounts->items[i];
    if (path_is_under(path, mount->path) &&
        (!best || path_depth(mount->path) > path_depth(best->path)))
      best = mount;
  }
  return best;
}

/* Takes what is already at the path out: the tools want one mount for each. */
static struct container_mount *put(struct container_mounts *mounts, enum container_mount_kind kind,
                                   const char *path, const char *source) {
  struct container_mount *mount = covering(mounts, path);
  if (mount && strcmp(mount->path, path) == 0) {
    mount_clear(mount);
  } else {
    ARRAY_GROW(mounts->items, mounts->count);
    mount = &mounts->items[mounts->count++];
  }
  *mount = (struct container_mount){.kind = kind, .path = xstrdup(path)};
  mount->source = source ? xstrdup(source) : NULL;
  mount->folder = is_folder(source ? source : path);
  return mount;
}

static void drop_below(struct container_mounts *mounts, const char *path) {
  size_t kept = 0;
  for (size_t i = 0; i < mounts->count; i++) {
    const char *below = path_below(mounts->items[i].path, path);
    if (below && below[0])
      mount_clear(&mounts->items[i]);
    else
      mounts->items[kept++] = mounts->items[i];
  }
  mounts->count = kept;
}

/* ---- control sockets ---- */

static int refuse_control_socket(const struct collector *collector, const char *path,
                                 struct sb_error *error) {
  if (!container_is_control_socket(path) &&
      !(collector->setup->control_sockets &&
        strv_contains(collector->setup->control_sockets, path)))
    return 0;
  _cleanup_free_ char *shown = escape_string(path);
  sb_fail(error, SB_CODE_DENIED, 0,
          "'%s' commands a container engine: who reaches it is not in a sandbox", shown);
  return sb_hint(error, "take it out of the policy and the options");
}

static void mask_control_sockets(struct collector *collector) {
  if (!collector->setup->control_sockets)
    return;
  STRV_FOREACH (path, collector->setup->control_sockets) {
    struct container_mount *mount = covering(collector->mounts, *path);
    if (mount && mount->kind != CONTAINER_MASK)
      put(collector->mounts, CONTAINER_MASK, *path, NULL);
  }
}

/* ---- the plan's operations ---- */

/* The plan shows a home that lies in a private place; here it is an empty one unless asked for. */
static bool is_shown_home(const struct collector *collector, const struct operation *operation) {
  const struct backend_request *request = collector->request;
  if (!request->host->home || strcmp(operation->path, request->host->home) != 0)
    return false;
  for (size_t i = 0; i < request->policy->rule_count; i++) {
    const struct rule *rule = &request->policy->rules[i];
    if (rule->kind == RULE_READ && strcmp(rule->pattern, operation->path) == 0)
      return false;
  }
  return true;
}

static int add_place(struct collector *collector, const struct operation *operation,
                     struct sb_error *error) {
  if (refuse_control_socket(collector, operation->path, error) < 0)
    return -1;
  static const enum container_mount_kind kinds[OPERATION_COUNT] = {
      [OPERATION_WRITABLE] = CONTAINER_BIND,
      [OPERATION_READONLY] = CONTAINER_BIND_READONLY,
      [OPERATION_OVERLAY] = CONTAINER_OVERLAY,
  };
  if (operation->kind == OPERATION_READONLY && is_shown_home(collector, operation))
    return 0;
  struct container_mount *mount =
      put(collector->mounts, kinds[operation->kind], operation->path, operation->source);
  if (operation->upper)
    mount->upper = xstrdup(operation->upper);
  return 0;
}

/* As a mount point it can be neither renamed nor removed. Not in an overlay: the host's folder
 * would come through, writable, and there only the copy can be moved anyway. */
static int add_pin(struct collector *collector, const struct operation *operation,
                   struct sb_error *error) {
  (void)error;
  struct container_mount *above = covering(collector->mounts, operation->path);
  if (above && above->kind == CONTAINER_BIND && strcmp(above->path, operation->path) != 0)
    put(collector->mounts, CONTAINER_BIND, operation->path, NULL);
  return 0;
}

static int add_protection(struct collector *collector, const struct operation *operation,
                          struct sb_error *error) {
  struct container_mounts *mounts = collector->mounts;
  struct container_mount *above = covering(mounts, operation->path);
  if (!above || above->kind == CONTAINER_BIND_READONLY || above->kind == CONTAINER_MASK)
    return 0;
  if (operation->flags & OPERATION_NOFOLLOW) {
    if (collector->request->weaken)
      return 0;
    _cleanup_free_ char *shown = escape_string(operation->path);
    sb_fail(error, SB_CODE_UNSUPPORTED, 0,
            "%s cannot keep the symbolic link '%s' in its place, and what it leads to is run by "
            "tools outside",
            collector->setup->program, shown);
    return sb_hint(error, "use --backend native, or allow changes with --unprotect");
  }
  for (size_t i = 0; i < mounts->count; i++) {
    if (mounts->items[i].kind == CONTAINER_BIND &&
        path_is_under(mounts->items[i].path, operation->path))
      mounts->items[i].kind = CONTAINER_BIND_READONLY;
  }
  put(mounts, CONTAINER_BIND_READONLY, operation->path, NULL);
  return 0;
}

static int add_mask(struct collector *collector, const struct operation *operation,
                    struct sb_error *error) {
  (void)error;
  if (!covering(collector->mounts, operation->path))
    return 0;
  bool holes = operation->flags & OPERATION_HOLES;
  if (!holes)
    drop_below(collector->mounts, operation->path);
  put(collector->mounts, CONTAINER_MASK, operation->path, NULL);
  return 0;
}

static int (*const adders[OPERATION_COUNT])(struct collector *, const struct operation *,
                                            struct sb_error *) = {
    [OPERATION_WRITABLE] = add_place,     [OPERATION_READONLY] = add_place,
    [OPERATION_OVERLAY] = add_place,      [OPERATION_PIN] = add_pin,
    [OPERATION_PROTECT] = add_protection, [OPERATION_MASK] = add_mask,
};

/* ---- what the policy adds ---- */

static int refuse_pattern(const struct collector *collector, const struct rule *rule,
                          struct sb_error *error) {
  _cleanup_free_ char *written = escape_string(rule->written ? rule->written : rule->pattern);
  _cleanup_free_ char *origin = origin_describe(&rule->origin);
  sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s: %s mounts paths, not patterns: read '%s'", origin,
          collector->setup->program, written);
  return sb_hint(error, "name the folders, or use --backend native");
}

/* In the host's own tree everything is readable, so the plan has no operation for these. */
static int add_readable(struct collector *collector, struct sb_error *error) {
  const struct policy *policy = collector->request->policy;
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->kind != RULE_READ || rule->origin.store == STORE_BUILTIN)
      continue;
    if (rule->is_glob)
      return refuse_pattern(collector, rule, error);
    _cleanup_free_ char *path = NULL;
    if (file_resolve(rule->pattern, &path) < 0 || covering(collector->mounts, path) ||
        policy_decide(policy, path, ACCESS_READ).verdict != VERDICT_ALLOW)
      continue;
    if (refuse_control_socket(collector, path, error) < 0)
      return -1;
    put(collector->mounts, CONTAINER_BIND_READONLY, path, NULL);
  }
  return 0;
}

static int add_sockets(struct collector *collector, struct sb_error *error) {
  STRV_FOREACH (path, &collector->request->policy->network.unix_sockets) {
    if (refuse_control_socket(collector, *path, error) < 0)
      return -1;
    put(collector->mounts, CONTAINER_BIND, *path, NULL);
  }
  return 0;
}

/* Tools want a home that they can write to; its contents are gone with the container. */
static void add_home(struct collector *collector) {
  const char *home = collector->request->host->home;
  if (home && home[1] && !strpbrk(home, ":,") && !covering(collector->mounts, home))
    put(collector->mounts, CONTAINER_HOME, home, NULL);
}

/* ---- order ---- */

static int by_depth(const void *left, const void *right) {
  const struct container_mount *a = left, *b = right;
  size_t first = path_depth(a->path), second = path_depth(b->path);
  return first != second ? (first < second ? -1 : 1) : strcmp(a->path, b->path);
}

static int collect(struct collector *collector, struct sb_error *error) {
  const struct plan *plan = collector->request->plan;
  if (add_readable(collector, error) < 0)
    return -1;
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *operation = &plan->operations[i];
    if (adders[operation->kind] && adders[operation->kind](collector, operation, error) < 0)
      return -1;
  }
  if (add_sockets(collector, error) < 0)
    return -1;
  mask_control_sockets(collector);
  add_home(collector);
  return 0;
}

int container_mounts_collect(const struct container_setup *setup,
                             const struct backend_request *request,
                             struct container_mounts *ret_mounts, struct sb_error *error) {
  struct container_mounts mounts = {0};
  struct collector collector = {setup, request, &mounts};
  if (collect(&collector, error) < 0) {
    container_mounts_clear(&mounts);
    return -1;
  }
  if (mounts.count > 0)
    qsort(mounts.items, mounts.count, sizeof *mounts.items, by_depth);
  *ret_mounts = mounts;
  return 0;
}
