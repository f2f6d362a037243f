/* What was decided for the rest of the session; see approvals.h. */
#include "session/approvals.h"

#include <stdlib.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "policy/grants.h"

enum access_class access_class_of(enum want want) {
  return want == WANT_WRITE ? CLASS_WRITE : want == WANT_CONNECT ? CLASS_CONNECT : CLASS_READ;
}

static bool is_name(const char *name, const char *other) {
  return name && other && strcmp(name, other) == 0;
}

/* What was taken back stays so: an answer comes beside it. */
static bool is_same_object(const struct approval *first, const struct approval *second) {
  if (first->subject != second->subject || first->write != second->write ||
      first->connect != second->connect || first->names != second->names ||
      (first->verdict == APPROVAL_ASK) != (second->verdict == APPROVAL_ASK))
    return false;
  return first->subject == SUBJECT_NETWORK
             ? is_name(first->host, second->host) && first->port == second->port
             : is_name(first->path, second->path) && first->device == second->device &&
                   first->inode == second->inode;
}

static void remove_at(struct approvals *approvals, size_t index) {
  free(approvals->items[index].path);
  free(approvals->items[index].host);
  approvals->count--;
  memmove(approvals->items + index, approvals->items + index + 1,
          (approvals->count - index) * sizeof *approvals->items);
}

/* What allows is missed least: it is asked about again. To forget a denial could open what lies in
 * an allowed folder, and a revocation is never forgotten; there are no more of them than grants. */
static void make_room(struct approvals *approvals) {
  static const enum approval_verdict forgotten[] = {APPROVAL_ALLOW, APPROVAL_DENY};
  for (size_t i = 0; i < ARRAY_SIZE(forgotten); i++) {
    for (size_t index = 0; index < approvals->count; index++) {
      if (approvals->items[index].verdict != forgotten[i])
        continue;
      remove_at(approvals, index);
      return;
    }
  }
}

void approvals_add(struct approvals *approvals, const struct approval *approval) {
  for (size_t i = approvals->count; i-- > 0;) {
    if (is_same_object(&approvals->items[i], approval))
      remove_at(approvals, i);
  }
  if (approvals->count >= APPROVALS_LIMIT)
    make_room(approvals);
  ARRAY_GROW(approvals->items, approvals->count);
  struct approval *added = &approvals->items[approvals->count++];
  *added = *approval;
  added->path = approval->path ? xstrdup(approval->path) : NULL;
  added->host = approval->host ? xstrdup(approval->host) : NULL;
}

static bool covers_class(const struct approval *approval, enum access_class class) {
  switch (approval->verdict) {
  case APPROVAL_ALLOW:
    if (class == CLASS_CONNECT && approval->subject == SUBJECT_FILE)
      return approval->connect;
    return class != CLASS_WRITE || approval->write;
  case APPROVAL_DENY:
    return class == CLASS_WRITE || !approval->write;
  default:
    return true;
  }
}

/* A name that the workload can give to another object proves nothing. */
static bool is_for_object(const struct approval *approval, const struct access_request *request) {
  if (approval->verdict != APPROVAL_ALLOW || (approval->inode == 0 && !request->movable))
    return true;
  return approval->device == request->device && approval->inode == request->inode;
}

static bool covers_path(const struct approval *approval, const struct access_request *request) {
  if (approval->names)
    return request->names && is_name(approval->path, request->path);
  return path_is_under(request->path, approval->path) && is_for_object(approval, request);
}

/* How much of the request it names: components of the path, or whether it names the port; -1 if it
 * does not cover the request at all. */
static long depth_of(const struct approval *approval, const struct access_request *request) {
  if (approval->subject != request->subject ||
      !covers_class(approval, access_class_of(request->want)))
    return -1;
  if (request->subject == SUBJECT_FILE)
    return covers_path(approval, request) ? (long)path_depth(approval->path) : -1;
  bool covers = is_name(approval->host, request->host) &&
                (approval->port == 0 || approval->port == request->port);
  return covers ? approval->port != 0 : -1;
}

