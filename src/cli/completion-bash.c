/* The completion script for bash: three generated tables and a driver that walks the words. It
 * needs nothing of the bash-completion package, and uses it for the command's own arguments. */
#include "cli/completion.h"

static const char *const kind_names[] = {
    [COMPLETE_NONE] = "none",   [COMPLETE_PATH] = "path",       [COMPLETE_FOLDER] = "folder",
    [COMPLETE_WORDS] = "words", [COMPLETE_COMMAND] = "command", [COMPLETE_SESSION] = "session",
    [COMPLETE_VERB] = "verb",
};

static void append_option_names(struct text *text, const struct verb *verb) {
  text_appendf(text, "    %s) words='", verb->name ? verb->name : "''");
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++) {
    text_appendf(text, "%s--%s", i ? " " : "", spec->name);
    if (spec->letter)
      text_appendf(text, " -%c", spec->letter);
  }
  text_append(text, "' ;;\n");
}

/* "run --chdir" | "run -C") takes=required kind=folder ;; */
static void append_value(struct text *text, const struct verb *verb,
                         const struct option_spec *spec) {
  if (spec->argument == ARGUMENT_NONE)
    return;
  text_appendf(text, "    '%s --%s'", verb->name, spec->name);
  if (spec->letter)
    text_appendf(text, " | '%s -%c'", verb->name, spec->letter);
  text_appendf(text, ") takes=%s kind=%s",
               spec->argument == ARGUMENT_REQUIRED ? "required" : "optional",
               kind_names[spec->completion]);
  if (spec->words) {
    text_append(text, " words=");
    completion_append_word(text, spec->words);
  }
  text_append(text, " ;;\n");
}

static void append_values(struct text *text, const struct verb *verb) {
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    append_value(text, verb, spec);
}

static void append_operand(struct text *text, const struct verb *verb) {
  text_appendf(text, "    %s) kind=%s stops=%s", verb->name, kind_names[verb->operand_completion],
               verb->stop_at_operand ? "yes" : "''");
  if (verb->operand_words) {
    text_append(text, " words=");
    completion_append_word(text, verb->operand_words);
  }
  text_append(text, " ;;\n");
}

/* One case per verb; the options before the verb are those of an empty name. */
static void append_case(struct text *text, const char *function,
                        void (*append)(struct text *, const struct verb *)) {
  text_appendf(text, "%s() {\n  case $1 in\n", function);
  for (const struct verb *const *verb = verbs; *verb; verb++)
    if (!(*verb)->hidden)
      append(text, *verb);
  if (append == append_option_names)
    append(text, &command_verb);
  text_append(text, "  esac\n}\n\n");
}

/* bash splits --mode=static into three words when '=' is in COMP_WORDBREAKS, as it is by default;
 * where it is not, the value arrives joined. Both are handled. */
static const char driver[] =
    "# Walks the words before the cursor. Sets verb, pending (the option whose value comes next),\n"
    "# operand (the index of the first operand) and over (no more options).\n"
    "_sandbox_walk() {\n"
    "  local i word previous takes kind words stops\n"
    "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
    "    word=${COMP_WORDS[i]} takes='' stops=''\n"
    "    if [[ $over ]]; then\n"
    "      operand=${operand:-$i}\n"
    "    elif [[ $word == '=' ]]; then\n"
    "      pending=$previous\n"
    "    elif [[ $pending ]]; then\n"
    "      pending=''\n"
    "    elif [[ $word == -- ]]; then\n"
    "      over=yes\n"
    "    elif [[ $word == -* ]]; then\n"
    "      _sandbox_value \"$verb $word\"\n"
    "      [[ $takes == required ]] && pending=$word\n"
    "    elif [[ ! $verb ]]; then\n"
    "      verb=$word\n"
    "    else\n"
    "      operand=${operand:-$i}\n"
    "      _sandbox_operand \"$verb\"\n"
    "      over=$stops\n"
    "    fi\n"
    "    previous=$word\n"
    "  done\n"
    "}\n"
    "\n"
    "# Sets COMPREPLY to what compgen finds for $current.\n"
    "_sandbox_offer() {\n"
    "  mapfile -t COMPREPLY < <(compgen \"$@\" -- \"$current\")\n"
    "}\n"
    "\n"
    "_sandbox_offer_files() {\n"
    "  compopt -o filenames 2> /dev/null\n"
    "  _sandbox_offer \"$1\"\n"
    "}\n"
    "\n"
    "# The command to run, or the words after it: those are the command's own business.\n"
    "_sandbox_offer_command() {\n"
    "  if [[ $operand ]] && declare -F _command_offset > /dev/null; then\n"
    "    _command_offset \"$operand\"\n"
    "  elif [[ $operand || $current == */* ]]; then\n"
    "    _sandbox_offer_files -f\n"
    "  else\n"
    "    _sandbox_offer -c\n"
    "  fi\n"
    "}\n"
    "\n"
    "_sandbox() {\n"
    "  local current=${COMP_WORDS[COMP_CWORD]} prefix=''\n"
    "  local verb='' pending='' operand='' over='' takes='' kind=none words='' stops=''\n"
    "  COMPREPLY=()\n"
    "  _sandbox_walk\n"
    "  if [[ $current == '=' && ! $over ]]; then\n"
    "    pending=${COMP_WORDS[COMP_CWORD - 1]} current=''\n"
    "  elif [[ $current == --*=* && ! $over ]]; then\n"
    "    pending=${current%%=*} prefix=${current%%=*}= current=${current#*=}\n"
    "  fi\n"
    "  if [[ $pending ]]; then\n"
    "    _sandbox_value \"$verb $pending\"\n"
    "  elif [[ $current == -* && ! $over ]]; then\n"
    "    kind=words\n"
    "    _sandbox_options \"$verb\"\n"
    "  elif [[ ! $verb ]]; then\n"
    "    kind=verb\n"
    "  else\n"
    "    _sandbox_operand \"$verb\"\n"
    "  fi\n"
    "  case $kind in\n"
    "    path) _sandbox_offer_files -f ;;\n"
    "    folder) _sandbox_offer_files -d ;;\n"
    "    words) _sandbox_offer -W \"$words\" ;;\n"
    "    command) _sandbox_offer_command ;;\n"
    "    session) _sandbox_offer -W \"$(command sandbox __complete sessions 2> /dev/null)\" ;;\n"
    "    verb) _sandbox_offer -W \"$_sandbox_verbs\" ;;\n"
    "  esac\n"
    "  COMPREPLY=(\"${COMPREPLY[@]/#/$prefix}\")\n"
    "}\n"
    "\n"
    "complete -F _sandbox sandbox\n";

void completion_bash(struct text *text) {
  text_append(text, "# bash completion for sandbox; generated, do not edit.\n"
                    "# shellcheck shell=bash disable=SC2034\n\n_sandbox_verbs='");
  completion_append_verbs(text);
  text_append(text, "'\n\n");
  append_case(text, "_sandbox_options", append_option_names);
  append_case(text, "_sandbox_value", append_values);
  append_case(text, "_sandbox_operand", append_operand);
  text_append(text, driver);
}
