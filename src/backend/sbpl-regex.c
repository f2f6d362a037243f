/* Globs to regular expressions; see sbpl-regex.h. Only what POSIX and Apple's matcher read alike is
 * written: no classes, no repetition counts, no look-around. */
#include "backend/sbpl-regex.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

#include "core/cleanup.h"
#include "policy/glob.h"

#define COMPONENTS_MAX 63

struct component {
  const char *text;
  size_t length;
};

struct components {
  struct component items[COMPONENTS_MAX + 1];
  unsigned count;
};

static bool is_crossing(const struct component *component) {
  return component->length == 2 && memcmp(component->text, "**", 2) == 0;
}

/* Adjacent ** count as one. A glob is never longer: it was refused when it was loaded. */
static void split(const char *pattern, struct components *ret) {
  ret->count = 0;
  while (*(pattern += strspn(pattern, "/")) && ret->count < COMPONENTS_MAX) {
    struct component component = {pattern, strcspn(pattern, "/")};
    pattern += component.length;
    bool again = ret->count > 0 && is_crossing(&ret->items[ret->count - 1]);
    if (!(again && is_crossing(&component)))
      ret->items[ret->count++] = component;
  }
}

/* ---- characters ---- */

static void append_byte(struct text *text, char byte, bool wide) {
  if (wide && isalpha((unsigned char)byte) && (unsigned char)byte < 0x80) {
    text_appendf(text, "[%c%c]", tolower((unsigned char)byte), toupper((unsigned char)byte));
    return;
  }
  if (strchr(".[]()*+?{}|^$\\", byte))
    text_append_char(text, '\\');
  text_append_char(text, byte);
}

static void append_any(struct text *text, bool wide) {
  /* A matcher that works on bytes needs several of them for one character. */
  text_append(text, wide ? "([ -.0-~]|[^ -~]+)" : "[^/]");
}

/* Length of the set that starts at '[', its brackets included. */
static size_t set_length(const char *set, size_t length) {
  size_t at = 1 + (length > 1 && (set[1] == '!' || set[1] == '^'));
  for (bool first = true; at < length; first = false) {
    if (set[at] == ']' && !first)
      return at + 1;
    at += set[at] == '\\' && at + 1 < length ? 2 : 1;
  }
  return length;
}

static bool set_has(const char *set, size_t length, char byte) {
  return byte != '/' && glob_match_name(set, length, &byte, 1);
}

static void append_set(struct text *text, const char *set, size_t length, bool wide) {
  bool negated = set[1] == '!' || set[1] == '^', first = true;
  text_append_char(text, '(');
  for (char byte = 1; byte < 0x7f; byte++) {
    char other = (char)(islower((unsigned char)byte) ? toupper(byte) : tolower(byte));
    bool has = set_has(set, length, byte) || (wide && set_has(set, length, other));
    if (!has || (!isprint((unsigned char)byte) && !negated))
      continue;
    if (!first)
      text_append_char(text, '|');
    append_byte(text, byte, false);
    first = false;
  }
  /* Characters beyond ASCII: those outside a negated set; of a plain one only where it may err. */
  bool beyond = false;
  for (size_t i = 0; i < length; i++)
    beyond |= (unsigned char)set[i] >= 0x80;
  if (negated ? !beyond || wide : beyond && wide)
    text_append(text, first ? "[^ -~]+" : "|[^ -~]+");
  text_append_char(text, ')');
}

static void append_component(struct text *text, const struct component *component, bool wide) {
  for (size_t i = 0; i < component->length; i++) {
    const char *at = component->text + i;
    size_t left = component->length - i;
    if (*at == '*') {
      text_append(text, "[^/]*");
    } else if (*at == '?') {
      append_any(text, wide);
    } else if (*at == '[') {
      size_t length = set_length(at, left);
      append_set(text, at, length, wide);
      i += length - 1;
    } else {
      i += *at == '\\' && left > 1;
      append_byte(text, component->text[i], wide);
    }
  }
}

/* `wide_from`: where in the pattern's own text width begins; NULL for nowhere. */
static void append_components(struct text *text, const struct components *components, unsigned from,
                              const char *wide_from) {
  for (unsigned i = from; i < components->count; i++) {
    const struct component *component = &components->items[i];
    if (!is_crossing(component)) {
      text_append_char(text, '/');
      append_component(text, component, wide_from && component->text >= wide_from);
    } else if (i + 1 < components->count) {
      text_append(text, "(/.*)?");
    }
  }
}

/* ---- whole expressions ---- */

static void append_literal(struct text *text, const char *path, struct regex_bias bias) {
  if (strcmp(path, "/") == 0)
    return;
  for (size_t i = 0; path[i]; i++)
    append_byte(text, path[i], bias.wide && i >= bias.from);
}

void regex_append_path(struct text *text, const char *path, struct regex_bias bias) {
  text_append_char(text, '^');
  append_literal(text, path, bias);
  text_append(text, "(/|$)");
}

static void append_glob(struct text *text, const char *pattern, struct regex_bias bias,
                        const char *end) {
  struct components components;
  split(pattern, &components);
  text_append_char(text, '^');
  append_components(text, &components, 0, bias.wide ? pattern + bias.from : NULL);
  text_append(text, end);
}

void regex_append_glob(struct text *text, const char *pattern, struct regex_bias bias) {
  append_glob(text, pattern, bias, "(/|$)");
}

void regex_append_glob_itself(struct text *text, const char *pattern, struct regex_bias bias) {
  append_glob(text, pattern, bias, "$");
}

void regex_append_name(struct text *text, const char *pattern) {
  const struct component name = {pattern, strlen(pattern)};
  text_append_char(text, '/');
  append_component(text, &name, false);
  text_append_char(text, '$');
}

/* ---- what is left of a glob below a folder ---- */

static uint64_t skip_crossings(const struct components *glob, uint64_t places) {
  for (unsigned i = 0; i < glob->count; i++)
    if (places >> i & 1 && is_crossing(&glob->items[i]))
      places |= UINT64_C(1) << (i + 1);
  return places;
}

/* The places in the pattern that can be reached by one more name. */
static uint64_t advance(const struct components *glob, uint64_t places,
                        const struct component *name) {
  uint64_t next = 0;
  for (unsigned i = 0; i < glob->count; i++) {
    if (!(places >> i & 1))
      continue;
    if (is_crossing(&glob->items[i]))
      next |= UINT64_C(1) << i;
    else if (glob_match_name(glob->items[i].text, glob->items[i].length, name->text, name->length))
      next |= UINT64_C(1) << (i + 1);
  }
  return skip_crossings(glob, next);
}

void regex_below(const char *pattern, const char *folder, bool wide, regex_visit *visit,
                 void *context) {
  struct components glob, names;
  split(pattern, &glob);
  split(folder, &names);
  uint64_t places = skip_crossings(&glob, 1);
  for (unsigned i = 0; i < names.count; i++)
    places = advance(&glob, places, &names.items[i]);
  for (unsigned i = 0; i < glob.count; i++) {
    /* What follows a ** is part of what starts at it. */
    bool part = i > 0 && places >> (i - 1) & 1 && is_crossing(&glob.items[i - 1]);
    if (!(places >> i & 1) || part)
      continue;
    _cleanup_text_ struct text text = {0};
    text_append_char(&text, '^');
    append_literal(&text, folder, (struct regex_bias){0});
    append_components(&text, &glob, i, wide ? pattern : NULL);
    text_append(&text, i + 1 == glob.count && is_crossing(&glob.items[i]) ? "/" : "(/|$)");
    visit(context, text_string(&text));
  }
}
