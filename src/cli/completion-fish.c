/* The completion script for fish: one `complete` line per verb, option and kind of operand. */
#include "cli/completion.h"

/* What follows `complete ...` so that the right things are offered as a value. */
static const char *const value_flags[] = {
    [COMPLETE_NONE] = "-x",
    [COMPLETE_PATH] = "-r -F",
    [COMPLETE_FOLDER] = "-x -a '(__fish_complete_directories)'",
    [COMPLETE_WORDS] = "-x -a",
    [COMPLETE_COMMAND] = "-x -a '(__fish_complete_command)'",
    [COMPLETE_SESSION] = "-x -a '(command sandbox __complete sessions 2> /dev/null)'",
    [COMPLETE_VERB] = "-x -a",
};

static void append_line(struct text *text, const struct verb *verb) {
  if (verb->name)
    text_appendf(text, "complete -c sandbox -n '__fish_seen_subcommand_from %s'", verb->name);
  else
    text_append(text, "complete -c sandbox -n __fish_use_subcommand");
}

static void append_words(struct text *text, enum completion completion, const char *words) {
  _cleanup_text_ struct text list = {0};
  if (completion == COMPLETE_VERB)
    completion_append_verbs(&list);
  else if (words)
    text_append(&list, words);
  else
    return;
  text_append_char(text, ' ');
  completion_append_word(text, text_string(&list));
}

static void append_option(struct text *text, const struct verb *verb,
                          const struct option_spec *spec) {
  append_line(text, verb);
  text_appendf(text, " -l %s", spec->name);
  if (spec->letter)
    text_appendf(text, " -s %c", spec->letter);
  if (spec->argument == ARGUMENT_REQUIRED) {
    text_appendf(text, " %s", value_flags[spec->completion]);
    append_words(text, spec->completion, spec->words);
  }
  text_append(text, " -d ");
  completion_append_word(text, spec->help);
  text_append_char(text, '\n');
}

/* fish completes the command as if it were typed alone, once it knows which of our options take
 * the word after them. */
static void append_wrapped_command(struct text *text, const struct verb *verb) {
  append_line(text, verb);
  text_append(text, " -x -a '(__fish_complete_subcommand --fcs-skip=2 --");
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++) {
    if (spec->argument != ARGUMENT_REQUIRED)
      continue;
    text_appendf(text, " --%s", spec->name);
    if (spec->letter)
      text_appendf(text, " -%c", spec->letter);
  }
  text_append(text, ")'\n");
}

static void append_operand(struct text *text, const struct verb *verb) {
  if (verb->operand_completion == COMPLETE_NONE)
    return;
  if (verb->operand_completion == COMPLETE_COMMAND) {
    append_wrapped_command(text, verb);
    return;
  }
  append_line(text, verb);
  text_appendf(text, " %s", value_flags[verb->operand_completion]);
  append_words(text, verb->operand_completion, verb->operand_words);
  text_append_char(text, '\n');
}

static void append_options(struct text *text, const struct verb *verb) {
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    append_option(text, verb, spec);
}

static void append_verb(struct text *text, const struct verb *verb) {
  text_append_char(text, '\n');
  append_line(text, &command_verb);
  text_appendf(text, " -a %s -d ", verb->name);
  completion_append_word(text, verb->summary);
  text_append_char(text, '\n');
  append_options(text, verb);
  append_operand(text, verb);
}

void completion_fish(struct text *text) {
  text_append(text, "# fish completion for sandbox; generated, do not edit.\n\n"
                    "complete -c sandbox -f\n");
  append_options(text, &command_verb);
  for (const struct verb *const *verb = verbs; *verb; verb++)
    if (!(*verb)->hidden)
      append_verb(text, *verb);
}
