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

static bool is_between_words(char character) {
  return character == '\0' || strchr(" \t\n;&|()/", character);
}

static bool says(const char *text, const char *words) {
  for (const char *at = text; (at = strstr(at, words)); at++) {
    if ((at == text || is_between_words(at[-1])) && is_between_words(at[strlen(words)]))
      return true;
  }
  return false;
}

void run_show_hints(const struct run *run) {
  _cleanup_text_ struct text text = {0};
  STRV_FOREACH (word, &run->command)
    text_appendf(&text, "%s ", *word);
  for (size_t i = 0; i < ARRAY_SIZE(hints); i++) {
    if (says(text_string(&text), hints[i].words) && hints[i].applies(run))
      cli_warn("%s", hints[i].advice);
  }
}
