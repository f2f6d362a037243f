/* The macOS back end: a generated profile and sandbox-exec. It only makes text, so a command line
 * for a Mac can be made and checked on any machine; running it needs macOS. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backend/backend.h"
#include "backend/registry.h"
#include "backend/sbpl.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "core/path.h"

#define SANDBOX_EXEC      "/usr/bin/sandbox-exec"
#define PROFILE_SIZE_MAX  (1 << 20)
#define NO_PROXY_FOR_THIS "localhost,127.0.0.1,::1"

static void probe(const struct host_context *host, const struct policy *policy,
                  struct backend_status *status) {
  (void)host;
  (void)policy;
  backend_missing(status, "on a Mac; here 'sandbox wrap --backend seatbelt' shows its profile",
                  "needs macOS");
}

/* The caller's temporary folder by its own name: profiles know no links. The plan's is private. */
static char *temporary_folder(const struct host_context *host) {
  const char *named = "/tmp";
  for (char *const *variable = host->policy.environment; *variable; variable++)
    if (strncmp(*variable, "TMPDIR=/", strlen("TMPDIR=/")) == 0)
      named = *variable + strlen("TMPDIR=");
  char *resolved = NULL;
  return file_resolve(named, &resolved) < 0 ? path_normalize(named) : resolved;
}

static int read_custom(const struct backend_request *request, struct sbpl *ret,
                       struct sb_error *error) {
  const char *written = request->policy->seatbelt.custom_profile;
  _cleanup_free_ char *path = NULL, *data = NULL;
  size_t length;
  if (policy_expand(&request->host->policy, request->host->project, written, &path, error) < 0)
    return sb_wrap(error, "seatbelt.custom_profile");
  int result = file_read_at(AT_FDCWD, path, PROFILE_SIZE_MAX, &data, &length);
  if (result < 0) {
    _cleanup_free_ char *shown = escape_string(path);
    sb_fail(error, SB_CODE_NOT_FOUND, -result, "seatbelt.custom_profile: reading '%s'", shown);
    return sb_hint(error, "name a profile of at most 1 MiB that you can read");
  }
  if (strlen(data) != length)
    return sb_fail(error, SB_CODE_POLICY, 0, "seatbelt.custom_profile: '%s' is not text", written);
  text_append(&ret->profile, data);
  return 0;
}

static int make_profile(const struct backend_request *request, const char *temporary,
                        struct sbpl *ret, struct sb_error *error) {
  struct sbpl_request wanted = {
      .policy = request->policy,
      .plan = request->plan,
      .project = request->host->project,
      .temporary = temporary,
      .home = request->host->home,
      .own_folder = request->host->runtime_folder,
  };
  if (!request->policy->seatbelt.custom_profile)
    return sbpl_generate(&wanted, ret, error);
  if (read_custom(request, ret, error) < 0)
    return -1;
  sbpl_add_parameters(&wanted, &ret->parameters);
  return 0;
}

static void set_both_cases(struct strv *environment, const char *upper, const char *lower,
                           const char *value) {
  plan_set_variable(environment, upper, value);
  plan_set_variable(environment, lower, value);
}

/* For tools that look for a proxy; those that do not will reach nothing. */
static void add_proxies(const struct policy *policy, struct strv *environment) {
  if (policy->network.mode != NETWORK_FILTERED)
    return;
  const char *http = policy->network.http_proxy, *socks = policy->network.socks_proxy;
  if (http) {
    _cleanup_free_ char *value = xasprintf("http://127.0.0.1:%u", sbpl_proxy_port(http));
    set_both_cases(environment, "HTTP_PROXY", "http_proxy", value);
    set_both_cases(environment, "HTTPS_PROXY", "https_proxy", value);
  }
  if (socks) {
    _cleanup_free_ char *value = xasprintf("socks5://127.0.0.1:%u", sbpl_proxy_port(socks));
    set_both_cases(environment, "ALL_PROXY", "all_proxy", value);
  }
  set_both_cases(environment, "NO_PROXY", "no_proxy", NO_PROXY_FOR_THIS);
}

/* In a file of the run's own folder, or in the command line where nothing is to be run by us. */
static void add_profile(const struct backend_request *request, const struct sbpl *sbpl,
                        struct wrapped *ret) {
  if (request->only_words || !request->scratch) {
    wrapped_words(ret, "-p", text_string(&sbpl->profile), NULL);
    return;
  }
  _cleanup_free_ char *path = path_join(request->scratch, "profile.sb");
  wrapped_words(ret, "-f", path, NULL);
  wrapped_add_file(ret, path, text_string(&sbpl->profile), sbpl->profile.length);
}

static int wrap(const struct backend_request *request, struct wrapped *ret,
                struct sb_error *error) {
  _cleanup_sbpl_ struct sbpl sbpl = {0};
  _cleanup_free_ char *temporary = temporary_folder(request->host);
  if (make_profile(request, temporary, &sbpl, error) < 0)
    return -1;
  strv_add(&ret->argv, SANDBOX_EXEC);
  STRV_FOREACH (parameter, &sbpl.parameters)
    wrapped_words(ret, "-D", *parameter, NULL);
  add_profile(request, &sbpl, ret);
  strv_add(&ret->argv, "--");
  ret->command_index = ret->argv.count;
  STRV_FOREACH (word, &request->plan->arguments)
    strv_add(&ret->argv, *word);
  STRV_FOREACH (variable, &request->plan->environment)
    strv_add(&ret->environment, *variable);
  plan_set_variable(&ret->environment, "TMPDIR", temporary);
  add_proxies(request->policy, &ret->environment);
  return 0;
}

const struct backend seatbelt_backend = {
    .name = "seatbelt",
    .summary = "macOS: a generated profile for sandbox-exec",
    .features = FEATURE(READ_ALL) | FEATURE(HIDE) | FEATURE(HIDE_IN_WRITABLE) |
                FEATURE(READONLY_IN_WRITABLE) | FEATURE(PROTECT) | FEATURE(RESERVE) |
                FEATURE(NETWORK_NONE) | FEATURE(NETWORK_FILTERED) | FEATURE(NETWORK_FULL) |
                FEATURE(UNIX_SOCKETS) | FEATURE(NO_LISTENING) | FEATURE(LIMIT_TIME) |
                FEATURE(METADATA) | FEATURE(SIGNAL_ISOLATION),
    .probe = probe,
    .wrap = wrap,
};
