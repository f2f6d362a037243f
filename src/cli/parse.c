/* Option parsing from the tables; see parse.h. Nothing is guessed: no abbreviations, no reordering
 * past the first operand of `run`, and an option never swallows the option after it. */
#include "cli/parse.h"

#include <stdlib.h>
#include <string.h>

#include "cli/values.h"
#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/suggest.h"

static const struct option_spec help_option = {
    .id = OPTION_HELP, .name = "help", .letter = 'h', .help = "show this help and exit"};

const struct option_spec *verb_option(const struct verb *verb, size_t index) {
  size_t count = 0;
  while (verb->options && verb->options[count].name)
    count++;
  if (index < count)
    return &verb->options[index];
  return index == count ? &help_option : NULL;
}

static const struct option_spec *find_long(const struct verb *verb, const char *name,
                                           size_t length) {
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    if (strlen(spec->name) == length && strncmp(spec->name, name, length) == 0)
      return spec;
  return NULL;
}

static const struct option_spec *find_letter(const struct verb *verb, char letter) {
  const struct option_spec *spec;
  for (size_t i = 0; (spec = verb_option(verb, i)); i++)
    if (spec->letter && spec->letter == letter)
      return spec;
  return NULL;
}

/* "sandbox run", or "sandbox" for the words before the verb. */
static char *command_name(const struct verb *verb) {
  return verb->name ? xasprintf("sandbox %s", verb->name) : xstrdup("sandbox");
}

static int hint_help(const struct verb *verb, struct sb_error *error) {
  _cleanup_free_ char *command = command_name(verb);
  return sb_hint(error, "see '%s --help'", command);
}

static int refuse_long(const struct verb *verb, const char *name, size_t length,
                       struct sb_error *error) {
  const char **names = NULL;
  size_t count = 0;
  const struct option_spec *spec;
  for (; (spec = verb_option(verb, count)); count++) {
    ARRAY_GROW(names, count);
    names[count] = spec->name;
  }
  _cleanup_free_ char *word = xstrndup(name, length);
  _cleanup_free_ char *shown = escape_string(word);
  const char *nearest = suggest_nearest(word, names, count);
  free(names);

  sb_fail(error, SB_CODE_USAGE, 0, "unknown option '--%s'", shown);
  if (nearest)
    return sb_hint(error, "did you mean '--%s'?", nearest);
  return hint_help(verb, error);
}

static int refuse_letter(const struct verb *verb, char letter, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string((char[]){letter, '\0'});
  sb_fail(error, SB_CODE_USAGE, 0, "unknown option '-%s'", shown);
  return hint_help(verb, error);
}

static int refuse_missing(const struct option_spec *spec, struct sb_error *error) {
  sb_fail(error, SB_CODE_USAGE, 0, "option '--%s' needs a value", spec->name);
  if (spec->words)
    return sb_hint(error, "--%s takes one of: %s", spec->name, spec->words);
  return sb_hint(error, "write --%s=%s", spec->name, spec->metavar);
}

static int refuse_extra(const struct option_spec *spec, const char *value, struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(value);
  sb_fail(error, SB_CODE_USAGE, 0, "option '--%s' takes no value, but '%s' was given", spec->name,
          shown);
  return sb_hint(error, "write --%s", spec->name);
}

/* A list like "auto always never" as separate strings. */
static size_t split_words(const char *words, char *buffer, const char **list, size_t capacity) {
  size_t count = 0;
  strcpy(buffer, words);
  char *rest = buffer;
  for (char *word; count < capacity && (word = strsep(&rest, " "));)
    list[count++] = word;
  return count;
}

static int check_word(const struct option_spec *spec, const char *value, struct sb_error *error) {
  if (spec->completion != COMPLETE_WORDS || value_word(spec->words, value) >= 0)
    return 0;
  const char *list[32];
  _cleanup_free_ char *buffer = xmalloc(strlen(spec->words) + 1);
  size_t count = split_words(spec->words, buffer, list, ARRAY_SIZE(list));
  const char *nearest = suggest_nearest(value, list, count);

  _cleanup_free_ char *shown = escape_string(value);
  sb_fail(error, SB_CODE_USAGE, 0, "'%s' is not a value of --%s: it takes one of: %s", shown,
          spec->name, spec->words);
  return sb_hint(error, nearest ? "did you mean --%s=%s?" : "for example --%s=%s", spec->name,
                 nearest ? nearest : list[0]);
}

static int add_option(struct invocation *invocation, const struct option_spec *spec,
                      const char *value, struct sb_error *error) {
  if (value && check_word(spec, value, error) < 0)
    return -1;
  ARRAY_GROW(invocation->options, invocation->option_count);
  invocation->options[invocation->option_count++] = (struct given_option){spec, value};
  return 0;
}

/* Takes the value from the next word. One that looks like an option is far more likely a forgotten
 * value, and `--rw -- command` must not make "--" writable: those need the form with '='. */
static const char *take_value(char ***cursor) {
  char *next = (*cursor)[1];
  if (!next || strncmp(next, "--", 2) == 0)
    return NULL;
  (*cursor)++;
  return next;
}

