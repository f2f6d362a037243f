/* nsjail: the plan as its arguments, by the options of its manual (nsjail.1) and no others. It is
 * not packaged where this is tested, so nothing here relies on how it behaves beyond that text. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/registry.h"
#include "backend/view.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"

struct builder {
  const struct backend_request *request;
  const struct plan *plan;
  struct wrapped *wrapped;
  struct sb_error *error;
};

/* "source:dest" and "src:dst:type:options": a colon, or a comma in options, would be a separator.
 */
static int check_name(struct builder *builder, const char *path) {
  if (!strpbrk(path, ":,"))
    return 0;
  _cleanup_free_ char *shown = escape_string(path);
  sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0, "nsjail cannot take the name '%s'", shown);
  return sb_hint(builder->error, "rename it, or use another back end: see 'sandbox backends'");
}

static int add_path(struct builder *builder, const char *option, const char *path) {
  if (check_name(builder, path) < 0)
    return -1;
  wrapped_words(builder->wrapped, option, path, NULL);
  return 0;
}

static int add_tmpfs(struct builder *builder, const char *path, unsigned mode) {
  if (check_name(builder, path) < 0)
    return -1;
  unsigned long long size = builder->plan->private_size_bytes;
  strv_add(&builder->wrapped->argv, "--mount");
  if (size)
    strv_addf(&builder->wrapped->argv, "none:%s:tmpfs:mode=%o,size=%llu", path, mode, size);
  else
    strv_addf(&builder->wrapped->argv, "none:%s:tmpfs:mode=%o", path, mode);
  return 0;
}

static int add_private(struct builder *builder, const struct operation *operation) {
  return add_tmpfs(builder, operation->path, view_private_mode(builder->plan, operation->source));
}

/* The devices one by one, in a /dev of its own. */
static int add_device(struct builder *builder, const struct operation *operation) {
  return add_path(builder, "--bindmount", operation->path);
}

static int add_devpts(struct builder *builder, const struct operation *operation) {
  (void)operation;
  wrapped_words(builder->wrapped, "--mount", "none:/dev/pts:devpts:newinstance,ptmxmode=0666",
                NULL);
  return 0;
}

static int add_writable(struct builder *builder, const struct operation *operation) {
  return add_path(builder, "--bindmount", operation->path);
}

static int add_readonly(struct builder *builder, const struct operation *operation) {
  if (path_is_under(operation->path, "/proc") || (operation->flags & OPERATION_NOFOLLOW))
    return 0; /* its /proc is read-only by default */
  return add_path(builder, "--bindmount_ro", operation->path);
}

static int add_mask(struct builder *builder, const struct operation *operation) {
  struct stat status;
  if (operation->flags & OPERATION_HOLES) {
    _cleanup_free_ char *shown = escape_string(operation->path);
    sb_fail(builder->error, SB_CODE_UNSUPPORTED, 0,
            "the arguments for nsjail cannot hide '%s' and show something below it", shown);
    return sb_hint(builder->error, "allow nothing below it, or use another back end");
  }
  if (lstat(operation->path, &status) < 0)
    return 0;
  if (S_ISDIR(status.st_mode))
    return add_tmpfs(builder, operation->path, 0);
  if (check_name(builder, operation->path) < 0)
    return -1;
  strv_add(&builder->wrapped->argv, "--bindmount_ro");
  strv_addf(&builder->wrapped->argv, "/dev/null:%s", operation->path);
  return 0;
}

static int (*const adders[OPERATION_COUNT])(struct builder *, const struct operation *) = {
    [OPERATION_PRIVATE] = add_private,   [OPERATION_PRIVATE_SEALED] = add_private,
    [OPERATION_DEVICE] = add_device,     [OPERATION_DEVPTS] = add_devpts,
    [OPERATION_WRITABLE] = add_writable, [OPERATION_READONLY] = add_readonly,
    [OPERATION_PIN] = add_writable,      [OPERATION_PROTECT] = add_readonly,
    [OPERATION_SEAL] = add_readonly,     [OPERATION_MASK] = add_mask,
};

