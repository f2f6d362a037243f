/* Help texts and the verb `help`; see help.h. Everything is made from the tables, so a new verb or
 * option cannot be forgotten here. */
#include "cli/help.h"

#include <string.h>
#include <unistd.h>

#include "cli/parse.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/text.h"

enum { LINE_WIDTH = 80, LEFT_COLUMN = 30 };

/* Fills lines up to the width, breaking at spaces. */
static void append_wrapped(struct text *text, const char *words) {
  size_t column = 0;
  while (*words) {
    size_t length = strcspn(words, " ");
    if (column && column + 1 + length > LINE_WIDTH) {
      text_append_char(text, '\n');
      column = 0;
    }
    if (column)
      text_append_char(text, ' ');
    text_append_bytes(text, words, length);
    column += length + (column != 0);
    words += length;
    words += strspn(words, " ");
  }
  text_append_char(text, '\n');
}

/* "  left        right"; a left side that is too long gets a line of its own. */
static void append_row(struct text *text, const char *left, const char *right) {
  if (strlen(left) + 2 > LEFT_COLUMN)
    text_appendf(text, "%s\n%*s  %s\n", left, LEFT_COLUMN, "", right);
  else
    text_appendf(text, "%-*s  %s\n", LEFT_COLUMN, left, right);
}

static void append_option(struct text *text, const struct option_spec *spec) {
  _cleanup_text_ struct text left = {0};
  if (spec->letter)
    text_appendf(&left, "  -%c, --%s", spec->letter, spec->name);
  else
    text_appendf(&left, "      --%s", spec->name);
  if (spec->argument == ARGUMENT_REQUIRED)
    text_appendf(&left, "=%s", spec->metavar);
  if (spec->argument == ARGUMENT_OPTIONAL)
    text_appendf(&left, "[=%s]", spec->metavar);
  append_row(text, text_string(&left), spec->help);
}

static void append_options(struct text *text, const struct verb *verb) {
  text_append(text, "\nOptions:\n");
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    append_option(text, spec);
}

static void append_usage(struct text *text, const struct verb *verb) {
  text_appendf(text, "Usage: sandbox %s%s%s\n\n", verb->name ? verb->name : "",
               verb->name ? " " : "", verb->synopsis);
}

static void append_verbs(struct text *text) {
  text_append(text, "Verbs:\n");
  for (const struct verb *const *verb = verbs; *verb; verb++)
    if (!(*verb)->hidden)
      text_appendf(text, "  %-10s %s\n", (*verb)->name, (*verb)->summary);
}

int help_no_verb(void) {
  _cleanup_text_ struct text text = {0};
  append_usage(&text, &command_verb);
  append_verbs(&text);
  text_append(&text, "\nTry 'sandbox run COMMAND', or 'sandbox help VERB'.\n");
  (void)file_write_all(STDERR_FILENO, text_string(&text), text.length);
  return EXIT_CODE_FAILURE;
}

int help_command(void) {
  _cleanup_text_ struct text text = {0};
  append_usage(&text, &command_verb);
  append_wrapped(&text, command_verb.description);
  text_append_char(&text, '\n');
  append_verbs(&text);
  append_options(&text, &command_verb);
  text_append(&text, "\n'sandbox help VERB' or 'man sandbox-VERB' tells more about a verb.\n");
  return cli_print(text_string(&text));
}

int help_version(void) {
  return cli_print("sandbox " SANDBOX_VERSION "\n");
}

int help_for_verb(const struct verb *verb) {
  _cleanup_text_ struct text text = {0};
  append_usage(&text, verb);
  append_wrapped(&text, verb->description ? verb->description : verb->summary);
  append_options(&text, verb);
  return cli_print(text_string(&text));
}

static int help_main(const struct invocation *invocation) {
  if (invocation->operand_count == 0)
    return help_command();
  _cleanup_error_ struct sb_error error = {0};
  const struct verb *verb;
  if (cli_find_verb(verbs, invocation->operands[0], &verb, &error) < 0)
    return cli_report(&error);
  return help_for_verb(verb);
}

const struct verb help_verb = {
    .name = "help",
    .synopsis = "[VERB]",
    .summary = "explain a verb and its options",
    .operand_completion = COMPLETE_VERB,
    .run = help_main,
};