const struct approval *approvals_find(const struct approvals *approvals,
                                      const struct access_request *request) {
  const struct approval *best = NULL;
  long best_depth = -1;
  for (size_t i = 0; i < approvals->count; i++) {
    long depth = depth_of(&approvals->items[i], request);
    if (depth < 0 || depth < best_depth)
      continue;
    best = &approvals->items[i];
    best_depth = depth;
  }
  return best;
}

static bool is_denied(const struct approvals *approvals, const char *path, enum want want) {
  struct access_request request = {.subject = SUBJECT_FILE, .want = want, .path = path};
  const struct approval *approval = approvals_find(approvals, &request);
  return approval && approval->verdict == APPROVAL_DENY;
}

void approvals_denied_below(const struct approvals *approvals, const char *tree, bool writes,
                            struct strv *ret_paths) {
  for (size_t i = 0; i < approvals->count; i++) {
    const struct approval *item = &approvals->items[i];
    if (item->subject != SUBJECT_FILE || item->verdict != APPROVAL_DENY || item->write != writes ||
        !path_is_under(item->path, tree) || strcmp(item->path, tree) == 0)
      continue;
    if (is_denied(approvals, item->path, writes ? WANT_WRITE : WANT_READ) &&
        !strv_contains(ret_paths, item->path))
      strv_add(ret_paths, item->path);
  }
}

bool approvals_is_revoked(const struct approvals *approvals, const struct access_request *request) {
  for (size_t i = 0; i < approvals->count; i++) {
    if (approvals->items[i].verdict == APPROVAL_ASK && depth_of(&approvals->items[i], request) >= 0)
      return true;
  }
  return false;
}

static bool is_open_again(const struct approvals *approvals, const char *path, bool writes) {
  struct access_request request = {
      .subject = SUBJECT_FILE, .want = writes ? WANT_WRITE : WANT_READ, .path = path};
  const struct approval *last = approvals_find(approvals, &request);
  return last && last->verdict != APPROVAL_ASK;
}

bool approvals_revoked_below(const struct approvals *approvals, const char *tree, bool writes) {
  for (size_t i = 0; i < approvals->count; i++) {
    const struct approval *item = &approvals->items[i];
    if (item->subject == SUBJECT_FILE && item->verdict == APPROVAL_ASK &&
        path_is_under(item->path, tree) && strcmp(item->path, tree) != 0 &&
        !is_open_again(approvals, item->path, writes))
      return true;
  }
  return false;
}

static bool is_meant(const struct approval *item, enum access_subject subject, const char *name) {
  if (item->subject != subject)
    return false;
  return subject == SUBJECT_FILE ? is_name(item->path, name)
                                 : item->host && grant_host_is(item->host, item->port, name);
}

size_t approvals_remove(struct approvals *approvals, enum access_subject subject, const char *name,
                        bool *ret_denials) {
  size_t removed = 0, denials = 0;
  for (size_t i = approvals->count; i-- > 0;) {
    const struct approval *item = &approvals->items[i];
    if (!is_meant(item, subject, name))
      continue;
    denials += item->verdict == APPROVAL_DENY;
    remove_at(approvals, i);
    removed++;
  }
  *ret_denials = removed > 0 && denials == removed;
  return removed;
}

bool approvals_remove_names(struct approvals *approvals, const char *path) {
  for (size_t i = 0; i < approvals->count; i++) {
    if (!approvals->items[i].names || !is_name(approvals->items[i].path, path))
      continue;
    remove_at(approvals, i);
    return true;
  }
  return false;
}

void approvals_clear(struct approvals *approvals) {
  while (approvals->count > 0)
    remove_at(approvals, approvals->count - 1);
  free(approvals->items);
  approvals->items = NULL;
}