static int add_operations(struct builder *builder) {
  for (size_t i = 0; i < builder->plan->operation_count; i++) {
    const struct operation *operation = &builder->plan->operations[i];
    if (adders[operation->kind] && adders[operation->kind](builder, operation) < 0)
      return -1;
  }
  return 0;
}

/* Its defaults end a command after ten minutes and forbid files of more than one megabyte: what was
 * not asked for is taken back, and what was is already set on us and inherited ('soft'). */
static void add_settings(struct builder *builder) {
  struct wrapped *wrapped = builder->wrapped;
  wrapped_words(wrapped, "--mode", "o", "--quiet", "--chroot", "/", "--hostname",
                builder->plan->hostname, "--cwd", builder->plan->working_folder, "--time_limit",
                "0", NULL);
  static const char *const limits[] = {"--rlimit_as",    "--rlimit_core",   "--rlimit_cpu",
                                       "--rlimit_fsize", "--rlimit_nofile", "--rlimit_nproc",
                                       "--rlimit_stack"};
  for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
    wrapped_words(wrapped, limits[i], "soft", NULL);
  if (builder->request->policy->network.mode == NETWORK_FULL)
    strv_add(&wrapped->argv, "--disable_clone_newnet");
  if (builder->request->has_terminal)
    strv_add(&wrapped->argv, "--skip_setsid");
  STRV_FOREACH (entry, &builder->plan->environment)
    wrapped_words(wrapped, "--env", *entry, NULL);
}

/* It does not look in $PATH. */
static const char *executable_of(const struct plan *plan) {
  STRV_FOREACH (place, &plan->executables) {
    if (access(*place, X_OK) == 0)
      return *place;
  }
  return plan->arguments.items[0];
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_free_ char *found = tool_find("nsjail");
  struct wrapped wrapped = WRAPPED_NONE;
  struct builder builder = {request, request->plan, &wrapped, error};
  strv_add(&wrapped.argv, found ? found : "nsjail");
  add_settings(&builder);
  if (add_operations(&builder) < 0) {
    wrapped_clear(&wrapped);
    return -1;
  }
  wrapped_words(&wrapped, "--exec_file", executable_of(request->plan), "--", NULL);
  wrapped.command_index = wrapped.argv.count;
  STRV_FOREACH (word, &request->plan->arguments)
    strv_add(&wrapped.argv, *word);
  STRV_FOREACH (entry, &request->plan->environment)
    strv_add(&wrapped.environment, *entry);
  wrapped.signals_inside = true;
  wrapped.own_placeholders = true;
  *ret = wrapped;
  return 0;
}

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  static const char fix[] = "build it from https://github.com/google/nsjail";
  _cleanup_free_ char *tool = tool_find("nsjail"), *output = NULL;
  if (!tool) {
    backend_missing(status, fix, "nsjail is not installed");
    return;
  }
  char *argv[] = {tool, "--mode", "o", "--quiet", "--chroot", "/", "--", "/bin/true", NULL};
  if (status->quick || tool_ask(argv, 10, &output) == 0) {
    backend_available(status,
                      "found; its arguments follow its manual and are not tested by running");
    return;
  }
  output[strcspn(output, "\n")] = '\0';
  _cleanup_free_ char *shown = escape_string(output);
  backend_missing(status, "see 'sandbox doctor' about user namespaces", "it does not work: %s",
                  shown);
}

const struct backend nsjail_backend = {
    .name = "nsjail",
    .summary = "nsjail, with the same mounts; arguments by its manual, not tested by running",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) |
                FEATURE(RESERVE) | FEATURE(READONLY_IN_WRITABLE) | FEATURE(NETWORK_NONE) |
                FEATURE(NETWORK_FULL) | FEATURE(LIMIT_MEMORY) | FEATURE(LIMIT_CPU) |
                FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_IO) | FEATURE(LIMIT_FILES) |
                FEATURE(LIMIT_TIME) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |
                FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA),
    .limits_by_group = true,
    .probe = probe,
    .wrap = wrap,
};
