/* The grant path: from a decision to a mount; see gate.h and waiting.h. */
#include "gate/gate.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "gate/replaced.h"
#include "gate/waiting.h"

#define ATTEMPTS 3 /* for a job whose broker dies */

/* ---- which mounts there are ---- */

static void collect_mounts(const struct plan *plan, struct strv *ret_mounts) {
  for (size_t i = 0; i < plan->operation_count; i++) {
    enum operation_kind kind = plan->operations[i].kind;
    if (kind >= OPERATION_PRIVATE && kind <= OPERATION_OVERLAY)
      strv_add(ret_mounts, plan->operations[i].path);
  }
}

bool gate_leads_to_mount(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->mounts) {
    if (path_is_under(*mount, path))
      return true;
  }
  return false;
}

/* In an empty root a grant may cover earlier ones: it shows the same objects, but for writing. The
 * FUSE gate serves such a folder by itself. */
static bool may_be_covered(const struct gate *gate, const char *mount) {
  return gate->config.plan->gate == GATE_NOTIFY && strv_contains(&gate->granted, mount) &&
         !strv_contains(&gate->granted_writable, mount);
}

static bool has_mount_below(const struct gate *gate, const char *path) {
  STRV_FOREACH (mount, &gate->mounts) {
    const char *below = path_below(*mount, path);
    if (below && below[0] && !may_be_covered(gate, *mount))
      return true;
  }
  return false;
}

/* Would a mount there be met? Not if it covers native mounts, or the folder that the call starts
 * from. */
static bool is_met(const struct gate *gate, const char *point, const char *below) {
  return !has_mount_below(gate, point) && strcmp(point, "/") != 0 &&
         !(below && path_is_under(below, point));
}

/* Where the grant of a tree is mounted for an access to `path`: at its top, unless that would cover
 * native mounts below it; then at the highest folder on the way that covers none. NULL if there is
 * none: the path is itself above a mount. */
static char *grant_point(const struct gate *gate, const char *tree, const char *path,
                         const char *below) {
  size_t length = strlen(tree);
  if (!path_is_under(path, tree))
    length = strlen(path); /* a decision for something else is not for this */
  for (;;) {
    _cleanup_free_ char *point = length ? xstrndup(path, length) : xstrdup("/");
    if (is_met(gate, point, below))
      return steal_pointer(point);
    if (path[length] == '\0')
      return NULL;
    const char *from = path + length + (path[length] == '/');
    length = (size_t)(strchrnul(from, '/') - path);
  }
}

/* ---- jobs ---- */

static void job_free(struct grant_job *job) {
  strv_clear(&job->kept);
  strv_clear(&job->masks);
  free(job->path);
  free(job);
}

static void take_back(struct gate *gate, const char *granted, struct waiting *refused);

static void note_grant(struct gate *gate, const struct grant_job *job) {
  bool writable = job->request.flags & BROKER_WRITABLE;
  strv_add(&gate->mounts, job->path);
  strv_add(&gate->granted, job->path);
  if (writable)
    strv_add(&gate->granted_writable, job->path);
  gate->config.services.granted(gate->config.services.context, job->path, writable);
  replaced_watch(gate, job->path);
}

/* There may be nothing any more that could be taken. */
static bool is_left_open(const struct grant_job *job, int result) {
  return job->request.kind == BROKER_REVOKE && result < 0 && result != -ENOENT && result != -EINVAL;
}

static void finish_job(struct gate *gate, struct grant_job *job, int result, int *fd) {
  bool mounted = job->request.kind == BROKER_GRANT && result == 0;
  if (mounted) {
    note_grant(gate, job);
    if (job->revoked) /* nobody goes on before it is gone again */
      take_back(gate, job->path, steal_pointer(job->waiting));
  }
  if (job->request.kind == BROKER_GRANT)
    gate->trigger->granted(gate, job->path, mounted);
  if (is_left_open(job, result))
    gate->config.services.held(gate->config.services.context, job->path);
  struct waiting *next;
  for (struct waiting *waiting = job->waiting; waiting; waiting = next) {
    next = waiting->next_in_job;
    waiting->job = NULL;
    if (fd && *fd >= 0)
      waiting->opened = steal_fd(fd);
    waiting->done(waiting, result == 0 && !job->revoked ? OUTCOME_RETRY : OUTCOME_REFUSE);
  }
  job_free(job);
}

static void add_job(struct gate *gate, struct grant_job *job);

