/* Other names of an object: where else on this machine a mount shows it. A secret that is masked at
 * one path and open at another is not masked. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "plan/mounts.h"

const struct mount_entry *mount_of(const struct mount_table *table, const char *path) {
  const struct mount_entry *best = NULL;
  for (size_t i = 0; i < table->count; i++) {
    const struct mount_entry *entry = &table->entries[i];
    if (path_is_under(path, entry->point) && (!best || strlen(entry->point) >= strlen(best->point)))
      best = entry;
  }
  return best;
}

/* Where `other` shows what lies at `inner` of the file system, or NULL. A mount of something
 * inside the object is an alias as a whole. */
static char *seen_through(const struct mount_entry *other, const char *inner) {
  const char *below = path_below(inner, other->root);
  if (below)
    return below[0] ? path_join(other->point, below) : xstrdup(other->point);
  return path_is_under(other->root, inner) ? xstrdup(other->point) : NULL;
}

void mount_aliases(const struct mount_table *table, const char *path, struct strv *ret_aliases) {
  const struct mount_entry *own = mount_of(table, path);
  if (!own)
    return;
  _cleanup_free_ char *inner = path_join(own->root, path_below(path, own->point));
  for (size_t i = 0; i < table->count; i++) {
    const struct mount_entry *other = &table->entries[i];
    if (other == own || strcmp(other->device, own->device) != 0)
      continue;
    char *alias = seen_through(other, inner);
    if (alias && strcmp(alias, path) != 0)
      strv_take(ret_aliases, alias);
    else
      free(alias);
  }
}

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape_octal(char *text) {
  char *out = text;
  for (const char *in = text; *in; in++) {
    if (in[0] == '\\' && in[1] >= '0' && in[1] <= '3' && in[2] && in[3]) {
      *out++ = (char)((in[1] - '0') << 6 | (in[2] - '0') << 3 | (in[3] - '0'));
      in += 3;
    } else {
      *out++ = *in;
    }
  }
  *out = '\0';
}

/* After options and marks, of which there may be any number. */
static const char *type_in(char *rest) {
  char *mark = strstr(rest, " - ");
  if (!mark)
    return "";
  char *type = mark + strlen(" - ");
  type[strcspn(type, " ")] = '\0';
  return type;
}

static void add_line(struct mount_table *table, char *line) {
  char *fields[5], *rest = NULL;
  for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
    fields[i] = strtok_r(i ? NULL : line, " ", &rest);
    if (!fields[i])
      return;
  }
  unescape_octal(fields[3]);
  unescape_octal(fields[4]);
  ARRAY_GROW(table->entries, table->count);
  table->entries[table->count++] = (struct mount_entry){
      .device = fields[2], .root = fields[3], .point = fields[4], .type = type_in(rest)};
}

int mount_table_load(struct mount_table *ret_table) {
  struct mount_table table = {0};
  int result = file_read_at(AT_FDCWD, "/proc/self/mountinfo", 64 << 20, &table.text, NULL);
  if (result < 0)
    return result;
  char *rest = NULL;
  for (char *line = strtok_r(table.text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
    add_line(&table, line);
  *ret_table = table;
  return 0;
}

void mount_table_clear(struct mount_table *table) {
  free(table->entries);
  free(table->text);
  *table = (struct mount_table){0};
}
