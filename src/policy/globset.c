/* A compiled set of globs; see globset.h. Pure; must always agree with glob_match. */
#include "policy/globset.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/escape.h"
#include "policy/glob.h"
#include "policy/policy.h"

enum shape {
  SHAPE_NAME,    /* a double star, then a plain name */
  SHAPE_SUFFIX,  /* a double star, then *text */
  SHAPE_PREFIX,  /* a double star, then text* */
  SHAPE_GENERAL, /* anything else: the matcher decides */
};

struct entry {
  enum shape shape;
  int index;
  char *text;       /* the fixed part; for GENERAL the whole pattern */
  const char *tail; /* GENERAL: the last component, to refuse most names cheaply */
  bool top;         /* GENERAL: of one component, so it matches nothing that lies deeper */
  char path_first;  /* GENERAL: what every path that matches begins with; '\0': anything */
  char name_first;  /* …and every last component */
  size_t length;
};

/* Which first or last bytes occur among the entries of a shape. */
struct byte_set {
  uint64_t bits[4];
};

struct glob_set {
  struct entry *entries;
  size_t count;
  struct byte_set name_first, suffix_last, prefix_first, path_first;
  bool top, general; /* one that may match anything at the top, or anywhere */
};

static void byte_add(struct byte_set *set, char byte) {
  set->bits[(unsigned char)byte / 64] |= UINT64_C(1) << (unsigned char)byte % 64;
}

static bool byte_has(const struct byte_set *set, char byte) {
  return set->bits[(unsigned char)byte / 64] >> (unsigned char)byte % 64 & 1;
}

/* The pattern after its leading double stars, if that is one single component; else NULL. */
static const char *single_tail(const char *pattern) {
  if (strncmp(pattern, "**/", 3) != 0)
    return NULL;
  while (strncmp(pattern, "**/", 3) == 0)
    pattern += 3;
  return strchr(pattern, '/') || strcmp(pattern, "**") == 0 || !*pattern ? NULL : pattern;
}

/* Text that may be compared byte by byte: no wildcard, no backslash, and whole characters only, so
 * that it cannot match the middle of one. */
static bool is_plain(const char *text, size_t length) {
  unsigned code_point;
  size_t at = 0, size = 1;
  while (at < length && size > 0 && !strchr("*?[\\", text[at])) {
    size = utf8_decode(text + at, length - at, &code_point);
    at += size;
  }
  return length > 0 && at == length;
}

static char fixed_first(const char *pattern) {
  return strchr("*?[\\", pattern[0]) ? '\0' : pattern[0];
}

static struct entry classify(const char *pattern, int index) {
  const char *tail = single_tail(pattern);
  size_t length = tail ? strlen(tail) : 0;
  struct entry entry = {.shape = SHAPE_GENERAL, .index = index};
  if (tail && is_plain(tail, length)) {
    entry.shape = SHAPE_NAME;
    entry.text = xstrdup(tail);
  } else if (tail && tail[0] == '*' && is_plain(tail + 1, length - 1)) {
    entry.shape = SHAPE_SUFFIX;
    entry.text = xstrndup(tail + 1, length - 1);
  } else if (tail && tail[length - 1] == '*' && is_plain(tail, length - 1)) {
    entry.shape = SHAPE_PREFIX;
    entry.text = xstrndup(tail, length - 1);
  } else {
    const char *slash = strrchr(pattern, '/');
    entry.text = xstrdup(pattern);
    entry.tail = entry.text + (slash ? slash + 1 - pattern : 0);
    if (strcmp(entry.tail, "**") == 0 || *entry.tail == '\0')
      entry.tail = "*";
    entry.top = !slash && strcmp(pattern, "**") != 0;
    entry.path_first = fixed_first(entry.text);
    entry.name_first = fixed_first(entry.tail);
  }
  entry.length = strlen(entry.text);
  return entry;
}

static void note_bytes(struct glob_set *set, const struct entry *entry) {
  switch (entry->shape) {
  case SHAPE_NAME:
    byte_add(&set->name_first, entry->text[0]);
    break;
  case SHAPE_SUFFIX:
    byte_add(&set->suffix_last, entry->text[entry->length - 1]);
    break;
  case SHAPE_PREFIX:
    byte_add(&set->prefix_first, entry->text[0]);
    break;
  case SHAPE_GENERAL:
    if (entry->path_first)
      byte_add(&set->path_first, entry->path_first);
    else if (entry->top)
      set->top = true;
    else if (entry->name_first)
      byte_add(&set->name_first, entry->name_first);
    else
      set->general = true;
    break;
  }
}

struct glob_set *glob_set_new(const char *const *patterns, size_t count) {
  struct glob_set *set = xcalloc(1, sizeof *set);
  set->entries = xcalloc(count, sizeof *set->entries);
  set->count = count;
  for (size_t i = 0; i < count; i++) {
    set->entries[i] = classify(patterns[i], (int)i);
    note_bytes(set, &set->entries[i]);
  }
  return set;
}

static bool entry_matches(const struct entry *entry, const char *path, const char *base,
                          size_t length) {
  switch (entry->shape) {
  case SHAPE_NAME:
    return length == entry->length && memcmp(base, entry->text, length) == 0;
  case SHAPE_SUFFIX:
    return length >= entry->length &&
           memcmp(base + length - entry->length, entry->text, entry->length) == 0;
  case SHAPE_PREFIX:
    return length >= entry->length && memcmp(base, entry->text, entry->length) == 0;
  case SHAPE_GENERAL:
    if ((entry->top && path != base) || (entry->path_first && path[0] != entry->path_first) ||
        (entry->name_first && base[0] != entry->name_first))
      return false;
    return glob_match_name(entry->tail, strlen(entry->tail), base, length) &&
           glob_match(entry->text, path);
  }
  return false;
}

int glob_set_match(const struct glob_set *set, const char *path, const char *base) {
  size_t length = strlen(base);
  if (length == 0)
    return -1;
  bool possible = set->general || (set->top && path == base) ||
                  byte_has(&set->path_first, path[0]) || byte_has(&set->name_first, base[0]) ||
                  byte_has(&set->prefix_first, base[0]) ||
                  byte_has(&set->suffix_last, base[length - 1]);
  if (!possible)
    return -1;
  for (size_t i = 0; i < set->count; i++)
    if (entry_matches(&set->entries[i], path, base, length))
      return set->entries[i].index;
  return -1;
}

void glob_set_free(struct glob_set *set) {
  if (!set)
    return;
  for (size_t i = 0; i < set->count; i++)
    free(set->entries[i].text);
  free(set->entries);
  free(set);
}
