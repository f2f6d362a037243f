/* Placeholders for protected names that do not exist: something must be there to be protected, and
 * it must be gone afterwards. Each is an empty folder (invisible to git), or, below .git only, a
 * file that git reads as nothing. All of them are journalled before they are made; whoever uses
 * one holds a shared lock on it, and the last to leave removes it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "plan/plan.h"
#include "session/pool.h"

struct placeholder {
  char *path;
  char *content; /* NULL for a folder */
  int fd;        /* holds the shared lock */
};

struct placeholders {
  struct placeholder *items;
  size_t count;
  char *journal; /* path of this session's journal, NULL if none was needed */
  int journal_fd;
  struct pool pool;
};
#define PLACEHOLDERS_NONE ((struct placeholders){.journal_fd = -1, .pool = {.fd = -1}})

/* Makes those the plan asks for. On failure nothing that was made stays. */
int placeholders_create(struct placeholders *ret_placeholders, const struct plan *plan,
                        const struct host_context *host, const char *session_id,
                        struct sb_error *error);

/* Makes more of them in a running session; what was made before a failure goes at the end. */
int placeholders_extend(struct placeholders *placeholders, const struct plan *plan,
                        const struct host_context *host, const char *session_id,
                        struct sb_error *error);

/* Takes over one that was made while the session runs: journalled from now on, removed at the end.
 * `content` NULL: a folder. 0 or a negative errno. */
int placeholders_adopt(struct placeholders *placeholders, const struct host_context *host,
                       const char *session_id, const char *path, const char *content);

/* Removes those at one path, unless somebody else uses them. */
void placeholders_drop(struct placeholders *placeholders, const char *path);

/* Removes what nobody else uses, and the journal. */
void placeholders_remove(struct placeholders *placeholders);

/* Removes what sessions left behind that did not end in order. Cheap when there is nothing. */
void placeholders_recover(const struct host_context *host);

/* True if what lies at the path is a placeholder of ours (of a running or a crashed session): an
 * empty sticky folder, or a file with exactly the given content. */
bool placeholder_matches(const char *path, const char *content);