static int parse_long(struct invocation *invocation, char ***cursor, struct sb_error *error) {
  const char *name = **cursor + 2, *equals = strchr(name, '=');
  size_t length = equals ? (size_t)(equals - name) : strlen(name);
  const struct option_spec *spec = find_long(invocation->verb, name, length);
  if (!spec)
    return refuse_long(invocation->verb, name, length, error);

  const char *value = equals ? equals + 1 : NULL;
  if (value && spec->argument == ARGUMENT_NONE)
    return refuse_extra(spec, value, error);
  if (!value && spec->argument == ARGUMENT_REQUIRED)
    value = take_value(cursor);
  /* An empty value is never meant: it comes from an unset variable in a script. */
  bool wants_value = spec->argument == ARGUMENT_REQUIRED || equals;
  if (wants_value && (!value || !*value))
    return refuse_missing(spec, error);
  return add_option(invocation, spec, value, error);
}

/* "-qC DIR", "-qCDIR": flags may be joined, the last one may take the rest as its value. */
static int parse_letters(struct invocation *invocation, char ***cursor, struct sb_error *error) {
  for (const char *letter = **cursor + 1; *letter; letter++) {
    const struct option_spec *spec = find_letter(invocation->verb, *letter);
    if (!spec)
      return refuse_letter(invocation->verb, *letter, error);
    if (spec->argument != ARGUMENT_REQUIRED) {
      if (add_option(invocation, spec, NULL, error) < 0)
        return -1;
      continue;
    }
    const char *value = letter[1] ? letter + 1 : take_value(cursor);
    return value && *value ? add_option(invocation, spec, value, error)
                           : refuse_missing(spec, error);
  }
  return 0;
}

static void add_operand(struct invocation *invocation, char *operand) {
  invocation->operands[invocation->operand_count++] = operand;
  invocation->operands[invocation->operand_count] = NULL;
}

/* One word, or two if an option takes the next one; *ret_done after the last option. */
static int parse_one(struct invocation *invocation, char ***cursor, bool *ret_done,
                     struct sb_error *error) {
  char *word = **cursor;
  if (strcmp(word, "--") == 0) {
    *ret_done = true;
    return 0;
  }
  if (strncmp(word, "--", 2) == 0)
    return parse_long(invocation, cursor, error);
  if (word[0] == '-' && word[1])
    return parse_letters(invocation, cursor, error);
  add_operand(invocation, word);
  *ret_done = invocation->verb->stop_at_operand;
  return 0;
}

static size_t count_words(char *const *arguments) {
  size_t count = 0;
  while (arguments[count])
    count++;
  return count;
}

int cli_parse(const struct verb *verb, char **arguments, struct invocation *ret_invocation,
              struct sb_error *error) {
  struct invocation invocation = {.verb = verb};
  invocation.operands = xcalloc(count_words(arguments) + 1, sizeof *invocation.operands);

  bool done = false;
  char **cursor = arguments;
  for (; *cursor && !done; cursor++)
    if (parse_one(&invocation, &cursor, &done, error) < 0) {
      invocation_clear(&invocation);
      return -1;
    }
  for (; *cursor; cursor++)
    add_operand(&invocation, *cursor);
  *ret_invocation = invocation;
  return 0;
}

void invocation_clear(struct invocation *invocation) {
  free(invocation->options);
  free(invocation->operands);
  *invocation = (struct invocation){0};
}

static const struct given_option *last_given(const struct invocation *invocation, int id) {
  for (size_t i = invocation->option_count; i-- > 0;)
    if (invocation->options[i].spec->id == id)
      return &invocation->options[i];
  return NULL;
}

bool invocation_has(const struct invocation *invocation, int id) {
  return last_given(invocation, id) != NULL;
}

const char *invocation_value(const struct invocation *invocation, int id) {
  const struct given_option *given = last_given(invocation, id);
  return given ? given->value : NULL;
}

bool cli_wants_json(const struct verb *verb, char *const *arguments) {
  if (!find_long(verb, "json", strlen("json")))
    return false;
  for (; *arguments && strcmp(*arguments, "--") != 0; arguments++)
    if (strcmp(*arguments, "--json") == 0)
      return true;
  return false;
}

static int refuse_verb(const struct verb *const *table, const char *name, struct sb_error *error) {
  const char **names = NULL;
  size_t count = 0;
  for (; table[count]; count++) {
    ARRAY_GROW(names, count);
    names[count] = table[count]->hidden ? NULL : table[count]->name;
  }
  const char *nearest = suggest_nearest(name, names, count);
  free(names);

  _cleanup_free_ char *shown = escape_string(name);
  _cleanup_free_ char *quoted = escape_shell_word(name);
  sb_fail(error, SB_CODE_USAGE, 0, "unknown verb '%s'", shown);
  if (nearest)
    return sb_hint(error, "did you mean 'sandbox %s'?", nearest);
  return sb_hint(error, "to run a command, write: sandbox run %s", quoted);
}

int cli_find_verb(const struct verb *const *table, const char *name, const struct verb **ret_verb,
                  struct sb_error *error) {
  for (size_t i = 0; table[i]; i++)
    if (strcmp(table[i]->name, name) == 0) {
      *ret_verb = table[i];
      return 0;
    }
  return refuse_verb(table, name, error);
}
