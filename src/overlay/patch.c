/* Changes in git's patch format; see patch.h. */
#include "overlay/patch.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/file.h"
#include "overlay/unified.h"

enum { SHOWN_SIZE = 8 << 20 };

/* ---- names ---- */

static bool is_plain(const char *path) {
  for (const unsigned char *byte = (const unsigned char *)path; *byte; byte++)
    if (*byte < 0x20 || *byte >= 0x7f || *byte == '"' || *byte == '\\')
      return false;
  return true;
}

void patch_append_name(struct text *text, const char *prefix, const char *path) {
  if (is_plain(path)) {
    text_appendf(text, "%s%s", prefix, path);
    return;
  }
  text_appendf(text, "\"%s", prefix);
  for (const unsigned char *byte = (const unsigned char *)path; *byte; byte++) {
    if (*byte == '"' || *byte == '\\')
      text_appendf(text, "\\%c", *byte);
    else if (*byte < 0x20 || *byte >= 0x7f)
      text_appendf(text, "\\%03o", *byte);
    else
      text_append_char(text, (char)*byte);
  }
  text_append_char(text, '"');
}

/* patch(1) takes what follows a blank for a date, unless a tab ends the name. */
static void append_file_line(struct text *text, const char *sign, const char *prefix,
                             const char *path, bool exists) {
  text_appendf(text, "%s ", sign);
  if (exists)
    patch_append_name(text, prefix, path);
  else
    text_append(text, "/dev/null");
  text_append(text, exists && strchr(path, ' ') ? "\t\n" : "\n");
}

/* ---- contents ---- */

/* One side of the change; the data is that of a file, or the target of a link. */
struct side {
  mode_t mode; /* 0: not there */
  char *data;
  size_t length;
  bool unshown; /* too large, or unreadable */
};

static void side_clear(struct side *side) {
  free(side->data);
}
#define _cleanup_side_ __attribute__((cleanup(side_clear)))

static struct side side_read(int root, const char *path, mode_t mode) {
  struct side side = {.mode = mode};
  if (S_ISLNK(mode)) {
    side.data = layer_read_link(root, path);
    side.length = side.data ? strlen(side.data) : 0;
    side.unshown = !side.data;
  } else if (S_ISREG(mode)) {
    _cleanup_close_ int fd = layer_open_file(root, path);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    side.unshown = fd < 0 || file_read_at(AT_FDCWD, name, SHOWN_SIZE, &side.data, &side.length) < 0;
  }
  return side;
}

static bool in_patch_format(mode_t mode) {
  return mode == 0 || S_ISREG(mode) || S_ISLNK(mode);
}

/* git keeps one bit of a mode. */
static unsigned git_mode(mode_t mode) {
  return S_ISLNK(mode) ? 0120000 : mode & 0100 ? 0100755 : 0100644;
}

static void append_mode_lines(struct text *text, const struct side *old, const struct side *new) {
  if (!old->mode)
    text_appendf(text, "new file mode %o\n", git_mode(new->mode));
  else if (!new->mode)
    text_appendf(text, "deleted file mode %o\n", git_mode(old->mode));
  else if (git_mode(old->mode) != git_mode(new->mode))
    text_appendf(text, "old mode %o\nnew mode %o\n", git_mode(old->mode), git_mode(new->mode));
}

static void append_binary(struct patch *patch, const char *path, const struct side *old,
                          const struct side *new) {
  patch->binary = true;
  text_append(&patch->text, "Binary files ");
  patch_append_name(&patch->text, old->mode ? "a/" : "", old->mode ? path : "/dev/null");
  text_append(&patch->text, " and ");
  patch_append_name(&patch->text, new->mode ? "b/" : "", new->mode ? path : "/dev/null");
  text_append(&patch->text, " differ\n");
}

static void append_contents(struct patch *patch, const char *path, const struct side *old,
                            const struct side *new) {
  if (old->unshown || new->unshown || looks_binary(old->data, old->length) ||
      looks_binary(new->data, new->length)) {
    append_binary(patch, path, old, new);
    return;
  }
  _cleanup_unified_ struct unified unified =
      unified_diff(old->data, old->length, new->data, new->length);
  if (unified.too_long) {
    append_binary(patch, path, old, new);
    return;
  }
  patch->added += unified.added;
  patch->removed += unified.removed;
  if (unified.hunks.length == 0)
    return; /* an empty file came or went */
  append_file_line(&patch->text, "---", "a/", path, old->mode != 0);
  append_file_line(&patch->text, "+++", "b/", path, new->mode != 0);
  text_append_bytes(&patch->text, unified.hunks.data, unified.hunks.length);
}

