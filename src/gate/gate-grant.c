/* From a decision to a mount: where it goes, what in it stays hidden or protected. What cannot be
 * known for sure is not granted as a whole. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/gate-private.h"
#include "plan/distant.h"
#include "plan/inodes.h"
#include "plan/named-secrets.h"
#include "plan/second-names.h"

/* ---- where ---- */

/* Is it called like a secret, so that no answer for a folder above it was meant for it? */
static bool is_named_secret(const struct gate *gate, const char *path) {
  return policy_decide(gate->config.policy, path, ACCESS_READ).secret;
}

/* A grant may cover earlier ones: it shows the same objects, but for a secret that was allowed by
 * itself, and one for reading does not let them be written to. Nor is one for reading needed with
 * FUSE, which serves such a folder by itself. */
static bool may_be_covered(const struct gate *gate, const char *mount, bool writable) {
  bool suffices = writable || (gate->config.plan->gate == GATE_NOTIFY &&
                               !strv_contains(&gate->granted_writable, mount));
  return suffices && strv_contains(&gate->granted, mount) && !is_named_secret(gate, mount);
}

static bool is_below(const char *path, const char *folder) {
  const char *below = path_below(path, folder);
  return below && below[0];
}

/* What an answer that was kept allows to write to is mounted when it is first used, also in a
 * folder that may only be read; so is a cache in a folder of tools. */
static bool has_writable_below(const struct policy *policy, const char *path) {
  for (size_t i = 0; i < policy->rule_count; i++) {
    const struct rule *rule = &policy->rules[i];
    if (rule->granted && rule->kind == RULE_WRITE && is_below(rule->pattern, path))
      return true;
  }
  return false;
}

static bool has_mount_below(const struct gate *gate, const char *path, bool writable) {
  STRV_FOREACH (mount, &gate->mounts) {
    if (is_below(*mount, path) && !may_be_covered(gate, *mount, writable))
      return true;
  }
  return !writable &&
         (has_writable_below(gate->config.policy, path) || touched_has_writable_below(gate, path));
}

/* Would a mount there be met? Not if it covers native mounts, or the folder that the call starts
 * from. */
static bool is_met(const struct gate *gate, const char *point, const char *below, bool writable) {
  return !has_mount_below(gate, point, writable) && strcmp(point, "/") != 0 &&
         !(below && path_is_under(below, point));
}

/* What a person took back in it comes with nothing else; what policy itself allows is as it says.
 */
static bool holds_revoked(struct gate *gate, const char *point, bool writable) {
  return decisions_revoked_below(gate->config.decisions, point, writable) &&
         !gate_is_touchable(gate, point);
}

/* Where the grant of a tree is mounted for an access to `path`: at its top, unless that would cover
 * native mounts below it, or open what was revoked there; then at the highest folder on the way of
 * which that is not so. NULL if there is none: the path is itself above a mount. */
static char *grant_point(struct gate *gate, const char *tree, const char *path, const char *below,
                         bool writable) {
  size_t length = strlen(tree);
  if (!path_is_under(path, tree))
    length = strlen(path); /* a decision for something else is not for this */
  for (;;) {
    _cleanup_free_ char *point = length ? xstrndup(path, length) : xstrdup("/");
    if (is_met(gate, point, below, writable) && !holds_revoked(gate, point, writable))
      return steal_pointer(point);
    if (path[length] == '\0')
      return NULL;
    const char *from = path + length + (path[length] == '/');
    length = (size_t)(strchrnul(from, '/') - path);
  }
}

/* ---- what stays hidden in it ---- */

/* The object at a canonical path, on the host. */
static int identify(const char *path, struct stat *ret_status) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  return fd < 0 || fstat(fd, ret_status) < 0 ? -errno : 0;
}

/* Every hidden object below the point, but for one that was itself approved. */
static void collect_masks(const struct gate *gate, const char *point, const char *approved,
                          struct strv *ret_masks) {
  STRV_FOREACH (hidden, &gate->config.plan->hidden) {
    bool inside = path_is_under(*hidden, point) && strcmp(*hidden, point) != 0;
    if (inside && !path_is_under(approved, *hidden))
      strv_add(ret_masks, *hidden);
  }
}

/* What a person denied in it before. What is not there now may come back: then the keeper masks it,
 * and what must not be written has its place taken. Where nothing can be written, a denied write is
 * none. False if it cannot be kept so. */
