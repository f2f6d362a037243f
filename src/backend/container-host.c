/* What podman and docker share in finding out about the machine: the image, control sockets,
 * SELinux, and where the files of one run go. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/container.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

const char *container_image(const struct policy *policy) {
  return policy->container.image ? policy->container.image : CONTAINER_DEFAULT_IMAGE;
}

char *container_first_line(const char *output) {
  output += strspn(output, "\n \t");
  static const char *const prefixes[] = {"Error: ", "ERROR: ", "error: "};
  for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++) {
    if (strncmp(output, prefixes[i], strlen(prefixes[i])) == 0)
      output += strlen(prefixes[i]);
  }
  _cleanup_free_ char *line = xstrndup(output, strcspn(output, "\n"));
  return line[0] ? escape_string(line) : xstrdup("it gives no reason");
}

/* The kernel keeps something in an overlay's work folder, in the name of whoever mounted it. */
uint64_t container_unclean_features(void) {
  return geteuid() == 0 ? 0 : FEATURE(OVERLAY);
}

bool container_has_image(const char *program, const char *image) {
  char *words[] = {(char *)program, "image", "inspect", "--format", "{{.Id}}", (char *)image, NULL};
  _cleanup_free_ char *output = NULL;
  /* A name that starts with a dash would be read as an option. */
  return image[0] != '-' && tool_ask(words, 20, &output) == 0;
}

void container_image_missing(struct backend_status *status, const char *tool, const char *image) {
  _cleanup_free_ char *shown = escape_string(image);
  _cleanup_free_ char *fix = xasprintf(
      "fetch it with '%s pull %s', or name one that is here with --image or container.image (it is "
      "never fetched unasked; '%s images' lists them)",
      tool, shown, tool);
  backend_missing(status, fix, "the image '%s' is not on this machine", shown);
}

void container_runtime_missing(struct backend_status *status, const char *tool, const char *runtime,
                               const char *where) {
  _cleanup_free_ char *shown = escape_string(runtime);
  _cleanup_free_ char *fix = xasprintf("install it and %s, or leave container.runtime out", where);
  backend_missing(status, fix, "%s knows no runtime '%s'", tool, shown);
}

/* ---- control sockets ---- */

static void add_socket(struct strv *sockets, const char *path) {
  struct stat status;
  _cleanup_free_ char *resolved = NULL;
  if (stat(path, &status) == 0 && S_ISSOCK(status.st_mode) && file_resolve(path, &resolved) == 0 &&
      !strv_contains(sockets, resolved))
    strv_add(sockets, resolved);
}

/* "unix:///run/docker.sock", as $DOCKER_HOST and $CONTAINER_HOST say it. */
static void add_named_socket(struct strv *sockets, const char *variable) {
  const char *value = getenv(variable);
  if (value && strncmp(value, "unix://", 7) == 0)
    add_socket(sockets, value + 7);
}

static void find_control_sockets(const struct host_context *host, struct strv *ret_sockets) {
  static const char *const fixed[] = {"/run/docker.sock",
                                      "/run/podman/podman.sock",
                                      "/run/containerd/containerd.sock",
                                      "/run/crio/crio.sock",
                                      "/run/buildkit/buildkitd.sock",
                                      "/var/lib/lxd/unix.socket",
                                      "/var/lib/incus/unix.socket"};
  static const char *const of_the_user[] = {"docker.sock", "podman/podman.sock",
                                            "containerd/containerd.sock"};
  static const char *const at_home[] = {".docker/run/docker.sock", ".docker/desktop/docker.sock",
                                        ".colima/default/docker.sock", ".rd/docker.sock"};
  for (size_t i = 0; i < ARRAY_SIZE(fixed); i++)
    add_socket(ret_sockets, fixed[i]);
  _cleanup_free_ char *runtime = xasprintf("/run/user/%u", (unsigned)host->user);
  for (size_t i = 0; i < ARRAY_SIZE(of_the_user); i++) {
    _cleanup_free_ char *path = path_join(runtime, of_the_user[i]);
    add_socket(ret_sockets, path);
  }
  for (size_t i = 0; host->home && i < ARRAY_SIZE(at_home); i++) {
    _cleanup_free_ char *path = path_join(host->home, at_home[i]);
    add_socket(ret_sockets, path);
  }
  add_named_socket(ret_sockets, "DOCKER_HOST");
  add_named_socket(ret_sockets, "CONTAINER_HOST");
}

/* ---- what the killed have left ---- */

/* Runner and guard hold the lock of the scratch folder; if both were killed, nobody does. */
static bool is_alive(const char *session_id) {
  _cleanup_free_ char *scratch = backend_scratch_path(session_id);
  _cleanup_close_ int fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
  return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0;
}

