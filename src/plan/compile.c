/* Policy, flags and the machine become a plan. Looks, decides, and changes nothing. */
#include "plan/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

void found_add(struct found_list *list, char *path, const struct rule *rule, const char *why) {
  ARRAY_GROW(list->items, list->count);
  list->items[list->count++] = (struct found){path, rule, why};
}

static void found_clear(struct found_list *list) {
  for (size_t i = 0; i < list->count; i++)
    free(list->items[i].path);
  free(list->items);
}

char *compile_resolve(const char *path) {
  char *resolved = NULL;
  int result = file_resolve(path, &resolved);
  if (result < 0)
    errno = -result;
  return resolved;
}

char *compile_reason(const struct rule *rule) {
  _cleanup_free_ char *written = escape_string(rule->written ? rule->written : rule->pattern);
  if (rule->why)
    return xasprintf("%s: %s", written, rule->why);
  _cleanup_free_ char *origin = origin_describe(&rule->origin);
  return xasprintf("%s %s (%s)", rule_kind_name(rule->kind), written, origin);
}

bool compile_unprotected(const struct compiler *compiler, const char *path) {
  return compiler->unprotects && policy_is_unprotected(compiler->policy, path);
}

static bool has_unprotect(const struct policy *policy) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    if (policy->rules[i].kind == RULE_UNPROTECT)
      return true;
  }
  return false;
}

bool compile_covered(const struct strv *list, const char *path) {
  STRV_FOREACH (item, list) {
    if (path_is_under(path, *item))
      return true;
  }
  return false;
}

/* The order in which the engine must work; within a phase the order of compilation stays. */
static const unsigned char phases[OPERATION_COUNT] = {
    [OPERATION_PLACEHOLDER_FOLDER] = 0,
    [OPERATION_PLACEHOLDER_FILE] = 0,
    [OPERATION_PRIVATE_FOLDER] = 1,
    [OPERATION_PRIVATE_FILE] = 1,
    [OPERATION_PRIVATE_LINK] = 1,
    [OPERATION_ROOT] = 2,
    [OPERATION_GATE] = 2,
    [OPERATION_LINK] = 3,
    [OPERATION_PRIVATE] = 3,
    [OPERATION_DEVICE] = 3,
    [OPERATION_DEVPTS] = 3,
    [OPERATION_PROC] = 3,
    [OPERATION_SYSFS] = 3,
    [OPERATION_PRIVATE_SEALED] = 4, /* resolv.conf lies in /etc, which is a place */
    [OPERATION_WRITABLE] = 4,
    [OPERATION_READONLY] = 4,
    [OPERATION_OVERLAY] = 4,
    [OPERATION_PIN] = 5,
    [OPERATION_PROTECT] = 6,
    [OPERATION_SEAL] = 7,
    [OPERATION_MASK] = 8,
};
#define PHASE_PLACES 4
#define PHASE_LAST   8

/* What lies in a hole of a mask is protected and masked like everything else, so the mask itself
 * comes before. */
static unsigned phase_of(const struct operation *operation) {
  return operation->flags & OPERATION_HOLES ? PHASE_PLACES : phases[operation->kind];
}

/* Parents first, masks with holes among them; else in the order of compilation, which is nearly
 * sorted. */
static void order_places(struct operation *places, size_t count) {
  for (size_t i = 1; i < count; i++) {
    struct operation moved = places[i];
    size_t depth = path_depth(moved.path), at = i;
    for (; at > 0 && path_depth(places[at - 1].path) > depth; at--)
      places[at] = places[at - 1];
    places[at] = moved;
  }
}

/* The base is in order, and perhaps applied already. */
static void order_operations(struct plan *plan) {
  if (plan->operation_count == plan->base_count)
    return;
  struct operation *ordered = xcalloc(plan->operation_count, sizeof *ordered);
  size_t count = plan->base_count;
  memcpy(ordered, plan->operations, count * sizeof *ordered);
  for (unsigned phase = 0; phase <= PHASE_LAST; phase++) {
    size_t first = count;
    for (size_t i = plan->base_count; i < plan->operation_count; i++) {
      if (phase_of(&plan->operations[i]) == phase)
        ordered[count++] = plan->operations[i];
    }
    if (phase == PHASE_PLACES)
      order_places(ordered + first, count - first);
  }
  free(plan->operations);
  plan->operations = ordered;
}

/* What this version cannot enforce is an error, never left out in silence. */
static int refuse_unsupported(const struct policy *policy, struct sb_error *error) {
  const struct {
    bool asked;
    const char *feature, *fix;
  } features[] = {
      {policy->containers, "containers inside the sandbox", "remove containers: true"},
      {policy->vm.enabled || policy->vm.kvm, "virtual machines inside the sandbox",
       "remove vm.enabled and vm.kvm; to run the command itself in one: backend: vm"},
  };
  for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
    if (!features[i].asked)
      continue;
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "%s: not available in this version",
            features[i].feature);
    return sb_hint(error, "%s", features[i].fix);
  }
  return 0;
}

