/* bubblewrap: the plan as its arguments. What it lacks beside the native engine: a /sys of its own,
 * links kept as links, and overlays before 0.11. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backend/registry.h"
#include "backend/view.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "engine/seccomp.h"

struct builder {
  const struct backend_request *request;
  const struct plan *plan;
  struct wrapped *wrapped;
};

static void add(struct builder *builder, const char *option, const char *first,
                const char *second) {
  wrapped_words(builder->wrapped, option, first, second, NULL);
}

static void add_mode(struct builder *builder, unsigned mode) {
  strv_add(&builder->wrapped->argv, "--perms");
  strv_addf(&builder->wrapped->argv, "%04o", mode);
}

static void add_tmpfs(struct builder *builder, const char *path, unsigned mode) {
  add_mode(builder, mode);
  if (builder->plan->private_size_bytes) {
    strv_add(&builder->wrapped->argv, "--size");
    strv_addf(&builder->wrapped->argv, "%llu", builder->plan->private_size_bytes);
  }
  add(builder, "--tmpfs", path, NULL);
}

/* ---- one function per kind of operation ---- */

static void add_root(struct builder *builder, const struct operation *operation) {
  (void)operation;
  add(builder, "--ro-bind", "/", "/");
}

/* Folders that belong into a private place follow it at once: mount points need them. */
static void add_private(struct builder *builder, const struct operation *operation) {
  const struct plan *plan = builder->plan;
  add_tmpfs(builder, operation->path, view_private_mode(plan, operation->source));
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *part = &plan->operations[i];
    if (part->kind != OPERATION_PRIVATE_FOLDER && part->kind != OPERATION_PRIVATE_LINK)
      continue;
    _cleanup_free_ char *path = view_private_path(plan, part->source);
    if (!path || !path_is_under(path, operation->path) || strcmp(path, operation->path) == 0)
      continue;
    if (part->kind == OPERATION_PRIVATE_LINK) {
      add(builder, "--symlink", part->path, path);
      continue;
    }
    add_mode(builder, part->mode);
    add(builder, "--dir", path, NULL);
  }
}

/* Its /dev has the same devices as ours; read-only, since only we may put something there. */
static void add_devices(struct builder *builder, const struct operation *operation) {
  (void)operation;
  add(builder, "--dev", "/dev", NULL);
}

static void add_proc(struct builder *builder, const struct operation *operation) {
  add(builder, "--proc", operation->path, NULL);
}

static void add_writable(struct builder *builder, const struct operation *operation) {
  add(builder, "--bind", operation->path, operation->path);
}

/* Gone since the plan saw it: wrapped again after a failure, it is left out. */
static void add_pin(struct builder *builder, const struct operation *operation) {
  struct stat status;
  if (lstat(operation->path, &status) == 0)
    add_writable(builder, operation);
}

/* Also for /proc/sys: its own --proc leaves that alone where it is not writable by mode, and root
 * without capabilities still owns the files in it. */
static void add_readonly(struct builder *builder, const struct operation *operation) {
  if (operation->flags & OPERATION_NOFOLLOW)
    return;
  const char *source = operation->source ? operation->source : operation->path;
  add(builder, operation->flags & OPERATION_OPTIONAL ? "--ro-bind-try" : "--ro-bind", source,
      operation->path);
}

/* Those that every session has come with --dev. */
static void add_device(struct builder *builder, const struct operation *operation) {
  static const char *const usual[] = {"/dev/null",   "/dev/zero",    "/dev/full",
                                      "/dev/random", "/dev/urandom", "/dev/tty"};
  for (size_t i = 0; i < ARRAY_SIZE(usual); i++) {
    if (strcmp(operation->path, usual[i]) == 0)
      return;
  }
  add(builder, "--dev-bind", operation->path, operation->path);
}

static void add_overlay(struct builder *builder, const struct operation *operation) {
  _cleanup_free_ char *upper = path_join(operation->upper, "upper");
  _cleanup_free_ char *work = path_join(operation->upper, "work");
  add(builder, "--overlay-src", operation->path, NULL);
  add(builder, "--overlay", upper, work);
  strv_add(&builder->wrapped->argv, operation->path);
}

