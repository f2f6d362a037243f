/* See shell.h. Every character that could mean something else to a shell is a doubt; there is no
 * attempt to be clever, for the answer decides whether something runs without a sandbox. */
#include "core/shell.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/text.h"

struct splitter {
  const char *at;
  struct shell_script *script;
  struct strv words; /* of the command so far */
};

/* ---- characters that are never understood ---- */

static const char *doubtful_everywhere(char byte) {
  switch (byte) {
  case '$':
    return "a variable or substitution ($)";
  case '`':
    return "a substitution (`)";
  case '\r':
  case '\v':
  case '\f':
    return "a control character";
  default:
    return NULL;
  }
}

static const char *doubtful_plain(char byte) {
  switch (byte) {
  case '(':
  case ')':
    return "a subshell or function";
  case '{':
  case '}':
    return "a group or brace expansion";
  case '*':
  case '?':
  case '[':
  case ']':
    return "a pattern that the shell expands";
  case '!':
    return "a negation or history expansion";
  case '<':
  case '>':
    return "a redirection";
  case '#':
    return "a comment";
  case '~':
    return "a home folder that the shell expands";
  default:
    return doubtful_everywhere(byte);
  }
}

/* Each returns NULL, or what is not understood. */

static const char *take_single_quoted(struct splitter *splitter, struct text *word) {
  const char *end = strchr(splitter->at + 1, '\'');
  if (!end)
    return "a quote that does not end";
  text_append_bytes(word, splitter->at + 1, (size_t)(end - splitter->at - 1));
  splitter->at = end + 1;
  return NULL;
}

static const char *take_double_quoted(struct splitter *splitter, struct text *word) {
  for (splitter->at++; *splitter->at != '"'; splitter->at++) {
    const char *doubt =
        *splitter->at == '!' ? "a history expansion (!)" : doubtful_everywhere(*splitter->at);
    if (*splitter->at == '\0')
      doubt = "a quote that does not end";
    if (doubt)
      return doubt;
    /* Before other characters the backslash stays; a newline after it would vanish. */
    if (*splitter->at == '\\' && splitter->at[1] && strchr("\"\\$`", splitter->at[1]))
      splitter->at++;
    else if (*splitter->at == '\\' && splitter->at[1] == '\n')
      return "a line that goes on";
    text_append_char(word, *splitter->at);
  }
  splitter->at++;
  return NULL;
}

static const char *take_escaped(struct splitter *splitter, struct text *word) {
  char byte = splitter->at[1];
  if (byte == '\0' || byte == '\n')
    return "a line that goes on";
  text_append_char(word, byte);
  splitter->at += 2;
  return NULL;
}

static bool ends_word(char byte) {
  return byte == '\0' || strchr(" \t\n;&|", byte);
}

static const char *take_word(struct splitter *splitter, struct text *word) {
  const char *doubt = NULL;
  while (!doubt && !ends_word(*splitter->at)) {
    switch (*splitter->at) {
    case '\'':
      doubt = take_single_quoted(splitter, word);
      break;
    case '"':
      doubt = take_double_quoted(splitter, word);
      break;
    case '\\':
      doubt = take_escaped(splitter, word);
      break;
    default:
      doubt = doubtful_plain(*splitter->at);
      text_append_char(word, *splitter->at++);
    }
  }
  return doubt;
}

/* ---- commands ---- */

/* These only move output around or throw it away; a file would be written by the shell itself,
 * outside of any sandbox. */
static size_t harmless_redirection(const char *at) {
  static const char *const known[] = {"2>&1",        ">&2",         "1>&2",        "</dev/null",
                                      ">/dev/null",  "2>/dev/null", "&>/dev/null", "< /dev/null",
                                      "> /dev/null", "2> /dev/null"};
  for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
    size_t length = strlen(known[i]);
    if (strncmp(at, known[i], length) == 0 && ends_word(at[length]))
      return length;
  }
  return 0;
}

static bool is_keyword(const char *word) {
  static const char *const keywords[] = {"if",    "then",   "else",     "elif", "fi",    "for",
                                         "while", "until",  "do",       "done", "case",  "esac",
                                         "in",    "select", "function", "time", "coproc"};
  for (size_t i = 0; i < ARRAY_SIZE(keywords); i++)
    if (strcmp(word, keywords[i]) == 0)
      return true;
  return false;
}

static bool is_assignment(const char *word) {
  size_t name = 0;
  while (isalnum((unsigned char)word[name]) || word[name] == '_')
    name++;
  return name > 0 && (word[name] == '=' || (word[name] == '+' && word[name + 1] == '='));
}

static const char *finish_command(struct splitter *splitter) {
  struct shell_script *script = splitter->script;
  if (splitter->words.count == 0)
    return NULL;
  const char *first = splitter->words.items[0];
  if (is_keyword(first))
    return "a keyword of the shell";
  if (is_assignment(first))
    return "an assignment, which may change what is run";
  if (*first == '\0')
    return "an empty command";
  ARRAY_GROW(script->commands, script->count);
  script->commands[script->count++].words = splitter->words;
  splitter->words = (struct strv){0};
  return NULL;
}

static const char *take_separator(struct splitter *splitter) {
  bool empty = splitter->words.count == 0;
  const char *doubt =
      empty && *splitter->at != '\n' ? "a separator without a command" : finish_command(splitter);
  bool twice = splitter->at[0] == splitter->at[1] && strchr("&|", splitter->at[0]);
  if (splitter->at[0] == ';' && splitter->at[1] == ';')
    return "a keyword of the shell";
  splitter->at += twice ? 2 : 1;
  if (*splitter->at && strchr("&|", *splitter->at))
    return "an operator of the shell";
  return doubt;
}

static const char *take_next(struct splitter *splitter) {
  char byte = *splitter->at;
  if (byte == ' ' || byte == '\t') {
    splitter->at++;
    return NULL;
  }
  size_t redirection = splitter->words.count > 0 ? harmless_redirection(splitter->at) : 0;
  if (redirection > 0) {
    splitter->at += redirection;
    return NULL;
  }
  if (strchr(";&|\n", byte))
    return take_separator(splitter);
  struct text word = {0};
  const char *doubt = take_word(splitter, &word);
  strv_take(&splitter->words, text_steal(&word));
  return doubt;
}

void shell_split(const char *script, struct shell_script *ret) {
  struct splitter splitter = {.at = script, .script = ret};
  const char *doubt = NULL;
  *ret = (struct shell_script){0};
  while (!doubt && *splitter.at)
    doubt = take_next(&splitter);
  if (!doubt)
    doubt = finish_command(&splitter);
  if (!doubt && ret->count == 0)
    doubt = "no command";
  strv_clear(&splitter.words);
  ret->doubt = doubt ? xstrdup(doubt) : NULL;
}

void shell_script_clear(struct shell_script *script) {
  for (size_t i = 0; i < script->count; i++)
    strv_clear(&script->commands[i].words);
  free(script->commands);
  free(script->doubt);
  *script = (struct shell_script){0};
}
