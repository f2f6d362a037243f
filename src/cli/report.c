/* How the command talks: prose on stderr for people, JSON on stdout on request. Must never print a
 * byte that a workload chose and nobody escaped; errors come here already escaped. */
#include "cli/cli.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"

#define RED    "\033[1;31m"
#define YELLOW "\033[1;33m"
#define BOLD   "\033[1m"
#define PLAIN  "\033[0m"

/* The convention of no-color.org: set and not empty means no colour. */
static bool use_colour(void) {
  const char *no_colour = getenv("NO_COLOR"), *terminal = getenv("TERM");
  if ((no_colour && *no_colour) || !terminal || strcmp(terminal, "dumb") == 0)
    return false;
  return isatty(STDERR_FILENO);
}

static void append_label(struct text *text, const char *colour, const char *label) {
  if (use_colour())
    text_appendf(text, "%s%s" PLAIN " ", colour, label);
  else
    text_appendf(text, "%s ", label);
}

/* One write, so that lines of several processes do not mix. A closed stderr is no reason to stop.
 */
static void write_stderr(const struct text *text) {
  (void)file_write_all(STDERR_FILENO, text_string(text), text->length);
}

int cli_report(const struct sb_error *error) {
  _cleanup_text_ struct text text = {0};
  append_label(&text, RED, "sandbox:");
  text_appendf(&text, "%s\n", error->message ? error->message : "failed");
  if (error->hint) {
    append_label(&text, BOLD, "  fix:");
    text_appendf(&text, "%s\n", error->hint);
  }
  write_stderr(&text);
  return EXIT_CODE_FAILURE;
}

int cli_report_json(const struct sb_error *error) {
  json_t *details = json_object(), *object = json_object();
  json_set_string(details, "code", sb_code_name(error->code));
  json_set_string(details, "message", error->message);
  json_set_string(details, "hint", error->hint);
  json_object_set_new(object, "error", details);
  _cleanup_free_ char *line = json_line(object);
  json_decref(object);
  (void)cli_print(line);
  return EXIT_CODE_FAILURE;
}

int cli_report_for(const struct invocation *invocation, const struct sb_error *error) {
  for (size_t i = 0; i < invocation->option_count; i++)
    if (strcmp(invocation->options[i].spec->name, "json") == 0)
      return cli_report_json(error);
  return cli_report(error);
}

void cli_warn(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  _cleanup_free_ char *message = xvasprintf(format, arguments);
  va_end(arguments);

  _cleanup_text_ struct text text = {0};
  append_label(&text, YELLOW, "sandbox: warning:");
  text_appendf(&text, "%s\n", message);
  write_stderr(&text);
}

int cli_print(const char *text) {
  int result = file_write_all(STDOUT_FILENO, text, strlen(text));
  if (result == 0)
    return 0;
  _cleanup_error_ struct sb_error error = {0};
  sb_fail(&error, SB_CODE_SYSTEM, -result, "cannot write to standard output");
  return cli_report(&error);
}