/* A mask with holes: its folders are made in it, and the places that fill them come later. */
static void add_holes(struct builder *builder, const struct operation *operation) {
  const struct plan *plan = builder->plan;
  size_t length = strlen(operation->source);
  add_tmpfs(builder, operation->path, 0555);
  for (size_t i = 0; i < plan->operation_count; i++) {
    const struct operation *part = &plan->operations[i];
    if (part->kind != OPERATION_PRIVATE_FOLDER ||
        strncmp(part->source, operation->source, length) != 0 || part->source[length] != '/')
      continue;
    _cleanup_free_ char *path = xasprintf("%s%s", operation->path, part->source + length);
    add_mode(builder, part->mode);
    add(builder, "--dir", path, NULL);
  }
}

/* Should it vanish before bwrap comes to it, bwrap would make something in its place, for good,
 * where the folder is writable. With itself as the source it fails. */
static void insist(struct builder *builder, const struct operation *operation) {
  for (size_t i = 0; i < builder->plan->operation_count; i++) {
    const struct operation *place = &builder->plan->operations[i];
    if (place->kind == OPERATION_WRITABLE && path_is_under(operation->path, place->path)) {
      add_writable(builder, operation);
      return;
    }
  }
}

/* A device on a mount without devices cannot be opened, which is as good as a file of mode 0. */
static void add_mask(struct builder *builder, const struct operation *operation) {
  struct stat status;
  if (operation->flags & OPERATION_HOLES) {
    add_holes(builder, operation);
    return;
  }
  if (lstat(operation->path, &status) < 0)
    return;
  insist(builder, operation);
  if (!S_ISDIR(status.st_mode)) {
    add(builder, "--ro-bind", "/dev/null", operation->path);
    return;
  }
  add_mode(builder, 0);
  add(builder, "--tmpfs", operation->path, NULL);
  add(builder, "--remount-ro", operation->path, NULL);
}

static void (*const adders[OPERATION_COUNT])(struct builder *, const struct operation *) = {
    [OPERATION_ROOT] = add_root,
    [OPERATION_PRIVATE] = add_private,
    [OPERATION_PRIVATE_SEALED] = add_devices,
    [OPERATION_DEVICE] = add_device,
    [OPERATION_PROC] = add_proc,
    [OPERATION_WRITABLE] = add_writable,
    [OPERATION_READONLY] = add_readonly,
    [OPERATION_OVERLAY] = add_overlay,
    [OPERATION_PIN] = add_pin,
    [OPERATION_PROTECT] = add_readonly,
    [OPERATION_SEAL] = add_readonly,
    [OPERATION_MASK] = add_mask,
};

/* ---- the whole command line ---- */

static void add_namespaces(struct builder *builder) {
  const struct policy *policy = builder->request->policy;
  wrapped_words(builder->wrapped, "--unshare-user", "--unshare-ipc", "--unshare-pid",
                "--unshare-uts", "--unshare-cgroup-try", NULL);
  if (policy->network.mode != NETWORK_FULL)
    strv_add(&builder->wrapped->argv, "--unshare-net");
  wrapped_words(builder->wrapped, "--hostname", builder->plan->hostname, "--cap-drop", "ALL",
                "--die-with-parent", NULL);
  /* With a terminal, job control needs it as the controlling one; the filter forbids TIOCSTI. */
  if (!builder->request->has_terminal)
    strv_add(&builder->wrapped->argv, "--new-session");
}

static void add_filter(struct builder *builder) {
  const struct sock_fprog *program = seccomp_program(builder->plan->seccomp);
  int fd = wrapped_add_descriptor(builder->wrapped, program->filter,
                                  program->len * sizeof *program->filter);
  strv_add(&builder->wrapped->argv, "--seccomp");
  strv_addf(&builder->wrapped->argv, "%d", fd);
}

/* bwrap itself must survive Ctrl-C: with --die-with-parent its end is the command's. So it ignores
 * the terminal's signals, and `env` gives the command the usual behaviour back. */
static void shield(struct builder *builder) {
  char *argv[] = {"/usr/bin/env", "--default-signal=INT", "true", NULL};
  _cleanup_free_ char *output = NULL;
  if (!builder->request->has_terminal || tool_ask(argv, 2, &output) != 0)
    return;
  builder->wrapped->shielded = true;
  wrapped_words(builder->wrapped, "/usr/bin/env", "--default-signal=INT,QUIT", "--", NULL);
}

static void add_command(struct builder *builder) {
  wrapped_words(builder->wrapped, "--chdir", builder->plan->working_folder, "--", NULL);
  shield(builder);
  builder->wrapped->command_index = builder->wrapped->argv.count;
  STRV_FOREACH (word, &builder->plan->arguments)
    strv_add(&builder->wrapped->argv, *word);
}

