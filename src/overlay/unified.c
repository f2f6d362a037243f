/* Unified diffs; see unified.h. Lines are numbered so that equal lines have equal numbers, compared
 * as numbers, and written out in hunks with three lines around each change. */
#include "overlay/unified.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "overlay/myers.h"

enum { CONTEXT = 3, BINARY_SAMPLE = 8000, LINE_LIMIT = 500000 };

struct lines {
  struct line {
    const char *data;
    size_t length; /* with the newline, if it has one */
  } * items;
  size_t count;
  unsigned *numbers;
  bool *changed;
};

bool looks_binary(const char *data, size_t length) {
  return length && memchr(data, '\0', length < BINARY_SAMPLE ? length : BINARY_SAMPLE) != NULL;
}

static struct lines split(const char *data, size_t length) {
  struct lines lines = {0};
  for (size_t at = 0; at < length;) {
    const char *end = memchr(data + at, '\n', length - at);
    size_t size = end ? (size_t)(end - (data + at)) + 1 : length - at;
    ARRAY_GROW(lines.items, lines.count);
    lines.items[lines.count++] = (struct line){data + at, size};
    at += size;
  }
  lines.numbers = xcalloc(lines.count + 1, sizeof *lines.numbers);
  lines.changed = xcalloc(lines.count + 1, sizeof *lines.changed);
  return lines;
}

static void lines_clear(struct lines *lines) {
  free(lines->items);
  free(lines->numbers);
  free(lines->changed);
}
#define _cleanup_lines_ __attribute__((cleanup(lines_clear)))

/* ---- equal lines, equal numbers ---- */

struct table {
  struct slot {
    const struct line *line;
    unsigned number;
  } * slots;
  size_t mask;
  unsigned next;
};

static uint64_t hash_line(const struct line *line) {
  uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */
  for (size_t i = 0; i < line->length; i++)
    hash = (hash ^ (unsigned char)line->data[i]) * 0x100000001b3;
  return hash ^ hash >> 32;
}

static unsigned number_of(struct table *table, const struct line *line) {
  size_t at = hash_line(line) & table->mask;
  for (; table->slots[at].line; at = (at + 1) & table->mask) {
    const struct line *known = table->slots[at].line;
    if (known->length == line->length && memcmp(known->data, line->data, line->length) == 0)
      return table->slots[at].number;
  }
  table->slots[at] = (struct slot){line, table->next++};
  return table->slots[at].number;
}

static void number_lines(struct lines *old, struct lines *new) {
  size_t size = 16;
  while (size < 2 * (old->count + new->count))
    size *= 2;
  struct table table = {.slots = xcalloc(size, sizeof *table.slots), .mask = size - 1};
  struct lines *both[] = {old, new};
  for (size_t k = 0; k < ARRAY_SIZE(both); k++)
    for (size_t i = 0; i < both[k]->count; i++)
      both[k]->numbers[i] = number_of(&table, &both[k]->items[i]);
  free(table.slots);
}

/* ---- hunks ---- */

/* Removed and added lines at one point; between two edits the texts are the same. */
struct edit {
  size_t old_begin, old_end, new_begin, new_end;
};

struct edits {
  struct edit *items;
  size_t count;
};

static struct edits collect(const struct lines *old, const struct lines *new) {
  struct edits edits = {0};
  for (size_t x = 0, y = 0; x < old->count || y < new->count;) {
    struct edit edit = {.old_begin = x, .new_begin = y};
    while (x < old->count && old->changed[x])
      x++;
    while (y < new->count &&new->changed[y])
      y++;
    edit.old_end = x;
    edit.new_end = y;
    if (edit.old_end > edit.old_begin || edit.new_end > edit.new_begin) {
      ARRAY_GROW(edits.items, edits.count);
      edits.items[edits.count++] = edit;
      continue;
    }
    x++, y++;
  }
  return edits;
}

static void append_lines(struct text *text, char sign, const struct lines *lines, size_t begin,
                         size_t end) {
  for (size_t i = begin; i < end; i++) {
    const struct line *line = &lines->items[i];
    text_append_char(text, sign);
    text_append_bytes(text, line->data, line->length);
    if (line->data[line->length - 1] != '\n')
      text_append(text, "\n\\ No newline at end of file\n");
  }
}

/* "3,4", "3" for one line, and for none the line before: "2,0". */
static void append_range(struct text *text, char sign, size_t begin, size_t end) {
  size_t count = end - begin, first = count ? begin + 1 : begin;
  text_appendf(text, count == 1 ? " %c%zu" : " %c%zu,%zu", sign, first, count);
}

static size_t before(size_t at) {
  return at > CONTEXT ? at - CONTEXT : 0;
}

static size_t after(size_t at, size_t count) {
  return count - at > CONTEXT ? at + CONTEXT : count;
}

static void append_hunk(struct text *text, const struct lines *old, const struct lines *new,
                        const struct edit *edits, size_t count) {
  const struct edit *last = &edits[count - 1];
  size_t old_begin = before(edits->old_begin), old_end = after(last->old_end, old->count);
  size_t new_begin = edits->new_begin - (edits->old_begin - old_begin);
  size_t new_end = last->new_end + (old_end - last->old_end);
  text_append(text, "@@");
  append_range(text, '-', old_begin, old_end);
  append_range(text, '+', new_begin, new_end);
  text_append(text, " @@\n");
  size_t at = old_begin;
  for (size_t i = 0; i < count; i++) {
    append_lines(text, ' ', old, at, edits[i].old_begin);
    append_lines(text, '-', old, edits[i].old_begin, edits[i].old_end);
    append_lines(text, '+', new, edits[i].new_begin, edits[i].new_end);
    at = edits[i].old_end;
  }
  append_lines(text, ' ', old, at, old_end);
}

/* Edits whose surroundings would touch share a hunk. */
static size_t edits_in_hunk(const struct edits *edits, size_t first) {
  size_t count = 1;
  while (first + count < edits->count &&
         edits->items[first + count].old_begin - edits->items[first + count - 1].old_end <=
             2 * CONTEXT)
    count++;
  return count;
}

struct unified unified_diff(const char *old_data, size_t old_length, const char *new_data,
                            size_t new_length) {
  struct unified unified = {0};
  _cleanup_lines_ struct lines old = split(old_data, old_length);
  _cleanup_lines_ struct lines new = split(new_data, new_length);
  if (old.count + new.count > LINE_LIMIT)
    return (struct unified){.too_long = true};
  number_lines(&old, &new);
  myers_compare(&(struct sequence){old.numbers, old.changed, old.count},
                &(struct sequence){new.numbers, new.changed, new.count});
  struct edits edits = collect(&old, &new);
  for (size_t i = 0; i < edits.count; i++) {
    unified.removed += edits.items[i].old_end - edits.items[i].old_begin;
    unified.added += edits.items[i].new_end - edits.items[i].new_begin;
  }
  for (size_t first = 0, count; first < edits.count; first += count) {
    count = edits_in_hunk(&edits, first);
    append_hunk(&unified.hunks, &old, &new, &edits.items[first], count);
  }
  free(edits.items);
  return unified;
}

void unified_clear(struct unified *unified) {
  text_clear(&unified->hunks);
}