static bool mind_denials(struct gate *gate, const char *point, bool writable) {
  const struct gate_services *services = &gate->config.services;
  for (int writes = 0; writes <= writable; writes++) {
    _cleanup_strv_ struct strv denied = {0};
    decisions_denied_below(gate->config.decisions, point, writes, &denied);
    STRV_FOREACH (path, &denied) {
      const struct denied_name name = {
          .path = *path, .place = writable ? point : NULL, .writes = writes};
      const struct plan *kept = services->deny(services->context, &name);
      if (!kept)
        return false;
      gate->kept = kept;
    }
  }
  return true;
}

/* The names in a folder by which hidden files could be read. False: it is too large to know. */
static bool find_second_names(const struct strv *hidden, const char *folder,
                              struct strv *ret_names) {
  const struct second_names request = {.hidden = hidden, .limit = GRANT_ENTRY_LIMIT};
  return second_names_find(&request, folder, ret_names);
}

/* What is called like a secret in all that an answer allowed, of which the point may be a part: a
 * file in it may be one by another name. Of more than can be looked at, in the part. */
static bool find_named(const struct gate *gate, const char *tree, const char *point,
                       struct strv *ret_named) {
  if (named_secrets_find(gate->config.policy, tree, GRANT_ENTRY_LIMIT, ret_named))
    return true;
  strv_clear(ret_named);
  return named_secrets_find(gate->config.policy, point, GRANT_ENTRY_LIMIT, ret_named);
}

/* What is called like a secret, in a folder that was allowed by an answer, and the other names in
 * it of such a file. What a rule allows is as it was written, and a folder that is itself called so
 * was allowed in spite of that. */
static bool collect_named(const struct gate *gate, const char *tree, const char *point,
                          const char *approved, struct strv *ret_masks) {
  struct stat status;
  struct decision decision = policy_decide(gate->config.policy, point, ACCESS_READ);
  bool answered = decision.verdict == VERDICT_ASK || (decision.rule && decision.rule->granted);
  if (!answered || decision.secret || lstat(point, &status) < 0 || !S_ISDIR(status.st_mode))
    return true;
  _cleanup_strv_ struct strv named = {0}, linked = {0};
  bool known = find_named(gate, tree, point, &named) && find_second_names(&named, point, &linked);
  STRV_FOREACH (path, &named) {
    if (path_is_under(*path, point))
      strv_add(ret_masks, *path);
  }
  STRV_FOREACH (path, &linked) {
    if (!strv_contains(&named, *path))
      strv_add(ret_masks, *path);
  }
  strv_remove(ret_masks, approved); /* what a link called so leads to, and was asked about */
  return known;
}

/* Is it in a folder that was allowed, and the same file as one in it that is called like a secret?
 */
static bool is_secret_by_another_name(struct gate *gate, const char *tree, const char *path) {
  struct stat status;
  _cleanup_strv_ struct strv named = {0};
  return strcmp(tree, path) != 0 && !gate_is_touchable(gate, path) && lstat(path, &status) == 0 &&
         S_ISREG(status.st_mode) && status.st_nlink > 1 &&
         named_secrets_find(gate->config.policy, tree, GRANT_ENTRY_LIMIT, &named) &&
         !strv_contains(&named, path) && inode_is_hidden(&named, &status);
}

/* Everything in it that stays hidden. False if that cannot be known: then its parts are granted one
 * by one, each of which is looked at when it is decided about. */
static bool collect_hidden(struct gate *gate, const char *tree, const char *point,
                           const char *approved, struct strv *ret_masks) {
  collect_masks(gate, point, approved, ret_masks);
  if (gate_is_touchable(gate, point))
    return true;
  if (strv_contains(&gate->too_large, point))
    return false;
  if (find_second_names(&gate->config.plan->hidden, point, ret_masks) &&
      collect_named(gate, tree, point, approved, ret_masks))
    return true;
  strv_add(&gate->too_large, point);
  return false;
}

/* ---- protected names in what is granted for writing ---- */

static bool is_protection(enum operation_kind kind) {
  return kind == OPERATION_PROTECT || kind == OPERATION_SEAL;
}

/* The point of a grant may lie deeper than the tree that was allowed: in something protected, that
 * was not what was meant. */
