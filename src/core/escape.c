/* The one escaper; see escape.h. Pure: no I/O, no locale. */
#include "core/escape.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"

size_t utf8_decode(const char *bytes, size_t length, unsigned *ret_code_point) {
  static const struct {
    unsigned char mask, lead;
    unsigned minimum;
  } forms[] = {{0x80, 0x00, 0}, {0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};

  for (size_t size = 1; size <= 4; size++) {
    unsigned char lead = (unsigned char)bytes[0];
    if ((lead & forms[size - 1].mask) != forms[size - 1].lead)
      continue;
    if (size > length)
      return 0;
    unsigned value = lead & (unsigned char)~forms[size - 1].mask;
    for (size_t i = 1; i < size; i++) {
      if (((unsigned char)bytes[i] & 0xc0) != 0x80)
        return 0;
      value = (value << 6) | ((unsigned char)bytes[i] & 0x3f);
    }
    /* Overlong forms, surrogates and what lies past Unicode are not characters. */
    bool surrogate = value >= 0xd800 && value <= 0xdfff;
    if (value < forms[size - 1].minimum || surrogate || value > 0x10ffff)
      return 0;
    *ret_code_point = value;
    return size;
  }
  return 0;
}

static void append_ascii(struct text *text, unsigned char byte) {
  static const char *const named[0x80] = {
      ['\n'] = "\\n", ['\t'] = "\\t", ['\r'] = "\\r", ['\\'] = "\\\\"};
  if (named[byte])
    text_append(text, named[byte]);
  else if (byte < 0x20 || byte == 0x7f)
    text_appendf(text, "\\x%02x", byte);
  else
    text_append_char(text, (char)byte);
}

void escape_append(struct text *text, const char *bytes, size_t length) {
  for (size_t i = 0; i < length;) {
    unsigned code_point;
    size_t size = utf8_decode(bytes + i, length - i, &code_point);
    if (size == 0)
      text_appendf(text, "\\x%02x", (unsigned char)bytes[i]);
    else if (size == 1)
      append_ascii(text, (unsigned char)bytes[i]);
    else
      text_appendf(text, "\\u{%x}", code_point);
    i += size ? size : 1;
  }
}

char *escape_string(const char *string) {
  struct text text = {0};
  escape_append(&text, string, strlen(string));
  return text_steal(&text);
}

/* Spaces could push the rest of a name into the next line, or part it into words of a sentence of
 * its own: only single ones between words stay. */
static bool is_single_space(const char *bytes, size_t index) {
  return bytes[index] == ' ' && index > 0 && bytes[index - 1] != ' ' && bytes[index + 1] != ' ' &&
         bytes[index + 1] != '\0';
}

char *escape_spaces(const char *name) {
  struct text text = {0};
  text_append(&text, "");
  for (size_t i = 0, size; name[i]; i += size) {
    size = strcspn(name + i, " \"");
    escape_append(&text, name + i, size);
    if (size > 0)
      continue;
    size = 1;
    if (is_single_space(name, i))
      text_append_char(&text, ' ');
    else
      text_appendf(&text, "\\x%02x", (unsigned char)name[i]);
  }
  return text_steal(&text);
}

char *escape_name(const char *name) {
  char *escaped = escape_spaces(name);
  if (!strchr(escaped, ' '))
    return escaped;
  char *quoted = xasprintf("\"%s\"", escaped);
  free(escaped);
  return quoted;
}

static bool shell_harmless(const char *word) {
  static const char harmless[] =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  return word[0] != '\0' && strspn(word, harmless) == strlen(word);
}

static bool plain_ascii(const char *word) {
  for (const unsigned char *byte = (const unsigned char *)word; *byte; byte++) {
    if (*byte < 0x20 || *byte >= 0x7f)
      return false;
  }
  return true;
}

static char *shell_single_quoted(const char *word) {
  struct text text = {0};
  text_append_char(&text, '\'');
  for (const char *at = word; *at; at++) {
    if (*at == '\'')
      text_append(&text, "'\\''");
    else
      text_append_char(&text, *at);
  }
  text_append_char(&text, '\'');
  return text_steal(&text);
}

/* $'...' keeps control characters and foreign bytes off the reader's terminal and still pastes. */
static char *shell_dollar_quoted(const char *word) {
  struct text text = {0};
  text_append(&text, "$'");
  for (const unsigned char *byte = (const unsigned char *)word; *byte; byte++) {
    if (*byte < 0x20 || *byte >= 0x7f)
      text_appendf(&text, "\\%03o", *byte);
    else if (*byte == '\'' || *byte == '\\')
      text_appendf(&text, "\\%c", *byte);
    else
      text_append_char(&text, (char)*byte);
  }
  text_append_char(&text, '\'');
  return text_steal(&text);
}

char *escape_shell_word(const char *word) {
  if (shell_harmless(word))
    return xstrdup(word);
  return plain_ascii(word) ? shell_single_quoted(word) : shell_dollar_quoted(word);
}