static void plan_landlock(struct compiler *compiler) {
  struct landlock_plan *landlock = &compiler->plan->landlock;
  static const char *const always[] = {"/tmp", "/var/tmp", "/run", "/dev/shm", "/proc"};
  for (size_t i = 0; i < ARRAY_SIZE(always); i++)
    landlock_allow(landlock, always[i], LANDLOCK_USE_WRITE);
  landlock_allow(landlock, "/dev", LANDLOCK_USE_DEVICE);
  for (size_t i = 0; i < compiler->plan->operation_count; i++) {
    const struct operation *operation = &compiler->plan->operations[i];
    if (operation->kind == OPERATION_WRITABLE || operation->kind == OPERATION_OVERLAY)
      landlock_allow(landlock, operation->path, LANDLOCK_USE_WRITE);
  }
  if (compiler->dynamic)
    landlock_allow(landlock, "/", LANDLOCK_USE_WRITE);
  if (!landlock_has_domain(landlock))
    strv_add(&compiler->plan->warnings,
             "this kernel has no usable Landlock: the second wall behind the mounts is missing; a "
             "redirected file can be reopened for writing");
}

/* See confine_forbid_core_files: a hard limit of 0 cannot be raised to what the kernel takes as
 * "never". */
static void warn_about_cores(struct compiler *compiler) {
  struct rlimit limit;
  _cleanup_free_ char *pattern = NULL;
  if (getrlimit(RLIMIT_CORE, &limit) < 0 || limit.rlim_max > 0 ||
      file_read_at(AT_FDCWD, "/proc/sys/kernel/core_pattern", 4096, &pattern, NULL) < 0 ||
      pattern[0] != '|')
    return;
  strv_add(&compiler->plan->warnings,
           "the hard limit of core files is 0: a program that crashes inside starts the handler of "
           "/proc/sys/kernel/core_pattern outside; a hard limit of 1 or more keeps it from that");
}

static void plan_settings(struct compiler *compiler) {
  struct plan *plan = compiler->plan;
  const struct plan_request *request = compiler->request;
  plan->hostname = xasprintf("sandbox-%s", request->session_id);
  plan->working_folder = xstrdup(compiler->host->cwd);
  plan->time_offset_seconds = request->time_offset_seconds;
  plan->has_time_offset = request->has_time_offset;
  plan->terminal = request->terminal;
  plan->weaker_nested = compiler->policy->weaker_nested;
  plan->seccomp.debug = compiler->policy->debug;
  plan->no_listening = !compiler->policy->network.allow_local_binding;
  /* The gate is asked about those that name their receiver in memory. */
  plan->unix_datagrams = compiler->dynamic || compiler->policy->network.unix_datagrams;
  plan->network.mode = compiler->policy->network.mode;
  plan->network.driver = net_driver_find(compiler->policy->network.driver);
  STRV_FOREACH (port, &compiler->policy->network.publish)
    strv_add(&plan->publish, *port);
  plan->ask_writes = compiler->policy->ask_writes;
  plan->gate = compiler->dynamic ? compiler->request->gate : GATE_NONE;
  plan->seccomp.waits = plan->gate == GATE_NOTIFY ? WAIT_PATHS : WAIT_NOTHING;
  plan->guards_sockets = !request->for_backend;
  plan->landlock = landlock_plan_new(landlock_abi());
  /* The gate refuses writes itself, and says so; and Landlock cannot be widened later. It still
   * holds what was opened outside, which is not below the session's root. */
  if (compiler->dynamic && !request->outside_files)
    landlock_skip_files(&plan->landlock);
  else if (!request->outside_files)
    landlock_skip_truncation(&plan->landlock);
  /* What lies in the private tmpfs is memory as well as disk: the smaller limit holds. */
  const struct limits *limits = &compiler->policy->limits;
  unsigned long long megabytes = limits->disk_mb;
  if (limits->memory_mb && (!megabytes || limits->memory_mb < megabytes))
    megabytes = limits->memory_mb;
  plan->private_size_bytes = megabytes << 20;
  plan->private_inodes = limits->inodes;
}

static int compile_parts(struct compiler *compiler, struct sb_error *error) {
  compile_kernel_files(compiler);
  if (compile_hidden(compiler, error) < 0 || compile_globs(compiler, error) < 0 ||
      compile_places(compiler, error) < 0 || compile_git(compiler, error) < 0 ||
      compile_protections(compiler, error) < 0 || compile_network(compiler, error) < 0 ||
      compile_command(compiler, error) < 0)
    return -1;
  compile_sockets(compiler);
  compile_masks(compiler);
  order_operations(compiler->plan);
  plan_landlock(compiler);
  warn_about_cores(compiler);
  return 0;
}

static void compiler_clear(struct compiler *compiler) {
  found_clear(&compiler->hidden);
  found_clear(&compiler->globbed);
  found_clear(&compiler->sockets);
  mount_table_clear(&compiler->mounts);
  strv_clear(&compiler->writable);
  strv_clear(&compiler->caches);
  strv_clear(&compiler->overlaid);
  strv_clear(&compiler->shown);
  strv_clear(&compiler->repositories);
  strv_clear(&compiler->sealed);
  strv_clear(&compiler->masked);
  strv_clear(&compiler->holes);
  strv_clear(&compiler->fixed);
  listings_clear(&compiler->names);
  free(compiler->last_point);
}

