/* Expansion of ~, $VAR and ${VAR} in policy paths. Pure: reads only the context, never the process
 * environment, so that a test or a service can say what the caller's world looks like. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/path.h"
#include "core/text.h"
#include "policy/glob.h"
#include "policy/rules.h"
#include "policy/yaml.h"

const char *context_variable(const struct policy_context *context, const char *name) {
  size_t length = strlen(name);
  for (char *const *entry = context->environment; entry && *entry; entry++)
    if (strncmp(*entry, name, length) == 0 && (*entry)[length] == '=')
      return (*entry)[length + 1] ? *entry + length + 1 : NULL;
  return NULL;
}

struct expansion {
  const struct policy_context *context;
  bool pattern; /* inserted text is escaped */
  struct text out;
  struct sb_error *error;
};

static void insert(struct expansion *expansion, const char *value) {
  if (!expansion->pattern) {
    text_append(&expansion->out, value);
    return;
  }
  _cleanup_free_ char *escaped = glob_escape(value);
  text_append(&expansion->out, escaped);
}

static int insert_home(struct expansion *expansion, const char **at) {
  if ((*at)[1] != '/' && (*at)[1] != '\0') {
    sb_fail(expansion->error, SB_CODE_POLICY, 0, "~NAME is not supported in a path");
    return sb_hint(expansion->error, "write the other user's folder in full, or \\~ for a ~");
  }
  if (!expansion->context->home)
    return sb_fail(expansion->error, SB_CODE_POLICY, 0, "~ is used, but there is no home folder");
  insert(expansion, expansion->context->home);
  *at += 1;
  return 0;
}

/* The length of the variable's name at the start of text; digits do not start a name. */
static size_t name_length(const char *text) {
  size_t length = 0;
  while (isalnum((unsigned char)text[length]) || text[length] == '_')
    length++;
  return isdigit((unsigned char)text[0]) ? 0 : length;
}

static int insert_variable(struct expansion *expansion, const char **at) {
  bool braces = (*at)[1] == '{';
  const char *start = *at + 1 + braces;
  size_t length = name_length(start);
  if (length == 0 || (braces && start[length] != '}')) {
    sb_fail(expansion->error, SB_CODE_POLICY, 0, "a $ is not followed by a variable's name");
    return sb_hint(expansion->error, "write $NAME or ${NAME}, or \\$ for a $ in a file's name");
  }
  _cleanup_free_ char *name = xstrndup(start, length);
  const char *value = context_variable(expansion->context, name);
  if (!value) {
    sb_fail(expansion->error, SB_CODE_POLICY, 0, "the variable $%s is not set", name);
    return sb_hint(expansion->error, "set %s, or write the path in full", name);
  }
  insert(expansion, value);
  *at = start + length + braces;
  return 0;
}

/* \xff is a byte of a name that is not UTF-8, which a policy file could not hold otherwise. Only
 * from 80 on: no such byte means anything in a pattern. */
static bool insert_byte(struct expansion *expansion, const char **at) {
  const char *digits = *at + 2;
  if ((*at)[1] != 'x' || !isxdigit((unsigned char)digits[0]) || !isxdigit((unsigned char)digits[1]))
    return false;
  const char number[] = {digits[0], digits[1], '\0'};
  unsigned long byte = strtoul(number, NULL, 16);
  if (byte < 0x80)
    return false;
  text_append_char(&expansion->out, (char)byte);
  *at += 4;
  return true;
}

/* In a pattern, what it gives a meaning stays escaped. */
static void insert_escaped(struct expansion *expansion, const char **at) {
  if (insert_byte(expansion, at))
    return;
  if (expansion->pattern && (*at)[1] != '$' && (*at)[1] != '~')
    text_append_char(&expansion->out, '\\');
  text_append_char(&expansion->out, (*at)[1]);
  *at += 2;
}

static int expand_text(struct expansion *expansion, const char *text) {
  const char *at = text;
  if (*at == '~' && insert_home(expansion, &at) < 0)
    return -1;
  while (*at) {
    if (*at == '$') {
      if (insert_variable(expansion, &at) < 0)
        return -1;
    } else if (*at == '\\' && at[1]) {
      insert_escaped(expansion, &at);
    } else {
      text_append_char(&expansion->out, *at++);
    }
  }
  return 0;
}

static int expand(const struct policy_context *context, const char *base, const char *text,
                  bool pattern, char **ret_path, struct sb_error *error) {
  struct expansion expansion = {.context = context, .pattern = pattern, .error = error};
  if (text[0] == '\0')
    return sb_fail(error, SB_CODE_POLICY, 0, "the path is empty");
  int result = expand_text(&expansion, text);
  if (result == 0) {
    _cleanup_free_ char *folder = pattern ? glob_escape(base) : xstrdup(base);
    const char *problem = pattern ? glob_problem(text_string(&expansion.out)) : NULL;
    if (problem)
      result = sb_fail(error, SB_CODE_POLICY, 0, "the pattern %s", problem);
    else
      *ret_path = path_join(folder, text_string(&expansion.out));
  }
  text_clear(&expansion.out);
  return result;
}

int policy_expand(const struct policy_context *context, const char *base, const char *text,
                  char **ret_path, struct sb_error *error) {
  return expand(context, base, text, false, ret_path, error);
}

int expand_pattern(const struct policy_context *context, const char *base, const char *text,
                   char **ret_pattern, struct sb_error *error) {
  return expand(context, base, text, true, ret_pattern, error);
}

static void append_escaped(struct text *text, const char *bytes, size_t size, bool first) {
  if (size == 0) {
    text_appendf(text, "\\x%02x", (unsigned char)*bytes);
    return;
  }
  if (strchr("*?[\\$", *bytes) || (*bytes == '~' && first))
    text_append_char(text, '\\');
  text_append_bytes(text, bytes, size);
}

char *policy_escape_path(const char *path) {
  struct text text = {0};
  text_append(&text, "");
  for (size_t at = 0, size, length = strlen(path); at < length; at += size ? size : 1) {
    unsigned code_point;
    size = utf8_decode(path + at, length - at, &code_point);
    append_escaped(&text, path + at, size, at == 0);
  }
  return text_steal(&text);
}

/* Harmless in single quotes, which have no escapes. */
static bool is_plain(const char *text) {
  for (const char *at = text; *at; at++)
    if (*at < ' ' || *at > '~' || *at == '\'' || *at == '\\')
      return false;
  return true;
}

char *policy_quote_path(const char *path) {
  _cleanup_free_ char *pattern = policy_escape_path(path);
  if (is_plain(pattern))
    return xasprintf("'%s'", pattern);
  struct text text = {0};
  (void)yaml_append_quoted(&text, pattern); /* what is not UTF-8 is escaped in it */
  return text_steal(&text);
}
