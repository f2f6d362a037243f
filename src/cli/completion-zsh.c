/* The completion script for zsh: _arguments specifications, one block per verb. */
#include "cli/completion.h"

#include <string.h>

static const char *const actions[] = {
    [COMPLETE_NONE] = " ",
    [COMPLETE_PATH] = "_files",
    [COMPLETE_FOLDER] = "_files -/",
    [COMPLETE_WORDS] = NULL,
    [COMPLETE_COMMAND] = "_command_names -e",
    [COMPLETE_SESSION] = "_sandbox_sessions",
    [COMPLETE_VERB] = "_sandbox_verbs",
};

/* In a specification, ':' ends a field and ']' the explanation. */
static void append_field(struct text *text, const char *string) {
  for (; *string; string++) {
    if (strchr(":[]\\", *string))
      text_append_char(text, '\\');
    text_append_char(text, *string);
  }
}

static void append_action(struct text *text, enum completion completion, const char *words) {
  if (words)
    text_appendf(text, "(%s)", words);
  else
    text_append(text, actions[completion]);
}

/* "[help]:PATH:_files" */
static void append_tail(struct text *text, const struct option_spec *spec) {
  text_append_char(text, '[');
  append_field(text, spec->help);
  text_append_char(text, ']');
  if (spec->argument == ARGUMENT_NONE)
    return;
  text_append(text, spec->argument == ARGUMENT_OPTIONAL ? "::" : ":");
  append_field(text, spec->metavar);
  text_append_char(text, ':');
  append_action(text, spec->completion, spec->words);
}

/* One specification per spelling; the suffix says where the value may stand. */
static void append_spelling(struct text *text, const struct option_spec *spec, const char *dashes,
                            const char *name, const char *const suffixes[]) {
  _cleanup_text_ struct text specification = {0};
  text_appendf(&specification, "*%s%s%s", dashes, name, suffixes[spec->argument]);
  append_tail(&specification, spec);
  text_append(text, "        ");
  completion_append_word(text, text_string(&specification));
  text_append(text, " \\\n");
}

static void append_option(struct text *text, const struct option_spec *spec) {
  static const char *const long_suffixes[] = {
      [ARGUMENT_NONE] = "", [ARGUMENT_REQUIRED] = "=", [ARGUMENT_OPTIONAL] = "=-"};
  static const char *const short_suffixes[] = {
      [ARGUMENT_NONE] = "", [ARGUMENT_REQUIRED] = "+", [ARGUMENT_OPTIONAL] = ""};
  append_spelling(text, spec, "--", spec->name, long_suffixes);
  if (spec->letter)
    append_spelling(text, spec, "-", (char[]){spec->letter, '\0'}, short_suffixes);
}

static void append_operands(struct text *text, const struct verb *verb) {
  _cleanup_text_ struct text operand = {0};
  text_append(&operand, verb->stop_at_operand ? "(-)1:operand:" : "*:operand:");
  append_action(&operand, verb->operand_completion, verb->operand_words);
  text_append(text, "        ");
  completion_append_word(text, text_string(&operand));
  if (verb->stop_at_operand)
    text_append(text, " \\\n        '*::argument:_normal'");
  text_append(text, " ;;\n");
}

static void append_options(struct text *text, const struct verb *verb) {
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    append_option(text, spec);
}

static void append_verb(struct text *text, const struct verb *verb) {
  text_appendf(text, "    %s)\n      _arguments -S \\\n", verb->name);
  append_options(text, verb);
  append_operands(text, verb);
}

/* 'run:run a command in a sandbox' */
static void append_description(struct text *text, const struct verb *verb) {
  _cleanup_text_ struct text row = {0};
  text_appendf(&row, "%s:%s", verb->name, verb->summary);
  text_append(text, "    ");
  completion_append_word(text, text_string(&row));
  text_append_char(text, '\n');
}

static void append_each(struct text *text, const char *head,
                        void (*append)(struct text *, const struct verb *), const char *tail) {
  text_append(text, head);
  for (const struct verb *const *verb = verbs; *verb; verb++)
    if (!(*verb)->hidden)
      append(text, *verb);
  text_append(text, tail);
}

void completion_zsh(struct text *text) {
  text_append(text, "#compdef sandbox\n"
                    "# zsh completion for sandbox; generated, do not edit.\n\n"
                    "_sandbox_sessions() {\n"
                    "  local -a sessions\n"
                    "  sessions=(${(f)\"$(command sandbox __complete sessions 2> /dev/null)\"})\n"
                    "  compadd -a sessions\n"
                    "}\n\n");
  append_each(text, "_sandbox_verbs() {\n  local -a rows\n  rows=(\n", append_description,
              "  )\n  _describe verb rows\n}\n\n");
  text_append(text, "_sandbox() {\n"
                    "  local context state state_descr line\n"
                    "  typeset -A opt_args\n"
                    "  _arguments -C \\\n");
  append_options(text, &command_verb);
  append_each(text,
              "        '1:verb:_sandbox_verbs' '*::argument:->arguments'\n"
              "  [[ $state == arguments ]] || return\n"
              "  case $line[1] in\n",
              append_verb,
              "  esac\n}\n\n"
              "if [[ $funcstack[1] == _sandbox ]]; then\n"
              "  _sandbox \"$@\"\n"
              "else\n"
              "  compdef _sandbox sandbox\n"
              "fi\n");
}