static struct compiler compiler_new(const struct plan_request *request, struct plan *plan) {
  return (struct compiler){
      .request = request,
      .policy = request->policy,
      .host = request->host,
      .plan = plan,
      .dynamic = request->policy->mode == MODE_DYNAMIC,
      .unprotects = has_unprotect(request->policy),
  };
}

int plan_begin(const struct plan_request *request, struct plan *ret_plan, struct sb_error *error) {
  if (!request->for_backend && refuse_unsupported(request->policy, error) < 0)
    return -1;
  *ret_plan = (struct plan){0};
  struct compiler compiler = compiler_new(request, ret_plan);
  plan_settings(&compiler);
  compile_base(&compiler);
  return 0;
}

int plan_compile(const struct plan_request *request, struct plan *plan, struct sb_error *error) {
  if (plan->base_count == 0 && plan_begin(request, plan, error) < 0)
    return -1;
  struct compiler compiler = compiler_new(request, plan);
  int result = compile_parts(&compiler, error);
  compiler_clear(&compiler);
  if (result < 0)
    plan_clear(plan);
  return result;
}

static bool belongs_to_place(const struct operation *operation, const char *place) {
  static const bool wanted[OPERATION_COUNT] = {[OPERATION_PLACEHOLDER_FOLDER] = true,
                                               [OPERATION_PLACEHOLDER_FILE] = true,
                                               [OPERATION_PIN] = true,
                                               [OPERATION_PROTECT] = true,
                                               [OPERATION_SEAL] = true,
                                               [OPERATION_MASK] = true};
  return wanted[operation->kind] && path_is_under(operation->path, place) &&
         strcmp(operation->path, place) != 0;
}

/* git's common folder of a worktree, for instance, was not granted. Nor are holes in masks. */
static void drop_outside(struct plan *plan, const char *place) {
  size_t count = 0;
  for (size_t i = 0; i < plan->operation_count; i++) {
    struct operation *operation = &plan->operations[i];
    if (belongs_to_place(operation, place)) {
      operation->flags &= ~(unsigned)OPERATION_HOLES;
      plan->operations[count++] = *operation;
    } else {
      operation_clear(operation);
    }
  }
  plan->operation_count = count;
}

int plan_place(const struct host_context *host, const struct policy *policy, const char *place,
               struct plan *ret_plan, struct sb_error *error) {
  _cleanup_policy_ struct policy *own = policy_for_place(policy, &host->policy, place);
  struct plan_request request = {.host = host, .policy = own};
  *ret_plan = (struct plan){0};
  struct compiler compiler = compiler_new(&request, ret_plan);
  int result = compile_hidden(&compiler, error);
  if (result == 0)
    result = compile_globs(&compiler, error);
  compile_writable(&compiler, place, true, "allowed by an answer");
  if (result == 0)
    result = compile_git(&compiler, error);
  if (result == 0)
    result = compile_protections(&compiler, error);
  if (result == 0)
    compile_masks(&compiler);
  compiler_clear(&compiler);
  if (result < 0) {
    plan_clear(ret_plan);
    return -1;
  }
  order_operations(ret_plan);
  drop_outside(ret_plan, place);
  return 0;
}

/* What was denied and is not there may come back, made inside: its place is kept. The name of a
 * file, most likely; the host may put its own in its place at any time. */
#define DENIED_CONTENT "Writing to this file was denied in a session of sandbox.\n"

int plan_denied(const struct host_context *host, const struct policy *policy,
                const struct denied_name *denied, struct plan *ret_plan, struct sb_error *error) {
  struct plan_request request = {.host = host, .policy = policy};
  *ret_plan = (struct plan){0};
  struct compiler compiler = compiler_new(&request, ret_plan);
  int result = 0;
  if (denied->place)
    strv_add(&compiler.writable, denied->place);
  if (denied->writes) {
    result = compile_protect(&compiler, denied->path, true, DENIED_CONTENT, PLAN_DENIED, error);
  } else {
    _cleanup_free_ char *parent = path_parent(denied->path);
    if (faccessat(AT_FDCWD, denied->path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
      compile_pin(&compiler, parent);
    plan_add(ret_plan, OPERATION_MASK, denied->path, NULL, PLAN_DENIED);
  }
  compiler_clear(&compiler);
  if (result < 0)
    plan_clear(ret_plan);
  return result;
}

static bool is_dropped(const struct operation *operation, const char *path, const char *why) {
  return operation->kind != OPERATION_PIN && strcmp(operation->path, path) == 0 &&
         (!why || (operation->why && strcmp(operation->why, why) == 0));
}

size_t plan_drop(struct plan *plan, const char *path, const char *why) {
  size_t count = 0, before = plan->operation_count;
  for (size_t i = 0; i < before; i++) {
    struct operation *operation = &plan->operations[i];
    if (is_dropped(operation, path, why))
      operation_clear(operation);
    else
      plan->operations[count++] = *operation;
  }
  plan->operation_count = count;
  return before - count;
}