static bool is_protected(const struct plan *kept, const char *point) {
  for (size_t i = 0; i < kept->operation_count; i++) {
    const struct operation *operation = &kept->operations[i];
    if (is_protection(operation->kind) && path_is_under(point, operation->path))
      return true;
  }
  return false;
}

/* Where nothing can be written, only masks matter. */
static void collect_kept(const struct plan *kept, const char *approved, struct grant_job *job) {
  bool writable = job->request.flags & BROKER_WRITABLE;
  for (size_t i = 0; kept && i < kept->operation_count; i++) {
    const struct operation *operation = &kept->operations[i];
    if (!path_is_under(operation->path, job->path))
      continue;
    if (writable && (operation->kind == OPERATION_PIN || is_protection(operation->kind)))
      strv_addf(&job->kept, "%c%s", operation->kind == OPERATION_PIN ? BROKER_PINS : BROKER_SEALS,
                operation->path);
    else if (operation->kind == OPERATION_MASK && !path_is_under(approved, operation->path) &&
             !strv_contains(&job->masks, operation->path))
      strv_add(&job->masks, operation->path);
  }
}

/* Files that were granted for writing by themselves, each a mount in what was mounted for reading:
 * with FUSE they are in the gate, where they are in nobody's way. */
static void collect_dropped(const struct gate *gate, struct grant_job *job) {
  if (gate->config.plan->gate != GATE_NOTIFY || !(job->request.flags & BROKER_WRITABLE))
    return;
  STRV_FOREACH (mount, &gate->granted_writable) {
    struct stat status;
    if (is_below(*mount, job->path) && identify(*mount, &status) == 0 && S_ISREG(status.st_mode))
      strv_addf(&job->kept, "%c%s", BROKER_DROPS, *mount);
  }
}

/* ---- the job ---- */

/* Makes the job for a mount at the point, of the tree that was allowed; NULL if it cannot be made
 * there. */
static struct grant_job *new_grant(struct gate *gate, const char *tree, const char *point,
                                   unsigned flags, const struct access_request *request) {
  struct stat status = {.st_dev = request->device, .st_ino = request->inode};
  /* The object itself was pinned when it was asked about; a folder above it is what it is now. */
  if (strcmp(point, request->path) != 0 && identify(point, &status) < 0)
    return NULL;
  struct grant_job *job = job_new(BROKER_GRANT, point, flags);
  job->request.device = status.st_dev;
  job->request.inode = status.st_ino;
  bool minded = mind_denials(gate, point, flags & BROKER_WRITABLE);
  collect_kept(gate->kept, request->path, job);
  collect_dropped(gate, job);
  bool known = minded && collect_hidden(gate, tree, point, request->path, &job->masks);
  if (known && broker_can_take(&job->request))
    return job;
  if (known && !strv_contains(&gate->too_large, point))
    strv_add(&gate->too_large, point);
  job_free(job);
  return NULL;
}

static struct grant_job *find_job(const struct gate *gate, const char *path, unsigned flags) {
  for (struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->request.kind == BROKER_GRANT && job->request.flags == flags && !job->revoked &&
        strcmp(job->path, path) == 0)
      return job;
  }
  return NULL;
}

static unsigned grant_flags(const struct gate *gate, const char *point, bool writable) {
  return (gate->config.plan->gate == GATE_NOTIFY ? BROKER_MAKE : BROKER_ANNOUNCE) |
         (writable ? BROKER_WRITABLE : 0) |
         (gate_is_hidden(gate, point) || is_named_secret(gate, point) ? BROKER_UNMASK : 0);
}

/* What an answer allows. */
struct extent {
  const char *tree;
  bool writable;
};

static void grant_at(struct gate *gate, struct waiting *waiting, const char *point,
                     struct extent extent);

/* The whole of it cannot be granted: the next folder on the way to the object, the object alone,
 * or, of a folder, what is served. */
static void grant_less(struct gate *gate, struct waiting *waiting, const char *point,
                       struct extent extent) {
  const struct access_request *request = &waiting->request;
  const char *below = path_below(request->path, point);
  if (below && below[0]) {
    size_t length = (size_t)(below - request->path) + strcspn(below, "/");
    _cleanup_free_ char *next = xstrndup(request->path, length);
    grant_at(gate, waiting, next, extent);
  } else if (request->folder)
    waiting->done(waiting, OUTCOME_SERVE);
  else
    waiting->done(waiting, OUTCOME_REFUSE);
}

