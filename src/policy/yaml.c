/* YAML scalars; see yaml.h. */
#include "policy/yaml.h"

#include <ctype.h>
#include <string.h>

#include "core/escape.h"

static void append_code_point(struct text *text, unsigned code_point) {
  if (code_point == '"' || code_point == '\\')
    text_appendf(text, "\\%c", (int)code_point);
  else if (code_point == '\n')
    text_append(text, "\\n");
  else if (code_point == '\t')
    text_append(text, "\\t");
  else if (code_point >= 0x20 && code_point < 0x7f)
    text_append_char(text, (char)code_point);
  else if (code_point < 0x100)
    text_appendf(text, "\\x%02X", code_point);
  else if (code_point < 0x10000)
    text_appendf(text, "\\u%04X", code_point);
  else
    text_appendf(text, "\\U%08X", code_point);
}

static bool is_utf8(const char *value) {
  unsigned code_point;
  for (size_t length = strlen(value), size; length > 0; value += size, length -= size)
    if ((size = utf8_decode(value, length, &code_point)) == 0)
      return false;
  return true;
}

bool yaml_append_quoted(struct text *text, const char *value) {
  if (!is_utf8(value))
    return false;
  text_append_char(text, '"');
  for (size_t length = strlen(value), size; length > 0; value += size, length -= size) {
    unsigned code_point;
    size = utf8_decode(value, length, &code_point);
    append_code_point(text, code_point);
  }
  text_append_char(text, '"');
  return true;
}

/* Starts like a path or a name, and has nothing that YAML might take for something else. */
static bool is_plain(const char *value) {
  static const char *const words[] = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"};
  if (!isalpha((unsigned char)*value) && *value != '/')
    return false;
  for (const char *at = value; *at; at++)
    if (!isalnum((unsigned char)*at) && !strchr("/._-+@=", *at))
      return false;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strcasecmp(words[i], value) == 0)
      return false;
  return true;
}

bool yaml_append_text(struct text *text, const char *value) {
  if (!is_plain(value))
    return yaml_append_quoted(text, value);
  text_append(text, value);
  return true;
}