/* Without a /sys of its own: what only root may open there shows the kernel at work. */
static void hide_kernel_internals(struct builder *builder) {
  static const char *const folders[] = {"/sys/kernel/debug", "/sys/kernel/tracing"};
  struct stat status;
  for (size_t i = 0; builder->request->host->user == 0 && i < ARRAY_SIZE(folders); i++) {
    if (stat(folders[i], &status) == 0)
      wrapped_words(builder->wrapped, "--perms", "0000", "--tmpfs", folders[i], NULL);
  }
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_free_ char *tool = tool_find("bwrap");
  if (!tool)
    return sb_fail(error, SB_CODE_NOT_FOUND, 0, "bwrap is not installed");
  struct wrapped wrapped = WRAPPED_NONE;
  struct builder builder = {request, request->plan, &wrapped};
  wrapped.status_fd = 3;
  wrapped.ran_mark = "exit-code";
  wrapped.started_mark = "child-pid";
  wrapped.signals_inside = true;
  wrapped.own_placeholders = true;
  strv_add(&wrapped.argv, tool);
  add_namespaces(&builder);
  for (size_t i = 0; i < request->plan->operation_count; i++) {
    const struct operation *operation = &request->plan->operations[i];
    if (adders[operation->kind] &&
        !(view_is_kernel_path(operation->path) && operation->kind == OPERATION_PRIVATE))
      adders[operation->kind](&builder, operation);
  }
  wrapped_words(&wrapped, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev", NULL);
  hide_kernel_internals(&builder);
  wrapped_words(&wrapped, "--json-status-fd", "3", NULL);
  add_filter(&builder);
  add_command(&builder);
  STRV_FOREACH (entry, &request->plan->environment)
    strv_add(&wrapped.environment, *entry);
  *ret = wrapped;
  return 0;
}

/* ---- probe ---- */

static bool try_it(const char *tool, char **ret_output) {
  char *argv[] = {(char *)tool,
                  "--unshare-user",
                  "--unshare-pid",
                  "--unshare-net",
                  "--ro-bind",
                  "/",
                  "/",
                  "--dev",
                  "/dev",
                  "--proc",
                  "/proc",
                  "--die-with-parent",
                  "--",
                  "/bin/true",
                  NULL};
  return tool_ask(argv, 5, ret_output) == 0;
}

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  _cleanup_free_ char *tool = tool_find("bwrap"), *output = NULL;
  struct tool_version version;
  if (!tool) {
    backend_missing(status, "apt-get install bubblewrap", "bwrap is not installed");
    return;
  }
  if (!tool_version(tool, &version) || !tool_at_least(version, 0, 5, 0)) {
    backend_missing(status, "install bubblewrap 0.5 or newer", "this bwrap is too old");
    return;
  }
  if (!status->quick && !try_it(tool, &output)) {
    output[strcspn(output, "\n")] = '\0';
    _cleanup_free_ char *shown = escape_string(output);
    backend_missing(status, "see 'sandbox doctor' about user namespaces", "it does not work: %s",
                    shown);
    return;
  }
  if (!tool_at_least(version, 0, 11, 0))
    status->features &= ~FEATURE(OVERLAY);
  backend_available(status, "bubblewrap %d.%d.%d", version.major, version.minor, version.patch);
}

const struct backend bwrap_backend = {
    .name = "bwrap",
    .summary = "bubblewrap, with the same mounts and our system call filter",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) | FEATURE(PROTECT) |
                FEATURE(RESERVE) | FEATURE(READONLY_IN_WRITABLE) | FEATURE(OVERLAY) |
                FEATURE(NETWORK_NONE) | FEATURE(NETWORK_FULL) | FEATURE(LIMIT_MEMORY) |
                FEATURE(LIMIT_CPU) | FEATURE(LIMIT_PROCESSES) | FEATURE(LIMIT_IO) |
                FEATURE(LIMIT_FILES) | FEATURE(LIMIT_TIME) | FEATURE(NO_DEBUG) |
                FEATURE(SYSCALL_FILTER) | FEATURE(PRIVATE_TMP) | FEATURE(PROCESS_ISOLATION) |
                FEATURE(SIGNAL_ISOLATION) | FEATURE(METADATA),
    .limits_by_group = true,
    .probe = probe,
    .wrap = wrap,
};