/* Mounts the tree (or as much of it as may be) for one waiting call. */
static void grant_at(struct gate *gate, struct waiting *waiting, const char *point,
                     struct extent extent) {
  unsigned flags = grant_flags(gate, point, extent.writable);
  if (extent.writable && gate->kept && is_protected(gate->kept, point)) {
    waiting->done(waiting, OUTCOME_REFUSE);
    return;
  }
  struct grant_job *known = find_job(gate, point, flags);
  struct grant_job *job =
      known ? known : new_grant(gate, extent.tree, point, flags, &waiting->request);
  if (!job) {
    grant_less(gate, waiting, point, extent);
    return;
  }
  if (job->announced && waiting->holds_lock) {
    job_send_away(job, waiting);
    return;
  }
  job_join(job, waiting);
  if (!known)
    job_add(gate, job);
}

/* ---- does it take a mount? ---- */

static bool is_granted(const struct gate *gate, const char *point, bool writable) {
  return strv_contains(writable ? &gate->granted_writable : &gate->granted, point);
}

/* A watch needs the object itself, which a mount gives, but also who makes it in the caller's
 * place. A socket is nothing that one writes to. */
static bool needs_mount(const struct waiting *waiting) {
  const struct access_request *request = &waiting->request;
  return waiting->needs_mount && (request->lasting || request->want == WANT_CONNECT);
}

/* A mount for reading answers every write by itself, and nobody is asked. So where writes are asked
 * about, FUSE serves what was allowed for reading: slower, but each write comes to us. */
static bool is_better_served(struct gate *gate, const struct waiting *waiting,
                             const struct answered *answer) {
  return gate->config.plan->ask_writes && gate->config.plan->gate == GATE_FUSE &&
         !answer->writable && !needs_mount(waiting) && waiting->request.want != WANT_WRITE &&
         !gate_is_touchable(gate, waiting->request.path);
}

/* Whoever may look at a socket may not speak to it yet, and a mount would allow both. */
static bool is_only_looked_at(const struct waiting *waiting, const char *tree) {
  const struct access_request *request = &waiting->request;
  return request->socket && request->want != WANT_CONNECT && !waiting->needs_mount &&
         strcmp(tree, request->path) == 0;
}

/* A file is what was asked about, by its name; and what policy itself allows is as it says. */
static bool make_ready(struct gate *gate, const char *tree) {
  struct stat status;
  if (gate_is_touchable(gate, tree) || identify(tree, &status) < 0 || !S_ISDIR(status.st_mode))
    return true;
  const struct plan *kept = gate->config.services.prepare(gate->config.services.context, tree);
  gate->kept = kept ? kept : gate->kept;
  return kept;
}

void gate_grant(struct gate *gate, struct waiting *waiting, const struct answered *answer) {
  const char *path = waiting->request.path, *tree = answer->tree ? answer->tree : path;
  if (is_only_looked_at(waiting, tree)) {
    waiting->done(waiting, OUTCOME_SERVE);
    return;
  }
  if (distant_reads_tree(tree) < 0) {
    decisions_note_failed(gate->config.decisions, &waiting->request, ETIMEDOUT);
    waiting->done(waiting, OUTCOME_REFUSE);
    return;
  }
  if (is_secret_by_another_name(gate, tree, path)) {
    decisions_note_failed(gate->config.decisions, &waiting->request, EPERM);
    waiting->done(waiting, OUTCOME_REFUSE);
    return;
  }
  _cleanup_free_ char *point = grant_point(gate, tree, path, waiting->below, answer->writable);
  waiting->lasts = is_better_served(gate, waiting, answer);
  if (waiting->lasts && !strv_contains(&gate->served, tree))
    strv_add(&gate->served, tree);
  waiting->lasts |= !point || is_granted(gate, point, answer->writable);
  /* A mount would cover others that the session has from its start: only a rule can put it below
   * those. */
  if (!point && waiting->request.want == WANT_WRITE)
    decisions_note_refused(gate->config.decisions, &waiting->request, "above what is mounted");
  if (waiting->lasts)
    waiting->done(waiting, OUTCOME_SERVE);
  else if (answer->writable && !make_ready(gate, tree))
    waiting->done(waiting, OUTCOME_REFUSE);
  else
    grant_at(gate, waiting, point, (struct extent){tree, answer->writable});
}