/* What was to be taken away must be; and what follows the host harms nobody. */
static bool is_repeated(struct grant_job *job) {
  return job->request.kind != BROKER_GRANT && job->request.kind != BROKER_OPEN &&
         job->request.kind != BROKER_LIST && ++job->attempts < ATTEMPTS;
}

static struct grant_job *new_job(enum broker_kind kind, const char *path, unsigned flags);

/* What cannot be granted stays closed; the next question starts another broker. One that has taken
 * something back is replaced at once: it kept it covered. */
static void fail_all(struct gate *gate, int result) {
  struct grant_job *jobs = gate->jobs;
  bool looks = gate->taken_back;
  broker_end(&gate->broker);
  gate->jobs = NULL;
  for (struct grant_job *job = jobs, *next; job; job = next) {
    next = job->next;
    looks &= job->request.kind != BROKER_LOOK;
    job->next = NULL;
    job->sent = job->ready = false;
    if (is_repeated(job))
      add_job(gate, job);
    else
      finish_job(gate, job, result, NULL);
  }
  if (looks)
    add_job(gate, new_job(BROKER_LOOK, "/", 0));
}

static int need_broker(struct gate *gate) {
  if (gate->broker.channel >= 0)
    return 0;
  _cleanup_error_ struct sb_error error = {0};
  const struct broker_input input = {.user_ns = gate->config.user_ns,
                                     .mount_ns = gate->config.mount_ns,
                                     .gate = gate->config.whole};
  return broker_start(&gate->broker, &input, &error) < 0 ? -EAGAIN : 0;
}

/* To another one, if it turns out to be dead. */
static int send_job(struct gate *gate, const struct grant_job *job) {
  int result = -EPIPE;
  for (int attempt = 0; attempt < 2 && result == -EPIPE; attempt++) {
    if (attempt > 0)
      broker_end(&gate->broker);
    result = need_broker(gate);
    if (result == 0)
      result = broker_send(&gate->broker, &job->request);
  }
  return result;
}

static void send_next(struct gate *gate) {
  while (gate->jobs && !gate->jobs->sent) {
    struct grant_job *job = gate->jobs;
    int result = send_job(gate, job);
    if (result == 0) {
      job->sent = true;
      return;
    }
    gate->jobs = job->next;
    finish_job(gate, job, result, NULL);
  }
}

static void add_job(struct gate *gate, struct grant_job *job) {
  struct grant_job **last = &gate->jobs;
  while (*last)
    last = &(*last)->next;
  *last = job;
  send_next(gate);
}

/* Calls that hold a lock on the mount point let go of it now; on their second walk they wait for
 * the mount in their look-up, which holds none. */
static void announce(struct grant_job *job) {
  job->ready = true;
  for (struct waiting **place = &job->waiting; *place;) {
    struct waiting *waiting = *place;
    if (!waiting->holds_lock) {
      place = &waiting->next_in_job;
      continue;
    }
    *place = waiting->next_in_job;
    waiting->job = NULL;
    waiting->done(waiting, OUTCOME_RETRY);
  }
}

static void read_broker(struct gate *gate) {
  int result;
  _cleanup_close_ int fd = -1;
  if (!broker_receive(&gate->broker, &result, &fd)) {
    fail_all(gate, -EIO);
    return;
  }
  struct grant_job *job = gate->jobs;
  if (result == -EAGAIN || !job || !job->sent)
    return;
  if (result == BROKER_READY) {
    announce(job);
    return;
  }
  gate->jobs = job->next;
  finish_job(gate, job, result, &fd);
  send_next(gate);
}

bool gate_is_granting(const struct gate *gate, const char *path) {
  return gate->jobs && gate->jobs->sent && strcmp(gate->jobs->path, path) == 0;
}

bool gate_is_mounting(const struct gate *gate, const char *path) {
  return gate->jobs && gate->jobs->ready && strcmp(gate->jobs->path, path) == 0;
}

/* ---- from a decision to a job ---- */

static struct grant_job *find_job(const struct gate *gate, const char *path, unsigned flags) {
  for (struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->request.kind == BROKER_GRANT && job->request.flags == flags && !job->revoked &&
        strcmp(job->path, path) == 0)
      return job;
  }
  return NULL;
}

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

static struct grant_job *new_job(enum broker_kind kind, const char *path, unsigned flags) {
  struct grant_job *job = xcalloc(1, sizeof *job);
  job->path = xstrdup(path);
  job->request = (struct broker_request){
      .kind = kind, .flags = flags, .path = job->path, .kept = &job->kept, .masks = &job->masks};
  return job;
}

