/* Glob matching; see glob.h. Pure: must never touch the file system, allocate while matching, or
 * backtrack over more than the last star. */
#include "policy/glob.h"

#include <stdint.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/escape.h"
#include "core/text.h"
#include "policy/policy.h"

/* One bit per component boundary fits a machine word; a deeper pattern is refused when loaded. */
enum { GLOB_COMPONENTS_MAX = 63 };

struct component {
  const char *text;
  size_t length;
};

struct compiled {
  struct component components[GLOB_COMPONENTS_MAX];
  unsigned count;
  uint64_t crossing; /* which components are ** */
  uint64_t literal;  /* which have no wildcard and no backslash */
};

/* Compared by hand: a library call per byte would be half of the time to start. */
static bool is_wildcard(char byte) {
  return byte == '*' || byte == '?' || byte == '[';
}

/* ---- within one component ---- */

/* One character: a UTF-8 code point, or one byte where the name is not UTF-8. */
static size_t take_character(const char *text, size_t length, unsigned *ret) {
  size_t size = utf8_decode(text, length, ret);
  if (size > 0)
    return size;
  /* Above Unicode, so that a stray byte never equals the code point of the same number. */
  *ret = 0x110000u + (unsigned char)text[0];
  return 1;
}

static size_t take_set_member(const char *set, size_t length, unsigned *ret) {
  if (length > 1 && set[0] == '\\')
    return 1 + take_character(set + 1, length - 1, ret);
  return take_character(set, length, ret);
}

/* Reads the set that starts after '['. Returns bytes up to and including ']', or 0 if unclosed. */
static size_t match_set(const char *set, size_t length, unsigned character, bool *ret_match) {
  size_t at = 0;
  bool negated = length > 0 && (set[0] == '!' || set[0] == '^'), found = false;
  at += negated;
  for (bool first = true; at < length; first = false) {
    if (set[at] == ']' && !first) {
      *ret_match = found != negated;
      return at + 1;
    }
    unsigned low, high;
    at += take_set_member(set + at, length - at, &low);
    high = low;
    if (at + 1 < length && set[at] == '-' && set[at + 1] != ']') {
      at++;
      at += take_set_member(set + at, length - at, &high);
    }
    found |= character >= low && character <= high;
  }
  return 0;
}

/* Matches one pattern element other than '*' with one character. Returns the element's size in the
 * pattern, 0 if it does not match. */
static size_t match_element(const char *pattern, size_t length, unsigned character) {
  if (pattern[0] == '?')
    return 1;
  if (pattern[0] == '[') {
    bool match = false;
    size_t size = match_set(pattern + 1, length - 1, character, &match);
    return size > 0 && match ? size + 1 : 0;
  }
  unsigned wanted;
  size_t size = take_set_member(pattern, length, &wanted);
  return wanted == character ? size : 0;
}

bool glob_match_name(const char *pattern, size_t pattern_length, const char *name,
                     size_t name_length) {
  size_t p = 0, n = 0, star = SIZE_MAX, star_name = 0;
  while (n < name_length) {
    unsigned character;
    size_t size = take_character(name + n, name_length - n, &character);
    if (p < pattern_length && pattern[p] == '*') {
      star = p++;
      star_name = n;
      continue;
    }
    size_t element =
        p < pattern_length ? match_element(pattern + p, pattern_length - p, character) : 0;
    if (element > 0) {
      p += element;
      n += size;
    } else if (star != SIZE_MAX) {
      /* Only the last star needs another try: an earlier one could not do better. */
      star_name += take_character(name + star_name, name_length - star_name, &character);
      p = star + 1;
      n = star_name;
    } else {
      return false;
    }
  }
  while (p < pattern_length && pattern[p] == '*')
    p++;
  return p == pattern_length;
}

/* ---- over components ---- */

static bool is_crossing(const struct component *component) {
  return component->length == 2 && memcmp(component->text, "**", 2) == 0;
}

static bool has_special(const struct component *component) {
  for (size_t i = 0; i < component->length; i++)
    if (is_wildcard(component->text[i]) || component->text[i] == '\\')
      return true;
  return false;
}

/* The next component at *at, skipping slashes; false at the end. */
static bool next_component(const char **at, struct component *ret) {
  *at += strspn(*at, "/");
  if (**at == '\0')
    return false;
  ret->text = *at;
  ret->length = strcspn(*at, "/");
  *at += ret->length;
  return true;
}

static bool compile(const char *pattern, struct compiled *ret) {
  ret->count = 0;
  ret->crossing = ret->literal = 0;
  struct component component;
  bool after_crossing = false;
  while (next_component(&pattern, &component)) {
    bool crossing = is_crossing(&component);
    if (crossing && after_crossing)
      continue;
    after_crossing = crossing;
    if (ret->count == GLOB_COMPONENTS_MAX)
      return false;
    ret->crossing |= (uint64_t)crossing << ret->count;
    ret->literal |= (uint64_t)!has_special(&component) << ret->count;
    ret->components[ret->count++] = component;
  }
  return true;
}

static bool component_matches(const struct compiled *glob, unsigned index,
                              const struct component *name) {
  const struct component *component = &glob->components[index];
  if (glob->literal >> index & 1)
    return component->length == name->length &&
           memcmp(component->text, name->text, name->length) == 0;
  return glob_match_name(component->text, component->length, name->text, name->length);
}

