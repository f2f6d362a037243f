/* From what a person typed to a session's id; see lookup.h. Only names that are ids are ever
 * returned, so they can be used as path components. */
#include "session/lookup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/escape.h"
#include "core/folder.h"
#include "core/id.h"
#include "core/text.h"

static bool is_id(const char *name, size_t length) {
  static const char letters[] = ID_LETTERS;
  return length == SESSION_ID_LENGTH && strspn(name, letters) >= SESSION_ID_LENGTH;
}

struct search {
  const char *suffix;
  struct strv *ids;
};

static bool take(void *context, const struct folder_entry *entry) {
  struct search *search = context;
  size_t length = strlen(entry->name), suffix = strlen(search->suffix);
  if (length > suffix && strcmp(entry->name + length - suffix, search->suffix) == 0 &&
      is_id(entry->name, length - suffix))
    strv_take(search->ids, xstrndup(entry->name, length - suffix));
  return true;
}

static int by_text(const void *first, const void *second) {
  return strcmp(*(char *const *)first, *(char *const *)second);
}

void session_ids_in(const char *folder, const char *suffix, struct strv *ret_ids) {
  struct search search = {.suffix = suffix, .ids = ret_ids};
  _cleanup_close_ int fd = folder_open(AT_FDCWD, folder);
  if (fd >= 0)
    (void)folder_read(fd, take, &search);
  if (ret_ids->count)
    qsort(ret_ids->items, ret_ids->count, sizeof *ret_ids->items, by_text);
}

static int refuse_unknown(const struct strv *ids, const char *prefix, const char *what,
                          struct sb_error *error) {
  _cleanup_free_ char *shown = escape_string(prefix);
  _cleanup_text_ struct text known = {0};
  enum { SHOWN = 8 };
  sb_fail(error, SB_CODE_NOT_FOUND, 0, "no %s of a session '%s'", what, shown);
  if (ids->count == 0)
    return sb_hint(error, "there is no %s at all", what);
  for (size_t i = 0; i < ids->count && i < SHOWN; i++)
    text_appendf(&known, " %s", ids->items[i]);
  return sb_hint(error, "there are:%s%s", text_string(&known), ids->count > SHOWN ? " ..." : "");
}

int session_find(const char *folder, const char *suffix, const char *prefix, const char *what,
                 char ret_id[SESSION_ID_LENGTH + 1], struct sb_error *error) {
  _cleanup_strv_ struct strv ids = {0};
  session_ids_in(folder, suffix, &ids);
  const char *found = NULL, *second = NULL;
  STRV_FOREACH (id, &ids) {
    if (!*prefix || strncmp(*id, prefix, strlen(prefix)) != 0)
      continue;
    second = found ? *id : second;
    found = found ? found : *id;
  }
  if (!found)
    return refuse_unknown(&ids, prefix, what, error);
  if (second) {
    sb_fail(error, SB_CODE_USAGE, 0, "'%s' is the beginning of more than one session", prefix);
    return sb_hint(error, "write more of it: %s or %s", found, second);
  }
  memcpy(ret_id, found, SESSION_ID_LENGTH + 1);
  return 0;
}
