/* podman: no daemon; as root, or rootless with a user namespace of the caller's own. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backend/container.h"
#include "backend/registry.h"
#include "core/alloc.h"
#include "core/cleanup.h"

static const char install_fix[] = "install it: apt install podman";

/* One word of "[cpuset cpu memory pids]". */
static bool has_controller(const char *list, const char *name) {
  size_t length = strlen(name);
  for (const char *at = list; (at = strstr(at, name)); at += length) {
    if (at > list && strchr(" [", at[-1]) && (at[length] == ' ' || at[length] == ']'))
      return true;
  }
  return false;
}

/* Where it has no cgroup to put them in, podman drops limits with a warning and goes on. */
static uint64_t unheld_limits(const char *information) {
  static const struct {
    const char *controller;
    uint64_t feature;
  } limits[] = {{"memory", FEATURE(LIMIT_MEMORY)},
                {"cpu", FEATURE(LIMIT_CPU)},
                {"pids", FEATURE(LIMIT_PROCESSES)}};
  uint64_t missing = 0;
  for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
    missing |= has_controller(information, limits[i].controller) ? 0 : limits[i].feature;
  return missing;
}

/* It looks the name up in its configuration, whose defaults know the usual places. One that fails
 * at it leaves its storage mounted; the next that does not takes that away. */
static bool knows_runtime(const char *program, const char *runtime) {
  if (!runtime)
    return true;
  _cleanup_free_ char *option = xasprintf("--runtime=%s", runtime), *output = NULL;
  char *words[] = {(char *)program, option, "info", "--format", "{{.Host.OCIRuntime.Name}}", NULL};
  if (tool_ask(words, 20, &output) == 0)
    return true;
  char *after[] = {(char *)program, "ps", "--quiet", NULL};
  _cleanup_free_ char *ignored = NULL;
  (void)tool_ask(after, 20, &ignored);
  return false;
}

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  _cleanup_free_ char *program = tool_find("podman"), *information = NULL;
  if (!program) {
    backend_missing(status, install_fix, "there is no program 'podman'");
    return;
  }
  char *words[] = {program, "info", "--format",
                   "{{.Version.Version}} {{.Host.Security.Rootless}} {{.Host.CgroupControllers}}",
                   NULL};
  struct tool_version version;
  if (tool_ask(words, 20, &information) != 0 || !tool_parse_version(information, &version)) {
    _cleanup_free_ char *line = container_first_line(information);
    backend_missing(status, "make 'podman info' work first", "podman does not work: %s", line);
    return;
  }
  if (!knows_runtime(program, policy->container.runtime)) {
    container_runtime_missing(status, "podman", policy->container.runtime,
                              "name it in containers.conf below [engine.runtimes]");
    return;
  }
  if (!container_has_image(program, container_image(policy))) {
    container_image_missing(status, "podman", container_image(policy));
    return;
  }
  bool rootless = strstr(information, " true [");
  if (rootless)
    status->features &= ~unheld_limits(information);
  status->features &= ~container_unclean_features();
  backend_available(status, "podman %d.%d.%d, %s", version.major, version.minor, version.patch,
                    rootless ? "rootless" : "as root");
}

/* Podman as root raises these limits for the container, which takes a right that root does not have
 * everywhere, and fails where it cannot. Lower ones do: they are no boundary for root anyway. */
static unsigned long long own_limit(int resource, unsigned long long most) {
  struct rlimit limit;
  if (geteuid() != 0 || getrlimit((__rlimit_resource_t)resource, &limit) < 0)
    return 0;
  return limit.rlim_max < most ? limit.rlim_max : most;
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_free_ char *program = tool_find("podman");
  if (!program) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "there is no program 'podman'");
    return sb_hint(error, install_fix);
  }
  _cleanup_free_ char *init = tool_find_own("sandbox-init");
  struct container_setup setup = {
      .program = program,
      .is_podman = true,
      .has_init = init != NULL,
      .init = init,
      .open_files = own_limit(RLIMIT_NOFILE, 1 << 20),
      .own_processes = own_limit(RLIMIT_NPROC, 1 << 14),
      .identity = geteuid() == 0 ? CONTAINER_SAME_IDS : CONTAINER_KEEP_ID,
  };
  return container_wrap_here(&setup, request, ret, error);
}

static int run(const struct backend_request *request, struct session_result *ret_result,
               struct sb_error *error) {
  return container_run(&podman_backend, request, ret_result, error);
}

const struct backend podman_backend = {
    .name = "podman",
    .summary = "a container of an image, by podman",
    .features = CONTAINER_FEATURES,
    .never_chosen = true,
    .probe = probe,
    .wrap = wrap,
    .run = run,
};
