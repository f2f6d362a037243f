/* What a command that failed may have met, where the kernel alone refused it and nothing of ours
 * saw that. It is guessed from the command's words, so nothing may depend on it. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/run.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "core/text.h"

/* git says "Read-only file system" of a file in it. */
static bool reserves_repository(const struct run *run) {
  _cleanup_free_ char *git = path_join(run->host.project, ".git");
  return plan_reserves(&run->plan, git);
}

/* docker asks whether its daemon runs. */
static bool lacks_docker(const struct run *run) {
  static const char scheme[] = "unix://";
  const char *address = getenv("DOCKER_HOST");
  struct stat status;
  if (!address)
    address = "unix:///run/docker.sock";
  return strncmp(address, scheme, strlen(scheme)) == 0 &&
         stat(address + strlen(scheme), &status) == 0 && S_ISSOCK(status.st_mode) &&
         run->policy->network.unix_sockets.count == 0;
}

static bool protects(const struct run *run, const char *name) {
  _cleanup_free_ char *path = path_join(run->host.project, name);
  for (size_t i = 0; i < run->plan.operation_count; i++) {
    const struct operation *operation = &run->plan.operations[i];
    if (operation->kind == OPERATION_PROTECT && strcmp(operation->path, path) == 0)
      return true;
  }
  return false;
}

/* git says "Device or resource busy". */
static bool protects_configuration(const struct run *run) {
  return protects(run, ".git/config");
}

static bool protects_hooks(const struct run *run) {
  return protects(run, ".git/hooks");
}

/* git says that the folder is not empty, and who empties it that a name is busy. */
static bool has_placeholders(const struct run *run) {
  for (size_t i = 0; i < run->plan.operation_count; i++) {
    const struct operation *operation = &run->plan.operations[i];
    _cleanup_free_ char *parent = path_parent(operation->path);
    if (operation->kind == OPERATION_PLACEHOLDER_FOLDER && strcmp(parent, run->host.project) == 0)
      return true;
  }
  return false;
}

/* sudo speaks of containers and their configuration. */
static bool is_plain_user(const struct run *run) {
  return run->host.user != 0;
}

#define CONFIGURATION                                                                              \
  "the configuration of the repository is protected, for git runs programs that it names; to let " \
  "the command change it: sandbox run --unprotect .git/config"
#define NOT_REMOVED                                                                                \
  "the empty folders that stand for protected names, such as '.vscode', cannot be removed; they "  \
  "are gone when the session has ended"

static const struct {
  const char *words, *argument;
  int status; /* of that failure; 0: any */
  bool (*applies)(const struct run *run);
  const char *advice;
} hints[] = {
    {"git init", NULL, 0, reserves_repository,
     "the project is no repository, and the name '.git' is reserved; to let the command make one: "
     "sandbox run --unprotect .git"},
    {"git clone", ".", 128, has_placeholders,
     "folders that stand for protected names, such as '.vscode', are in the project while the "
     "command runs; clone into a folder below it, or without these protections: "
     "sandbox run --unprotect ."},
    {"git config", NULL, 4, protects_configuration, CONFIGURATION},
    {"git remote", NULL, 128, protects_configuration, CONFIGURATION},
    {"pre-commit install", NULL, 0, protects_hooks,
     "the hooks of the repository are protected, for git runs them; to let the command change "
     "them: sandbox run --unprotect .git/hooks"},
    {"git clean", NULL, 1, has_placeholders, NOT_REMOVED},
    {"rm", "*", 1, has_placeholders, NOT_REMOVED},
    {"find", "-delete", 1, has_placeholders, NOT_REMOVED},
    {"sudo", NULL, 1, is_plain_user,
     "nobody becomes root in a sandbox: what needs it has to be run outside"},
    {"docker", NULL, 0, lacks_docker,
     "the socket of docker is not in the sandbox, for whoever speaks to it is root; to run docker "
     "without a sandbox, in a policy file: commands: {exclude: [docker], allow_unsandboxed: true}"},
};

/* Where a command begins, and not among its arguments: `grep docker README` has met nothing. */
static bool begins_command(const char *text, const char *at) {
  while (at > text && !strchr(" \t\n;&|(", at[-1]))
    at--; /* /usr/bin/docker */
  while (at > text && strchr(" \t", at[-1]))
    at--;
  return at == text || strchr("\n;&|(", at[-1]);
}

static bool is_word(const char *text, const char *at, const char *after) {
  return (at == text || strchr(" \t\n;&|(/", at[-1])) && (!*after || strchr(" \t\n;&|)", *after));
}

static bool has_argument(const char *text, const char *word) {
  for (const char *at = text; (at = strstr(at, word)); at++) {
    if (at > text && strchr(" \t", at[-1]) && is_word(text, at, at + strlen(word)))
      return true;
  }
  return false;
}

static bool says(const char *text, const char *words, const char *argument) {
  for (const char *at = text; (at = strstr(at, words)); at++) {
    const char *after = at + strlen(words);
    if (is_word(text, at, after) && begins_command(text, at) &&
        (!argument || has_argument(after, argument)))
      return true;
  }
  return false;
}

/* Itself, or in a script that it is given (`sh -c`). */
static bool runs(const struct run *run, const char *words, const char *argument) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (word, &run->command) {
    if (strchr(*word, ' ') && says(*word, words, argument))
      return true;
    text_appendf(&text, "%s ", *word);
  }
  return says(text_string(&text), words, argument);
}

#define NO_NETWORK                                                                                 \
  "the command tried to reach a network, and this session has none; if that is why it failed: "    \
  "sandbox run --allow-network=HOST, for each host that it needs"

void run_show_hints(const struct run *run, const struct session_result *result) {
  int status = result->exit_code;
  for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
    if ((!hints[i].status || hints[i].status == status) &&
        runs(run, hints[i].words, hints[i].argument) && hints[i].applies(run))
      cli_warn("%s", hints[i].advice);
  }
  if (result->tried_network)
    cli_warn("%s", NO_NETWORK);
}
