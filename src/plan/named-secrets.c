/* The search for files with the names of secrets; see named-secrets.h. */
#include "plan/named-secrets.h"

#include <dirent.h>
#include <string.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "plan/walk.h"

/* All that are found must fit into one message to who covers them. */
#define FOUND_BYTES (64u << 10)

struct search {
  const struct policy *policy;
  const char *folder;
  struct strv *paths;
  size_t left;  /* entries to look at */
  size_t bytes; /* of what was found */
  bool failed;
};

static void note(struct search *search, char *path) {
  search->bytes += strlen(path) + 1;
  search->failed |= search->bytes > FOUND_BYTES;
  strv_take(search->paths, path);
}

/* What it leads to outside of the folder is asked about by its own name. */
static void note_behind_link(struct search *search, const char *link) {
  _cleanup_free_ char *target = NULL;
  if (file_resolve(link, &target) < 0 || path_is_under(link, target))
    return;
  const char *below = path_below(target, search->folder);
  if (below && below[0] &&
      policy_decide(search->policy, target, ACCESS_READ).verdict == VERDICT_ASK)
    note(search, steal_pointer(target));
}

/* True if it is covered with all that is in it. */
static bool note_match(struct search *search, const struct walk_entry *entry) {
  _cleanup_free_ char *path = path_join(search->folder, entry->path);
  if (!policy_decide(search->policy, path, ACCESS_READ).secret)
    return false;
  if (entry->type == DT_LNK || entry->type == DT_UNKNOWN)
    note_behind_link(search, path);
  if (entry->type != DT_LNK)
    note(search, steal_pointer(path));
  return true;
}

/* The same folders are left out as in the project. */
static bool visit(void *context, const struct walk_entry *entry) {
  struct search *search = context;
  if (search->failed || search->left == 0) {
    search->failed = true;
    return false;
  }
  search->left--;
  if (secret_of_name(entry->name, strlen(entry->name)) && note_match(search, entry))
    return false;
  return !walk_is_bulk(entry->name);
}

bool named_secrets_find(const struct policy *policy, const char *folder, size_t limit,
                        struct strv *ret_paths) {
  struct search search = {.policy = policy, .folder = folder, .paths = ret_paths, .left = limit};
  walk_folder(folder, 0, visit, &search);
  return !search.failed;
}
