/* How to run: collected here, and turned into words for the command when something is run. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"

sb_options *sb_options_new(void) {
  sb_options *options = xcalloc(1, sizeof *options);
  options->cancel_fd = -1;
  return options;
}

void sb_options_free(sb_options *options) {
  if (!options)
    return;
  strv_clear(&options->words);
  strv_clear(&options->environment);
  free(options->policy);
  free(options->folder);
  free(options->command);
  free(options->input);
  free(options);
}

/* These change what the command says or reads, which is ours to know. */
static bool is_ours(const char *name) {
  static const char *const ours[] = {"json",   "status-fd", "lifeline", "detach",  "command",
                                     "chdir",  "dry-run",   "tty",      "summary", "timing",
                                     "report", "help",      "quiet"};
  for (size_t i = 0; i < ARRAY_SIZE(ours); i++)
    if (strcmp(ours[i], name) == 0)
      return true;
  return false;
}

int sb_options_add(sb_options *options, const char *name, const char *value, sb_error *error) {
  API_ERROR(error);
  if (*name == '\0' || name[strspn(name, "abcdefghijklmnopqrstuvwxyz-")] != '\0' || *name == '-') {
    _cleanup_free_ char *shown = escape_string(name);
    sb_fail(error_, SB_CODE_USAGE, 0, "'%s' is not the name of an option", shown);
    return sb_hint(error_, "write it as 'sandbox run --help' does, without the dashes");
  }
  if (is_ours(name)) {
    sb_fail(error_, SB_CODE_USAGE, 0, "the option '%s' is used by the library itself", name);
    return sb_hint(error_, "see docs/LIBRARY.md for the function that does it");
  }
  strv_take(&options->words, value ? xasprintf("--%s=%s", name, value) : xasprintf("--%s", name));
  return 0;
}

static void replace(char **place, const char *value) {
  free(*place);
  *place = value ? xstrdup(value) : NULL;
}

void sb_options_set_policy(sb_options *options, const char *text) {
  replace(&options->policy, text);
}

void sb_options_set_folder(sb_options *options, const char *folder) {
  replace(&options->folder, folder);
}

void sb_options_set_command(sb_options *options, const char *path) {
  replace(&options->command, path);
}

void sb_options_set_input(sb_options *options, const void *data, size_t length) {
  free(options->input);
  options->input = data ? memcpy(xmalloc(length), data, length) : NULL;
  options->input_length = data ? length : 0;
}

void sb_options_set_environment(sb_options *options, const char *const environment[]) {
  strv_clear(&options->environment);
  options->has_environment = environment != NULL;
  for (; environment && *environment; environment++)
    strv_add(&options->environment, *environment);
}

void sb_options_set_cancel_fd(sb_options *options, int fd) {
  options->cancel_fd = fd;
}

void sb_options_on_event(sb_options *options, sb_event_function *function, void *context) {
  options->on_event = function;
  options->event_context = context;
}
