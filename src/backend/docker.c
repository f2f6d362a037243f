/* docker: the daemon runs the container; who may talk to it is as good as root on its machine, so
 * nothing of it is ever visible inside. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/container.h"
#include "backend/registry.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"

static const char install_fix[] = "install it: apt install docker.io";
static const char daemon_fix[] =
    "start the daemon ('systemctl start docker'), or set DOCKER_HOST to where it listens; to use it "
    "without being root, be in the group of its socket";

/* What the daemon is like, in one question. */
static int ask_daemon(const char *program, char **ret_information) {
  char *words[] = {(char *)program, "info", "--format",
                   "{{.ServerVersion}} memory={{.MemoryLimit}} cpu={{.CPUCfsQuota}} "
                   "pids={{.PidsLimit}} {{json .SecurityOptions}} "
                   "runtimes={{range $name, $path := .Runtimes}}{{$name}},{{end}}",
                   NULL};
  int result = tool_ask(words, 20, ret_information);
  return result == 0 && strstr(*ret_information, " pids=") ? 0 : -1;
}

/* Why it does not answer; `info` prints a table of nothing before it says so. New string. */
static char *daemon_problem(const char *program) {
  char *words[] = {(char *)program, "version", "--format", "{{.Server.Version}}", NULL};
  _cleanup_free_ char *output = NULL;
  (void)tool_ask(words, 20, &output);
  return container_first_line(output);
}

static uint64_t unheld_limits(const char *information) {
  static const struct {
    const char *word;
    uint64_t feature;
  } limits[] = {{"memory=true", FEATURE(LIMIT_MEMORY)},
                {"cpu=true", FEATURE(LIMIT_CPU)},
                {"pids=true", FEATURE(LIMIT_PROCESSES)}};
  uint64_t missing = 0;
  for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
    missing |= strstr(information, limits[i].word) ? 0 : limits[i].feature;
  return missing;
}

static bool knows_runtime(const char *information, const char *runtime) {
  const char *at = strstr(information, " runtimes=");
  if (!runtime || !at)
    return true; /* none is asked for, or it will say so itself */
  size_t length = strlen(runtime);
  for (at += strlen(" runtimes="); *at; at += *at == ',') {
    size_t size = strcspn(at, ",\n");
    if (size == length && strncmp(at, runtime, size) == 0)
      return true;
    at += size;
    if (*at == '\n')
      break;
  }
  return false;
}

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  _cleanup_free_ char *program = tool_find("docker"), *information = NULL;
  if (!program) {
    backend_missing(status, install_fix, "there is no program 'docker'");
    return;
  }
  struct tool_version version = {0};
  if (ask_daemon(program, &information) < 0) {
    _cleanup_free_ char *line = daemon_problem(program);
    backend_missing(status, daemon_fix, "no docker daemon answers: %s", line);
    return;
  }
  if (!knows_runtime(information, policy->container.runtime)) {
    container_runtime_missing(status, "docker", policy->container.runtime,
                              "name it in /etc/docker/daemon.json below \"runtimes\"");
    return;
  }
  if (!container_has_image(program, container_image(policy))) {
    container_image_missing(status, "docker", container_image(policy));
    return;
  }
  status->features &= ~(unheld_limits(information) | container_unclean_features());
  tool_parse_version(information, &version);
  backend_available(status, "docker %d.%d.%d%s", version.major, version.minor, version.patch,
                    strstr(information, "name=rootless") ? ", rootless" : "");
}

static bool has_proxies(const struct host_context *host) {
  const char *folder = getenv("DOCKER_CONFIG");
  _cleanup_free_ char *file = NULL, *text = NULL;
  size_t length;
  if (folder || host->home)
    file = folder ? path_join(folder, "config.json") : path_join(host->home, ".docker/config.json");
  return file && file_read_at(AT_FDCWD, file, 1 << 20, &text, &length) == 0 &&
         strstr(text, "\"proxies\"");
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_free_ char *program = tool_find("docker"), *information = NULL;
  if (!program) {
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "there is no program 'docker'");
    return sb_hint(error, install_fix);
  }
  if (ask_daemon(program, &information) < 0) {
    _cleanup_free_ char *line = daemon_problem(program);
    sb_fail(error, SB_CODE_UNSUPPORTED, 0, "no docker daemon answers: %s", line);
    return sb_hint(error, daemon_fix);
  }
  _cleanup_free_ char *init = tool_find("docker-init");
  struct container_setup setup = {
      .program = program,
      .has_init = init != NULL,
      .has_proxies = has_proxies(request->host),
      .is_remapped = strstr(information, "name=userns"),
      .identity = strstr(information, "name=rootless") ? CONTAINER_AS_ROOT : CONTAINER_SAME_IDS,
  };
  return container_wrap_here(&setup, request, ret, error);
}

static int run(const struct backend_request *request, struct session_result *ret_result,
               struct sb_error *error) {
  return container_run(&docker_backend, request, ret_result, error);
}

const struct backend docker_backend = {
    .name = "docker",
    .summary = "a container of an image, by the docker daemon",
    .features = CONTAINER_FEATURES,
    .never_chosen = true,
    .probe = probe,
    .wrap = wrap,
    .run = run,
};
