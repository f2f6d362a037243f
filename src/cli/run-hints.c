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

static const struct {
  const char *words;
  bool (*applies)(const struct run *run);
  const char *advice;
} hints[] = {
    {"git init", reserves_repository,
     "the project is no repository, and the name '.git' is reserved; to let the command make one: "
     "sandbox run --unprotect .git"},
    {"docker", lacks_docker,
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

static bool says(const char *text, const char *words) {
  for (const char *at = text; (at = strstr(at, words)); at++) {
    const char *after = at + strlen(words);
    bool is_word =
        (at == text || strchr(" \t\n;&|(/", at[-1])) && (!*after || strchr(" \t\n;&|)", *after));
    if (is_word && begins_command(text, at))
      return true;
  }
  return false;
}

/* Itself, or in a script that it is given (`sh -c`). */
static bool runs(const struct run *run, const char *words) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (word, &run->command) {
    if (strchr(*word, ' ') && says(*word, words))
      return true;
    text_appendf(&text, "%s ", *word);
  }
  return says(text_string(&text), words);
}

void run_show_hints(const struct run *run) {
  for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
    if (runs(run, hints[i].words) && hints[i].applies(run))
      cli_warn("%s", hints[i].advice);
  }
}