static void join_job(struct grant_job *job, struct waiting *waiting) {
  waiting->job = job;
  waiting->next_in_job = job->waiting;
  job->waiting = waiting;
}

static bool is_hidden(const struct gate *gate, const char *path) {
  STRV_FOREACH (hidden, &gate->config.plan->hidden) {
    if (path_is_under(path, *hidden))
      return true;
  }
  return false;
}

/* Where built-in secrets may be asked about, the question is their protection. */
bool gate_hides(const struct gate *gate, const char *path) {
  const struct policy *policy = gate->config.policy;
  if (gate_leads_to_mount(gate, path))
    return false; /* something below it is allowed */
  if (!policy->ask_secrets && is_hidden(gate, path))
    return true;
  struct decision decision = policy_decide(policy, path, ACCESS_READ);
  return decision.verdict == VERDICT_HIDE &&
         !(policy->ask_secrets && decision.rule && decision.rule->origin.store == STORE_BUILTIN);
}

/* Only what a rule hides: of our own folders nobody needs to hear. */
void gate_note_hidden(const struct gate *gate, const struct access_request *request) {
  struct decision decision = policy_decide(gate->config.policy, request->path, ACCESS_READ);
  struct answered ignored;
  if (decision.verdict == VERDICT_HIDE)
    (void)decisions_ask(gate->config.decisions, request, NULL, NULL, &ignored);
}

/* Everything in it that stays hidden. False if that cannot be known: then its parts are granted one
 * by one, each of which is looked at when it is decided about. */