/* Not always at the first attempt: its orphaned client may be ending it at the same moment. `time`:
 * the option that keeps podman from waiting ten seconds for the container, or NULL. */
static void remove_container(const char *program, char *name, char *time) {
  char *words[] = {(char *)program, "rm", "--force", "--volumes", name, time, NULL};
  for (int attempt = 0; attempt < 3; attempt++) {
    _cleanup_free_ char *output = NULL;
    if (tool_ask(words, 20, &output) == 0)
      return;
  }
}

static void sweep(const char *program, char *time, const struct host_context *host) {
  _cleanup_free_ char *user = xasprintf("label=sandbox.user=%u", (unsigned)host->user);
  char *words[] = {(char *)program, "ps", "--all",    "--filter",   "label=sandbox.session",
                   "--filter",      user, "--format", "{{.Names}}", NULL};
  _cleanup_free_ char *output = NULL;
  if (tool_ask(words, 20, &output) != 0)
    return;
  char *rest = output;
  for (char *name; (name = strsep(&rest, "\n"));) {
    if (strncmp(name, "sandbox-", 8) != 0 || is_alive(name + 8))
      continue;
    remove_container(program, name, time);
  }
}

int container_run(const struct backend *backend, const struct backend_request *request,
                  struct session_result *ret_result, struct sb_error *error) {
  _cleanup_free_ char *program = tool_find(backend->name);
  if (program)
    sweep(program, strcmp(backend->name, "podman") == 0 ? "--time=0" : NULL, request->host);
  return backend_run_wrapped(backend, request, ret_result, error);
}

/* ---- one run ---- */

static bool selinux_enforces(void) {
  _cleanup_free_ char *data = NULL;
  size_t length;
  return file_read_at(AT_FDCWD, "/sys/fs/selinux/enforce", 16, &data, &length) == 0 &&
         data[0] == '1';
}

/* What the tool itself needs: where its configuration, its storage and its daemon are. Not the
 * rest of the caller's variables, which the command does not get either. */
static const char *const tool_variables[] = {
    "PATH",         "HOME",      "USER",          "LOGNAME",       "LANG",
    "TMPDIR",       "TERM",      "XDG_*",         "DOCKER_*",      "CONTAINER_*",
    "CONTAINERS_*", "STORAGE_*", "_CONTAINERS_*", "SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS",
};

static bool is_for_the_tool(const char *entry) {
  size_t name = strcspn(entry, "=");
  for (size_t i = 0; i < ARRAY_SIZE(tool_variables); i++) {
    size_t length = strlen(tool_variables[i]);
    bool prefix = tool_variables[i][length - 1] == '*';
    if (prefix ? strncmp(entry, tool_variables[i], length - 1) == 0
               : name == length && strncmp(entry, tool_variables[i], length) == 0)
      return true;
  }
  return false;
}

static void pass_environment(const struct host_context *host, struct strv *ret_environment) {
  for (char *const *entry = host->policy.environment; *entry; entry++) {
    if (is_for_the_tool(*entry))
      strv_add(ret_environment, *entry);
  }
}

/* For root there is nothing to create; in a user namespace of the caller's own the new user would
 * be somebody else outside. */
static int use_created_user(struct container_setup *setup, const struct backend_request *request,
                            struct sb_error *error) {
  if (strcmp(request->policy->container.user, "create") != 0 || request->host->user == 0)
    return 0;
  if (setup->identity == CONTAINER_SAME_IDS) {
    setup->identity = CONTAINER_CREATE;
    return 0;
  }
  sb_fail(error, SB_CODE_UNSUPPORTED, 0,
          "container.user 'create': without root %s keeps your ids by itself, and a created user "
          "would be somebody else",
          path_base(setup->program));
  return sb_hint(error, "leave container.user at keep");
}

int container_wrap_here(struct container_setup *setup, const struct backend_request *request,
                        struct wrapped *ret, struct sb_error *error) {
  _cleanup_strv_ struct strv sockets = {0};
  _cleanup_mounts_ struct mount_table mounts = {0};
  find_control_sockets(request->host, &sockets);
  if (mount_table_load(&mounts) == 0)
    setup->mounts = &mounts;
  setup->control_sockets = &sockets;
  setup->scratch = request->scratch;
  setup->image = container_image(request->policy);
  setup->runtime = request->policy->container.runtime;
  setup->is_labelled = selinux_enforces();
  if (use_created_user(setup, request, error) < 0)
    return -1;
  pass_environment(request->host, &ret->environment);
  ret->own_placeholders = true;
  ret->limits_held = container_held_limits(request->lost);
  return container_wrap(setup, request, ret, error);
}