/* A boundary before ** is also one after it: ** may stand for nothing. No two ** are adjacent. */
static uint64_t skip_crossing(const struct compiled *glob, uint64_t boundaries) {
  return boundaries | (boundaries & glob->crossing) << 1;
}

/* All boundaries of the pattern that can be reached by taking one more name of the path. */
static uint64_t advance(const struct compiled *glob, uint64_t boundaries,
                        const struct component *name) {
  uint64_t next = boundaries & glob->crossing;
  uint64_t tries = boundaries & ~glob->crossing & ~(UINT64_C(1) << glob->count);
  for (; tries; tries &= tries - 1) {
    unsigned index = (unsigned)__builtin_ctzll(tries);
    if (component_matches(glob, index, name))
      next |= UINT64_C(1) << (index + 1);
  }
  return skip_crossing(glob, next);
}

/* Depth of the deepest match; *ret_whole says whether the path itself is one. */
static ssize_t run(const char *pattern, const char *path, bool *ret_whole) {
  struct compiled glob;
  *ret_whole = false;
  if ((pattern[0] == '/') != (path[0] == '/') || !compile(pattern, &glob))
    return -1;
  uint64_t accept = UINT64_C(1) << glob.count;
  uint64_t boundaries = skip_crossing(&glob, 1);
  ssize_t deepest = boundaries & accept ? 0 : -1, depth = 0;
  struct component name;
  while (boundaries && next_component(&path, &name)) {
    boundaries = advance(&glob, boundaries, &name);
    depth++;
    if (boundaries & accept)
      deepest = depth;
  }
  *ret_whole = boundaries & accept;
  return deepest;
}

bool glob_match(const char *pattern, const char *path) {
  bool whole;
  run(pattern, path, &whole);
  return whole;
}

ssize_t glob_match_depth(const char *pattern, const char *path) {
  bool whole;
  return run(pattern, path, &whole);
}

struct glob_weight glob_weigh(const char *pattern) {
  struct glob_weight weight = {0};
  struct component component;
  while (next_component(&pattern, &component)) {
    if (is_crossing(&component))
      weight.crossing++;
    else if (!has_special(&component))
      weight.named++;
  }
  return weight;
}

/* ---- checking and escaping ---- */

static const char *set_problem(const char *set, size_t length, size_t *ret_size) {
  bool ignored;
  *ret_size = match_set(set, length, 0, &ignored);
  if (*ret_size == 0)
    return "has a [ without ]";
  if (memmem(set, *ret_size, "[:", 2))
    return "uses a [:class:], which is not supported";
  size_t start = set[0] == '!' || set[0] == '^';
  for (size_t i = start + 1; i + 2 < *ret_size; i++)
    if (set[i] == '-' && (unsigned char)set[i - 1] > (unsigned char)set[i + 1] &&
        set[i + 1] != '\\')
      return "has a range that runs backwards";
  return NULL;
}

static const char *component_problem(const struct component *component) {
  if (is_crossing(component))
    return NULL;
  for (size_t i = 0; i < component->length; i++) {
    const char *at = component->text + i;
    size_t left = component->length - i, size = 0;
    if (*at == '\\' && left == 1)
      return "ends in a lone backslash";
    if (*at == '*' && left > 1 && at[1] == '*')
      return "has ** inside a name; ** must stand alone between slashes, as in **/*.key";
    if (*at == '[') {
      const char *problem = set_problem(at + 1, left - 1, &size);
      if (problem)
        return problem;
    }
    i += *at == '\\' ? 1 : size;
  }
  return NULL;
}

static bool is_parent(const struct component *component) {
  return component->length == 2 && memcmp(component->text, "..", 2) == 0;
}

const char *glob_problem(const char *pattern) {
  if (pattern[0] == '\0')
    return "is empty";
  struct component component;
  unsigned count = 0;
  bool wild = false;
  while (next_component(&pattern, &component)) {
    const char *problem = component_problem(&component);
    if (problem)
      return problem;
    if (++count > GLOB_COMPONENTS_MAX)
      return "is more than 63 folders deep";
    if (wild && is_parent(&component))
      return "has .. after a wildcard";
    wild |= has_special(&component);
  }
  return NULL;
}

bool glob_has_wildcards(const char *pattern) {
  /* Nearly none has, and every rule is asked. */
  for (const char *at = pattern + strcspn(pattern, "*?[\\"); *at; at++) {
    if (*at == '\\' && at[1])
      at++;
    else if (is_wildcard(*at))
      return true;
  }
  return false;
}

char *glob_escape(const char *literal) {
  struct text text = {0};
  text_append(&text, "");
  for (const char *at = literal; *at; at++) {
    if (is_wildcard(*at) || *at == '\\')
      text_append_char(&text, '\\');
    text_append_char(&text, *at);
  }
  return text_steal(&text);
}

void glob_unescape(char *pattern) {
  char *out = pattern;
  for (const char *at = pattern; *at; at++) {
    if (*at == '\\' && at[1])
      at++;
    *out++ = *at;
  }
  *out = '\0';
}