static bool collect_hidden(struct gate *gate, const char *point, const char *approved,
                           struct strv *ret_masks) {
  collect_masks(gate, point, approved, ret_masks);
  return gate_is_touchable(gate, point) || second_names_find(gate, point, ret_masks);
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

static void collect_kept(const struct plan *kept, struct grant_job *job) {
  for (size_t i = 0; kept && i < kept->operation_count; i++) {
    const struct operation *operation = &kept->operations[i];
    if (!path_is_under(operation->path, job->path))
      continue;
    if (operation->kind == OPERATION_PIN || is_protection(operation->kind))
      strv_addf(&job->kept, "%c%s", operation->kind == OPERATION_PIN ? BROKER_PINS : BROKER_SEALS,
                operation->path);
    else if (operation->kind == OPERATION_MASK && !strv_contains(&job->masks, operation->path))
      strv_add(&job->masks, operation->path);
  }
}

/* Makes the job for a mount at the point; NULL if it cannot be made there. */
static struct grant_job *new_grant(struct gate *gate, const char *point, unsigned flags,
                                   const struct access_request *request) {
  struct stat status = {.st_dev = request->device, .st_ino = request->inode};
  /* The object itself was pinned when it was asked about; a folder above it is what it is now. */
  if (strcmp(point, request->path) != 0 && identify(point, &status) < 0)
    return NULL;
  struct grant_job *job = new_job(BROKER_GRANT, point, flags);
  job->request.device = status.st_dev;
  job->request.inode = status.st_ino;
  if (flags & BROKER_WRITABLE)
    collect_kept(gate->kept, job);
  if (collect_hidden(gate, point, request->path, &job->masks))
    return job;
  job_free(job);
  return NULL;
}

/* Mounts the tree (or as much of it as may be) for one waiting call. */
static void grant_at(struct gate *gate, struct waiting *waiting, const char *point, bool writable) {
  unsigned flags = (gate->config.plan->gate == GATE_NOTIFY ? BROKER_MAKE : BROKER_ANNOUNCE) |
                   (writable ? BROKER_WRITABLE : 0) | (is_hidden(gate, point) ? BROKER_UNMASK : 0);
  const struct access_request *request = &waiting->request;
  if (writable && gate->kept && is_protected(gate->kept, point)) {
    waiting->done(waiting, OUTCOME_REFUSE);
    return;
  }
  struct grant_job *job = find_job(gate, point, flags);
  bool is_new = !job;
  if (is_new)
    job = new_grant(gate, point, flags, request);
  if (!job && strcmp(point, request->path) != 0 && !request->folder) {
    grant_at(gate, waiting, request->path, writable);
    return;
  }
  if (!job) {
    waiting->done(waiting, request->folder ? OUTCOME_SERVE : OUTCOME_REFUSE);
    return;
  }
  if (job->ready && waiting->holds_lock) {
    waiting->done(waiting, OUTCOME_RETRY);
    return;
  }
  join_job(job, waiting);
  if (is_new)
    add_job(gate, job);
}

static bool is_granted(const struct gate *gate, const char *point, bool writable) {
  return strv_contains(writable ? &gate->granted_writable : &gate->granted, point);
}

/* A mount for reading answers every write by itself, and nobody is asked. So where writes are asked
 * about, FUSE serves what was allowed for reading: slower, but each write comes to us. */
static bool is_better_served(struct gate *gate, const struct waiting *waiting,
                             const struct answered *answer) {
  return gate->config.plan->ask_writes && gate->config.plan->gate == GATE_FUSE &&
         !answer->writable && !waiting->needs_mount && waiting->request.want != WANT_WRITE &&
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

static void grant(struct gate *gate, struct waiting *waiting, const struct answered *answer) {
  const char *path = waiting->request.path, *tree = answer->tree ? answer->tree : path;
  if (is_only_looked_at(waiting, tree)) {
    waiting->done(waiting, OUTCOME_SERVE);
    return;
  }
  _cleanup_free_ char *point = grant_point(gate, tree, path, waiting->below);
  waiting->lasts = is_better_served(gate, waiting, answer);
  if (waiting->lasts && !strv_contains(&gate->served, tree))
    strv_add(&gate->served, tree);
  waiting->lasts |= !point || is_granted(gate, point, answer->writable);
  if (waiting->lasts)
    waiting->done(waiting, OUTCOME_SERVE);
  else if (answer->writable && !make_ready(gate, tree))
    waiting->done(waiting, OUTCOME_REFUSE);
  else
    grant_at(gate, waiting, point, answer->writable);
}

/* Secrets and their second names are decided about one by one. */
bool gate_is_served(struct gate *gate, const struct access_request *request) {
  if (request->want == WANT_WRITE || request->want == WANT_CONNECT || gate->served.count == 0)
    return false;
  second_names_prepare(gate, request->device);
  if (is_hidden(gate, request->path) || inode_set_contains(&gate->linked, request->inode) ||
      policy_decide(gate->config.policy, request->path, ACCESS_READ).verdict == VERDICT_HIDE)
    return false;
  STRV_FOREACH (tree, &gate->served) {
    if (path_is_under(request->path, *tree))
      return true;
  }
  return false;
}

bool gate_may_become_writable(const struct gate *gate, const char *path) {
  size_t readable = 0, writable = 0; /* the deepest mount counts */
  STRV_FOREACH (mount, &gate->mounts) {
    size_t length = strlen(*mount);
    bool granted = strv_contains(&gate->granted, *mount);
    bool may = granted && !strv_contains(&gate->granted_writable, *mount);
    size_t *longest = may ? &readable : &writable;
    if (path_is_under(path, *mount) && length > *longest)
      *longest = length;
  }
  return gate->config.plan->ask_writes && readable > writable;
}

void gate_repeat(struct gate *gate, struct waiting *waiting, const char *path, const char *target) {
  struct grant_job *job = new_job(BROKER_REPEAT, path, 0);
  if (target)
    strv_add(&job->masks, target);
  if (waiting)
    join_job(job, waiting);
  if (target && waiting)
    replaced_watch(gate, path);
  add_job(gate, job);
}

void gate_forget_link(struct gate *gate, const char *path, const char *target) {
  struct grant_job *job = new_job(BROKER_FORGET, path, 0);
  strv_add(&job->masks, target);
  add_job(gate, job);
}

/* What the session has of its own, or has been granted, stays as it is. */
static bool is_native(const struct gate *gate, const char *path) {
  const struct plan *plan = gate->config.plan;
  for (size_t i = 0; i < plan->operation_count; i++) {
    if (plan->operations[i].kind >= OPERATION_LINK && strcmp(plan->operations[i].path, path) == 0)
      return true;
  }
  return gate_leads_to_mount(gate, path);
}

void gate_follow(struct gate *gate, const char *path) {
  if (gate->config.whole < 0 || is_native(gate, path))
    return;
  for (const struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->request.kind == BROKER_FOLLOW && !job->sent && strcmp(job->path, path) == 0)
      return;
  }
  add_job(gate, new_job(BROKER_FOLLOW, path, 0));
}

void gate_open(struct gate *gate, struct waiting *waiting) {
  enum broker_kind kind = waiting->request.folder ? BROKER_LIST : BROKER_OPEN;
  struct grant_job *job = new_job(kind, waiting->request.path, 0);
  job->request.device = waiting->request.device;
  job->request.inode = waiting->request.inode;
  join_job(job, waiting);
  add_job(gate, job);
}

static void settle(struct gate *gate, struct waiting *waiting, const struct answered *answer) {
  if (answer->answer != ANSWER_ALLOW)
    waiting->done(waiting, OUTCOME_REFUSE);
  else if (answer->scope == SCOPE_ONCE)
    waiting->done(waiting, OUTCOME_SERVE);
  else
    grant(gate, waiting, answer);
}

/* ---- what needs no question ---- */

/* Names of the plan may be links; what arrives here are names of objects. */
static void resolve_touched(struct gate *gate) {
  const struct strv *names[] = {&gate->config.plan->touched_read,
                                &gate->config.plan->touched_write};
  for (size_t i = 0; !gate->touched_known && i < ARRAY_SIZE(names); i++) {
    STRV_FOREACH (name, names[i]) {
      char *object;
      if (file_resolve(*name, &object) == 0)
        strv_take(&gate->touched[i], object);
    }
  }
  gate->touched_known = true;
}

/* Hidden objects are not allowed by what surrounds them. */
static bool find_touched(struct gate *gate, const char *path, struct answered *ret_answer) {
  resolve_touched(gate);
  for (size_t i = ARRAY_SIZE(gate->touched); i-- > 0;) {
    STRV_FOREACH (tree, &gate->touched[i]) {
      if (!path_is_under(path, *tree) || is_hidden(gate, path))
        continue;
      *ret_answer = (struct answered){
          .answer = ANSWER_ALLOW, .scope = SCOPE_SESSION, .tree = *tree, .writable = i == 1};
      return true;
    }
  }
  return false;
}

bool gate_is_touchable(struct gate *gate, const char *path) {
  struct answered answer;
  return find_touched(gate, path, &answer);
}

bool gate_is_writable(struct gate *gate, const char *path) {
  struct answered answer;
  return find_touched(gate, path, &answer) && answer.writable;
}

static void on_answer(void *context, uint64_t ticket, const struct answered *answer) {
  struct waiting *waiting = context;
  (void)ticket;
  waiting->ticket = 0;
  settle(waiting->gate, waiting, answer);
}

void gate_ask(struct gate *gate, struct waiting *waiting) {
  struct answered answer = {0};
  waiting->gate = gate;
  if (find_touched(gate, waiting->request.path, &answer)) {
    settle(gate, waiting, &answer);
    return;
  }
  if (!waiting->needs_mount && gate_is_served(gate, &waiting->request)) {
    waiting->lasts = true;
    waiting->done(waiting, OUTCOME_SERVE);
    return;
  }
  waiting->ticket =
      decisions_ask(gate->config.decisions, &waiting->request, on_answer, waiting, &answer);
  if (answer.answer != ANSWER_PENDING) {
    waiting->ticket = 0;
    settle(gate, waiting, &answer);
  } else {
    (void)need_broker(gate); /* while the person thinks */
    if (waiting->request.subject == SUBJECT_FILE)
      second_names_prepare(gate, waiting->request.device);
  }
}

void gate_withdraw(struct gate *gate, struct waiting *waiting) {
  if (waiting->ticket)
    decisions_withdraw(gate->config.decisions, waiting->ticket);
  waiting->ticket = 0;
  if (!waiting->job)
    return;
  struct waiting **place = &waiting->job->waiting;
  while (*place != waiting)
    place = &(*place)->next_in_job;
  *place = waiting->next_in_job;
  waiting->job = NULL;
}

/* Whoever waits for it is refused when it is gone. */
static void take_back(struct gate *gate, const char *granted, struct waiting *refused) {
  struct grant_job *job = new_job(BROKER_REVOKE, granted, 0);
  job->revoked = true;
  for (struct waiting *next; refused; refused = next) {
    next = refused->next_in_job;
    join_job(job, refused);
  }
  gate->taken_back = true;
  gate->config.services.taken(gate->config.services.context, granted);
  add_job(gate, job);
  strv_remove(&gate->mounts, granted);
  strv_remove(&gate->granted, granted);
  strv_remove(&gate->granted_writable, granted);
}

/* The next access finds a decision, and the new object is granted like any other. */
void gate_renew(struct gate *gate, const char *path) {
  _cleanup_free_ char *copy = xstrdup(path); /* the list's own goes away */
  if (strv_contains(&gate->granted, copy))
    take_back(gate, copy, NULL);
  gate->trigger->refresh(gate, copy);
  if (!strchr(copy + 1, '/'))
    gate_follow(gate, copy);
}

static bool stop_serving(struct gate *gate, const char *path) {
  bool any = false;
  for (size_t i = gate->served.count; i-- > 0;) {
    _cleanup_free_ char *tree = xstrdup(gate->served.items[i]);
    if (!path_is_under(tree, path) && !path_is_under(path, tree))
      continue;
    any = true;
    strv_remove(&gate->served, tree);
  }
  return any;
}

/* Those that are not mounted yet. */
static bool revoke_jobs(struct gate *gate, const char *path) {
  bool any = false;
  for (struct grant_job *job = gate->jobs; job; job = job->next) {
    bool concerned = job->request.kind == BROKER_GRANT &&
                     (path_is_under(job->path, path) || path_is_under(path, job->path));
    job->revoked |= concerned;
    any |= concerned;
  }
  return any;
}

bool gate_is_revoking(const struct gate *gate) {
  for (const struct grant_job *job = gate->jobs; job; job = job->next) {
    if (job->revoked)
      return true;
  }
  return false;
}

bool gate_revoke(struct gate *gate, const char *path) {
  bool any = stop_serving(gate, path);
  any |= revoke_jobs(gate, path);
  for (size_t i = gate->granted.count; i-- > 0;) {
    _cleanup_free_ char *granted = xstrdup(gate->granted.items[i]);
    /* A grant inside the tree, or the one that the path lies in. */
    if (!path_is_under(granted, path) && !path_is_under(path, granted))
      continue;
    any = true;
    take_back(gate, granted, NULL);
  }
  return any;
}

/* ---- the monitor's side ---- */

int gate_new(const struct gate_config *config, struct gate **ret_gate, struct sb_error *error) {
  struct gate *gate = xcalloc(1, sizeof *gate);
  *gate = (struct gate){.config = *config, .broker = BROKER_NONE, .changes = -1};
  gate->trigger = config->plan->gate == GATE_NOTIFY ? &notify_trigger : &fuse_trigger;
  gate->watched_fd = config->trigger;
  collect_mounts(config->plan, &gate->mounts);
  if (gate->trigger->open(gate, config->trigger, error) < 0) {
    gate_free(gate);
    return -1;
  }
  *ret_gate = gate;
  return 0;
}

void gate_free(struct gate *gate) {
  if (!gate)
    return;
  gate->trigger->close(gate); /* first: it lets go of whoever waits, the broker included */
  broker_end(&gate->broker);
  for (struct grant_job *job = gate->jobs, *next; job; job = next) {
    next = job->next;
    job_free(job);
  }
  replaced_clear(gate);
  close(gate->config.mount_ns);
  close(gate->config.user_ns);
  if (gate->config.pid_ns >= 0)
    close(gate->config.pid_ns);
  if (gate->config.whole >= 0)
    fd_abandon(gate->config.whole);
  if (gate->config.root >= 0)
    close(gate->config.root);
  strv_clear(&gate->mounts);
  strv_clear(&gate->granted);
  strv_clear(&gate->granted_writable);
  strv_clear(&gate->served);
  strv_clear(&gate->touched[0]);
  strv_clear(&gate->touched[1]);
  inode_set_clear(&gate->linked);
  gate_forget_asked(gate);
  free(gate);
}

enum { WATCH_TRIGGER, WATCH_BROKER, WATCH_CHANGES };

void gate_watch(const struct gate *gate, struct pollfd ret_watched[GATE_WATCH_COUNT]) {
  ret_watched[WATCH_TRIGGER] =
      (struct pollfd){.fd = gate ? gate->watched_fd : -1, .events = POLLIN};
  ret_watched[WATCH_BROKER] =
      (struct pollfd){.fd = gate ? gate->broker.channel : -1, .events = POLLIN};
  ret_watched[WATCH_CHANGES] = (struct pollfd){.fd = gate ? gate->changes : -1, .events = POLLIN};
}

void gate_serve(struct gate *gate, const struct pollfd watched[GATE_WATCH_COUNT]) {
  if (!gate)
    return;
  if (watched[WATCH_BROKER].revents && watched[WATCH_BROKER].fd == gate->broker.channel)
    read_broker(gate);
  if (watched[WATCH_TRIGGER].revents)
    gate->trigger->serve(gate);
  if (watched[WATCH_CHANGES].revents)
    replaced_read(gate);
  if (gate->signalled && gate->trigger->look)
    gate->trigger->look(gate);
}

bool gate_wants_look(const struct gate *gate) {
  return gate && gate->signalled;
}