static void append_sides(struct patch *patch, const char *path, const struct side *old,
                         const struct side *new, bool contents) {
  text_append(&patch->text, "diff --git ");
  patch_append_name(&patch->text, "a/", path);
  text_append_char(&patch->text, ' ');
  patch_append_name(&patch->text, "b/", path);
  text_append_char(&patch->text, '\n');
  append_mode_lines(&patch->text, old, new);
  if (contents)
    append_contents(patch, path, old, new);
}

/* ---- what git does not keep ---- */

static void append_remark(struct patch *patch, const struct layer_change *change) {
  mode_t mode = change->mode ? change->mode : change->old_mode;
  text_appendf(&patch->text, "# %s %s: ", change_kind_name(change->kind), change_type_name(mode));
  patch_append_name(&patch->text, "", change->path);
  if (change->kind == CHANGE_MODIFIED)
    text_appendf(&patch->text, " mode %04o to %04o", (unsigned)(change->old_mode & 07777),
                 (unsigned)(change->mode & 07777));
  if (change->problem)
    text_appendf(&patch->text, " (%s)", change->problem);
  text_append_char(&patch->text, '\n');
}

static bool needs_remark(const struct layer_change *change) {
  bool other_mode = change->kind == CHANGE_MODIFIED && S_ISREG(change->mode) &&
                    S_ISREG(change->old_mode) &&
                    (change->mode & 0777) != (change->old_mode & 0777) &&
                    git_mode(change->mode) == git_mode(change->old_mode);
  return other_mode || change->problem || !in_patch_format(change->mode) ||
         !in_patch_format(change->old_mode);
}

struct patch patch_make(const struct layer *layer, const struct layer_change *change) {
  struct patch patch = {0};
  if (needs_remark(change))
    append_remark(&patch, change);
  mode_t old_mode = in_patch_format(change->old_mode) ? change->old_mode : 0;
  mode_t mode = in_patch_format(change->mode) ? change->mode : 0;
  bool says_more = change->contents || git_mode(old_mode) != git_mode(mode);
  if ((!mode && !old_mode) || !says_more)
    return patch;
  _cleanup_side_ struct side old = side_read(layer->lower, change->path, old_mode);
  _cleanup_side_ struct side new = side_read(layer->upper, change->path, mode);
  static const struct side nothing = {0};
  if (old_mode && mode && (old_mode & S_IFMT) != (mode & S_IFMT)) {
    append_sides(&patch, change->path, &old, &nothing, true);
    append_sides(&patch, change->path, &nothing, &new, true);
  } else {
    append_sides(&patch, change->path, &old, &new, change->contents);
  }
  return patch;
}

void patch_clear(struct patch *patch) {
  text_clear(&patch->text);
}

/* ---- for a terminal ---- */

static const char *colour_of(const char *line, size_t length) {
  static const struct {
    const char *start, *colour;
  } rows[] = {{"diff ", "\033[1m"}, {"--- ", "\033[1m"}, {"+++ ", "\033[1m"}, {"@@", "\033[36m"},
              {"+", "\033[32m"},    {"-", "\033[31m"},   {"# ", "\033[33m"}};
  for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
    if (length >= strlen(rows[i].start) && memcmp(line, rows[i].start, strlen(rows[i].start)) == 0)
      return rows[i].colour;
  return NULL;
}

static void append_visible(struct text *text, const char *line, size_t length) {
  for (size_t i = 0; i < length;) {
    unsigned code_point;
    size_t size = utf8_decode(line + i, length - i, &code_point);
    if (size && (line[i] == '\t' || !character_deceives(code_point)))
      text_append_bytes(text, line + i, size);
    else
      escape_append(text, line + i, size ? size : 1);
    i += size ? size : 1;
  }
}

void patch_append_for_terminal(struct text *text, const struct text *patch, bool colour) {
  for (size_t at = 0; at < patch->length;) {
    const char *line = patch->data + at, *end = memchr(line, '\n', patch->length - at);
    size_t length = end ? (size_t)(end - line) : patch->length - at;
    const char *shade = colour ? colour_of(line, length) : NULL;
    text_append(text, shade ? shade : "");
    append_visible(text, line, length);
    text_append(text, shade ? "\033[0m\n" : "\n");
    at += length + 1;
  }
}
