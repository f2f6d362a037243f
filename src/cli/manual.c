/* The hidden verb `__manual [VERB]`: prints the scdoc source of a man page, made from the tables
 * and followed by hand-written sections. Only the build runs it. */
#include <fcntl.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/parse.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/text.h"

enum { MANUAL_PROSE };
enum { PROSE_LIMIT = 1 << 20 };

static const struct option_spec manual_options[] = {
    {MANUAL_PROSE, "prose", 0, ARGUMENT_REQUIRED, "FILE", "sections to put at the end",
     COMPLETE_PATH},
    {0},
};

/* scdoc formats at '*' and '_' and takes '\' as its escape. */
static void append_escaped(struct text *text, const char *string) {
  for (; *string; string++) {
    if (strchr("*_\\", *string))
      text_append_char(text, '\\');
    text_append_char(text, *string);
  }
}

/* " One of: *auto*, *always*, *never*." */
static void append_words(struct text *text, const char *words) {
  if (!words)
    return;
  text_append(text, " One of: *");
  for (; *words; words++)
    *words == ' ' ? text_append(text, "*, *") : text_append_char(text, *words);
  text_append(text, "*.");
}

static void append_option(struct text *text, const struct option_spec *spec) {
  if (spec->letter)
    text_appendf(text, "*-%c*, ", spec->letter);
  text_appendf(text, "*--%s*", spec->name);
  if (spec->argument != ARGUMENT_NONE) {
    text_append(text, spec->argument == ARGUMENT_OPTIONAL ? "[=_" : "=_");
    append_escaped(text, spec->metavar);
    text_append(text, spec->argument == ARGUMENT_OPTIONAL ? "_]" : "_");
  }
  text_append(text, "\n\t");
  append_escaped(text, spec->help);
  text_append_char(text, '.');
  append_words(text, spec->words);
  text_append(text, "\n\n");
}

static void append_options(struct text *text, const struct verb *verb) {
  text_append(text, "# OPTIONS\n\n");
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    append_option(text, spec);
}

static void append_verbs(struct text *text) {
  text_append(text, "# VERBS\n\n");
  for (const struct verb *const *verb = verbs; *verb; verb++) {
    if ((*verb)->hidden)
      continue;
    text_appendf(text, "*%s* ", (*verb)->name);
    append_escaped(text, (*verb)->synopsis);
    text_append(text, "\n\t");
    append_escaped(text, (*verb)->summary);
    text_append(text, ".\n\n");
  }
}

/* The page of a verb, or of the command itself if the verb has no name. */
static void append_page(struct text *text, const struct verb *verb) {
  const char *name = verb->name ? verb->name : "";
  const char *dash = verb->name ? "-" : "", *space = verb->name ? " " : "";
  text_appendf(text, "sandbox%s%s(1) \"sandbox " SANDBOX_VERSION "\"\n\n", dash, name);
  text_appendf(text, "# NAME\n\nsandbox%s%s - ", dash, name);
  append_escaped(text, verb->summary);
  text_appendf(text, "\n\n# SYNOPSIS\n\n*sandbox%s%s* ", space, name);
  append_escaped(text, verb->synopsis);
  text_append(text, "\n\n# DESCRIPTION\n\n");
  append_escaped(text, verb->description ? verb->description : verb->summary);
  text_append(text, "\n\n");
  if (!verb->name)
    append_verbs(text);
  append_options(text, verb);
}

static int append_prose(struct text *text, const char *file, struct sb_error *error) {
  _cleanup_free_ char *prose = NULL;
  size_t length;
  int result = file_read_at(AT_FDCWD, file, PROSE_LIMIT, &prose, &length);
  if (result < 0)
    return sb_fail(error, SB_CODE_SYSTEM, -result, "cannot read %s", file);
  text_append_bytes(text, prose, length);
  return 0;
}

static int manual_page(const struct invocation *invocation, struct text *text,
                       struct sb_error *error) {
  const char *prose = invocation_value(invocation, MANUAL_PROSE);
  const struct verb *verb = &command_verb;
  if (invocation->operand_count && cli_find_verb(verbs, invocation->operands[0], &verb, error) < 0)
    return -1;
  append_page(text, verb);
  return prose ? append_prose(text, prose, error) : 0;
}

static int manual_main(const struct invocation *invocation) {
  _cleanup_error_ struct sb_error error = {0};
  _cleanup_text_ struct text text = {0};
  if (manual_page(invocation, &text, &error) < 0)
    return cli_report(&error);
  return cli_print(text_string(&text));
}

const struct verb manual_verb = {
    .name = "__manual",
    .synopsis = "[--prose FILE] [VERB]",
    .summary = "print the source of a man page",
    .options = manual_options,
    .run = manual_main,
    .hidden = true,
};
