/* The keeper; see keeper.h. A forked copy of the monitor: it has the plan and the policy in memory,
 * and nothing of the monitor's descriptors. */
#include "engine/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/path.h"
#include "engine/keeping.h"

/* The trees are walked when the session has turned out to be a longer one; after lost events no
 * more often than that, since the workload can bring it about. */
#define WALK_AFTER_NS (100ull * 1000 * 1000)
#define WALK_SHARE    20 /* of the time that passes, a twentieth at most */
#define POLL_MS       50
#define WRITER_MS     5
#define CHECK_BATCH   32
#define SLICE_NS      (100ull * 1000) /* the least there is */

/* ---- its own side ---- */

/* What is only told for the record is dropped rather than waited for. */
void keeping_tell(const struct keeping *keeping, enum keeper_kind kind, int errnum,
                  const char *path) {
  struct keeper_report report = {.kind = (int32_t)kind, .errnum = errnum};
  size_t length = strlen(path);
  if (length >= sizeof report.path)
    length = sizeof report.path - 1;
  memcpy(report.path, path, length);
  bool matters = kind != KEEPER_RENEWED && kind != KEEPER_HIDDEN;
  (void)send(keeping->channel, &report, offsetof(struct keeper_report, path) + length + 1,
             MSG_NOSIGNAL | (matters ? 0 : MSG_DONTWAIT));
}

static _Noreturn void leave(const struct keeping *keeping) {
  if (keeping->changes >= 0)
    fd_abandon(keeping->changes);
  keeping_tell(keeping, KEEPER_DONE, 0, "");
  _exit(0);
}

/* The session's end waits for us: in the middle of longer work we look whether it has come. */
static void leave_if_dismissed(const struct keeping *keeping) {
  char byte;
  if (recv(keeping->channel, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
    leave(keeping);
}

static int check_writers(struct keeping *keeping, struct kept_name *name) {
  return name->kind == KEPT_SEAL ? renew_check_writers(keeping, name) : 0;
}

static void tell_of(struct keeping *keeping, struct kept_name *name, int first, int second) {
  bool renewed = first > 0 || second > 0;
  int writers = renewed || name->writer_until_ns ? check_writers(keeping, name) : 0;
  int failed = first < 0 ? first : second < 0 ? second : writers < 0 ? writers : 0;
  if (failed)
    keeping_tell(keeping, KEEPER_FAILED, -failed, name->path);
  else if (renewed)
    keeping_tell(keeping, KEEPER_RENEWED, 0, name->path);
}

/* Watching may take a few calls, and somebody may be waiting for a gap: first things first. What
 * changed before the watch was there is found by looking once more. Several names at a time, since
 * they are looked at in the session's namespace and watched in ours. */
static void check_batch(struct keeping *keeping, struct kept_name **names, size_t count) {
  int first[CHECK_BATCH], second[CHECK_BATCH] = {0};
  bool again[CHECK_BATCH];
  leave_if_dismissed(keeping);
  watch_begin_batch(keeping);
  for (size_t i = 0; i < count; i++) {
    names[i]->dirty = false;
    first[i] = renew_name(keeping, names[i]);
  }
  for (size_t i = 0; i < count; i++)
    again[i] = first[i] >= 0 && watch_name(keeping, names[i]);
  for (size_t i = 0; i < count; i++) {
    if (again[i])
      second[i] = renew_name(keeping, names[i]);
  }
  for (size_t i = 0; i < count; i++)
    tell_of(keeping, names[i], first[i], second[i]);
}

static void check_names(struct keeping *keeping) {
  struct kept_name *names[CHECK_BATCH];
  size_t count = 0;
  watch_begin_round(keeping);
  for (size_t i = 0; i < keeping->list.name_count; i++) {
    if (keeping->list.names[i].dirty)
      names[count++] = &keeping->list.names[i];
    if (count == CHECK_BATCH || (count > 0 && i + 1 == keeping->list.name_count)) {
      check_batch(keeping, names, count);
      count = 0;
    }
  }
}

static bool is_folder(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static void hide_late(struct keeping *keeping, const char *path, bool folder) {
  if (!kept_hides(&keeping->request, &keeping->list, path, folder))
    return;
  bool known = strv_contains(&keeping->late, path);
  int result =
      !known && keeping->late.count >= KEEPER_LATE_LIMIT ? -E2BIG : renew_late(keeping, path);
  if (result < 0) {
    keeping_tell(keeping, KEEPER_FAILED, -result, path);
    return;
  }
  if (result > 0)
    keeping_tell(keeping, known ? KEEPER_RENEWED : KEEPER_HIDDEN, 0, path);
  if (result > 0 && !known)
    strv_add(&keeping->late, path);
}

static void check_appeared(struct keeping *keeping) {
  struct strv appeared = keeping->appeared;
  keeping->appeared = (struct strv){0};
  STRV_FOREACH (path, &appeared) {
    if (powers_go(&keeping->powers, IN_OWN) == 0)
      hide_late(keeping, *path, is_folder(*path));
  }
  strv_clear(&appeared);
}

/* ---- walking the trees ---- */

static bool on_folder(void *context, const char *folder) {
  struct keeping *keeping = context;
  leave_if_dismissed(keeping);
  return powers_go(&keeping->powers, IN_OWN) == 0 && watch_folder(keeping, folder);
}

static void on_found(void *context, const char *path, bool folder) {
  hide_late(context, path, folder);
}

/* The plan has read them all, a moment ago: only the first time that is of use. */
static void walk_tree(struct keeping *keeping, const struct kept_tree *tree, size_t max_depth,
                      const struct kept_visitor *visitor) {
  if (max_depth == 0 && !keeping->walked)
    kept_walk_again(tree, &keeping->request.plan->walked, visitor);
  else
    kept_walk(tree, max_depth, visitor);
}

/* The gate has covered what was there; between, something may have appeared. */
static void walk_granted(struct keeping *keeping, size_t from) {
  const struct kept_visitor visitor = {on_folder, on_found, keeping};
  for (size_t i = from; i < keeping->list.tree_count; i++) {
    if (powers_go(&keeping->powers, IN_OWN) == 0)
      kept_walk(&keeping->list.trees[i], 0, &visitor);
  }
}

static void walk(struct keeping *keeping, size_t max_depth) {
  const struct kept_visitor visitor = {on_folder, on_found, keeping};
  keeping->folder_count = 0; /* a second walk meets the same folders */
  uint64_t began = monotonic_ns();
  for (size_t i = 0; i < keeping->list.tree_count; i++) {
    if (powers_go(&keeping->powers, IN_OWN) == 0)
      walk_tree(keeping, &keeping->list.trees[i], max_depth, &visitor);
  }
  keeping->walked |= max_depth == 0;
  uint64_t pause = (monotonic_ns() - began) * WALK_SHARE;
  keeping->walk_pause_ns = pause > WALK_AFTER_NS ? pause : WALK_AFTER_NS;
}

/* ---- what the monitor tells ---- */

struct order {
  int32_t kind, operation;
  uint32_t flags;
  char text[2 * PATH_MAX]; /* the path and what a placeholder holds, each with its NUL */
};

static void on_granted(struct keeping *keeping, const char *path, bool writable) {
  size_t known = keeping->list.name_count, trees = keeping->list.tree_count;
  strv_add(writable ? &keeping->granted_writable : &keeping->granted, path);
  kept_list_add_tree(&keeping->request, &keeping->list, path);
  for (size_t i = known; i < keeping->list.name_count; i++)
    keeping->list.names[i].dirty = true;
  watch_know_names(keeping);
  walk_granted(keeping, trees);
}

static void on_taken(struct keeping *keeping, const char *path) {
  kept_list_drop_tree(&keeping->list, path);
  strv_remove(&keeping->granted, path);
  strv_remove(&keeping->granted_writable, path);
}

/* What is there for another reason is told again with the next grant. */
static void on_allowed(struct keeping *keeping, const char *path) {
  plan_drop(&keeping->grown, path, NULL);
}

static void obey(struct keeping *keeping, const struct order *order, size_t length) {
  const char *source = order->text + strlen(order->text) + 1;
  bool has_source = (size_t)(source - order->text) < length;
  switch ((enum keeper_order_kind)order->kind) {
  case KEEPER_OPERATION:
    plan_add(&keeping->grown, (enum operation_kind)order->operation, order->text,
             has_source ? source : NULL, "granted")
        ->flags = order->flags;
    return;
  case KEEPER_GRANTED:
  case KEEPER_GRANTED_WRITABLE:
    on_granted(keeping, order->text, order->kind == KEEPER_GRANTED_WRITABLE);
    return;
  case KEEPER_ALLOWED:
    on_allowed(keeping, order->text);
    return;
  case KEEPER_TAKEN:
    on_taken(keeping, order->text);
    return;
  }
}

/* One order; without one we are dismissed, or the monitor is gone and the session with it. */
static void listen_to_monitor(struct keeping *keeping) {
  static struct order order;
  ssize_t got = recv(keeping->channel, &order, sizeof order - 1, 0);
  if (got < 0 && errno == EINTR)
    return;
  if (got <= (ssize_t)offsetof(struct order, text))
    leave(keeping);
  size_t length = (size_t)got - offsetof(struct order, text);
  order.text[length] = '\0';
  obey(keeping, &order, length);
}

/* ---- the loop ---- */

static void look_everywhere(struct keeping *keeping) {
  for (size_t i = 0; i < keeping->list.name_count; i++)
    keeping->list.names[i].dirty = true;
  if (keeping->walk_at_ns == 0)
    keeping->walk_at_ns = monotonic_ns() + keeping->walk_pause_ns;
  keeping->root_changed = true;
  keeping->lost = false;
}

static void mark_unwatched(struct keeping *keeping) {
  for (size_t i = 0; i < keeping->list.name_count; i++)
    keeping->list.names[i].dirty |= !keeping->list.names[i].watched;
  if (keeping->changes < 0 && keeping->walk_at_ns == 0)
    keeping->walk_at_ns = monotonic_ns() + keeping->walk_pause_ns;
}

static void mark_written(struct keeping *keeping) {
  keeping->writers = false;
  for (size_t i = 0; i < keeping->list.name_count; i++)
    keeping->list.names[i].dirty |= keeping->list.names[i].writer_until_ns > 0;
}

static int next_timeout(const struct keeping *keeping) {
  int timeout = keeping->writers ? WRITER_MS : keeping->polls ? POLL_MS : -1;
  if (keeping->walk_at_ns == 0)
    return timeout;
  uint64_t now = monotonic_ns();
  int left = keeping->walk_at_ns > now ? (int)((keeping->walk_at_ns - now) / 1000000) + 1 : 0;
  return timeout < 0 || left < timeout ? left : timeout;
}

/* Whatever takes time is done before we wait, not after. */
static void get_ready(struct keeping *keeping) {
  if (renew_prepare(keeping) == 0)
    (void)powers_go(&keeping->powers, IN_SESSION);
}

static void work(struct keeping *keeping) {
  struct pollfd watched[] = {{.fd = keeping->changes, .events = POLLIN},
                             {.fd = keeping->channel, .events = POLLIN}};
  get_ready(keeping);
  if (poll(watched, 2, next_timeout(keeping)) < 0)
    return;
  if (watched[1].revents)
    listen_to_monitor(keeping);
  if (watched[0].revents)
    watch_read(keeping);
  if (keeping->polls)
    mark_unwatched(keeping);
  if (keeping->writers)
    mark_written(keeping);
  if (keeping->lost)
    look_everywhere(keeping);
  check_names(keeping);
  check_appeared(keeping);
  if (keeping->root_changed)
    root_compare(keeping);
  if (keeping->walk_at_ns && monotonic_ns() >= keeping->walk_at_ns) {
    keeping->walk_at_ns = 0;
    walk(keeping, 0);
  }
}

/* A short time slice is an early turn on a busy machine (Linux 6.12); it needs no privilege, and
 * without it everything works. */
static void ask_for_early_turns(void) {
  struct {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
  } attributes = {.size = 48, .nice = getpriority(PRIO_PROCESS, 0), .runtime = SLICE_NS};
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

/* What grows from now on is our own; the monitor's is as it was when we were made. */
static void take_over(struct keeping *keeping) {
  struct kept_request *request = &keeping->request;
  if (request->grown)
    keeping->grown = *request->grown;
  if (request->granted)
    keeping->granted = *request->granted;
  if (request->granted_writable)
    keeping->granted_writable = *request->granted_writable;
  request->grown = &keeping->grown;
  request->granted = &keeping->granted;
  request->granted_writable = &keeping->granted_writable;
}

static _Noreturn void keep(struct keeping *keeping) {
  ask_for_early_turns();
  keeping->spare[0] = keeping->spare[1] = -1;
  take_over(keeping);
  kept_list_fill(&keeping->request, &keeping->list);
  int result = renew_prepare(keeping);
  if (result < 0)
    keeping_tell(keeping, KEEPER_FAILED, -result, "");
  watch_open(keeping);
  watch_root(keeping);
  look_everywhere(keeping);
  check_names(keeping);
  walk(keeping, 1); /* where names appear most; the rest later */
  keeping->walk_at_ns = monotonic_ns() + WALK_AFTER_NS;
  root_compare(keeping);
  keeping_tell(keeping, KEEPER_READY, 0, "");
  for (;;)
    work(keeping);
}

static _Noreturn void keeper_main(int channel, const struct kept_request *request, int user_ns,
                                  int mount_ns) {
  static struct keeping keeping;
  keeping = (struct keeping){.request = *request, .channel = channel, .changes = -1};
  const int kept[] = {channel, user_ns, mount_ns};
  prctl(PR_SET_NAME, "sandbox-keeper");
  umask(0);
  setsid();               /* Ctrl-C is not meant for us: the monitor's end is ours */
  signal(SIGIO, SIG_IGN); /* somebody opens what we have a lease on for an instant */
  child_keep_only(kept, ARRAY_SIZE(kept));
  /* The command owns the project's folders, and must not be able to close them to us for a while.
   */
  int result =
      powers_enter(&keeping.powers, user_ns, mount_ns,
                   (UINT64_C(1) << CAP_DAC_OVERRIDE) | (UINT64_C(1) << CAP_DAC_READ_SEARCH) |
                       (UINT64_C(1) << CAP_SYS_PTRACE)); /* what is held by who is not dumpable */
  if (result < 0) {
    keeping_tell(&keeping, KEEPER_FAILED, -result, "");
    _exit(1);
  }
  keep(&keeping);
}

/* ---- the monitor's side ---- */

int keeper_start(struct keeper *keeper, const struct kept_request *request, int user_ns,
                 int mount_ns, struct sb_error *error) {
  int line;
  pid_t pid = child_start("the keeper of protected names", &line, error);
  if (pid == 0)
    keeper_main(line, request, user_ns, mount_ns);
  if (pid < 0)
    return -1;
  fcntl(line, F_SETFL, O_NONBLOCK);
  *keeper = (struct keeper){.channel = line, .pid = pid};
  return 0;
}

int keeper_tell(const struct keeper *keeper, enum keeper_order_kind kind, const char *path,
                const struct operation *operation) {
  struct order order = {.kind = (int32_t)kind};
  const char *source = operation ? operation->source : NULL;
  size_t length = strlen(path) + 1, more = source ? strlen(source) + 1 : 0;
  if (length + more >= sizeof order.text)
    return -E2BIG;
  if (operation) {
    order.operation = (int32_t)operation->kind;
    order.flags = operation->flags;
  }
  memcpy(order.text, path, length);
  if (source)
    memcpy(order.text + length, source, more);
  return send(keeper->channel, &order, offsetof(struct order, text) + length + more, MSG_NOSIGNAL) <
                 0
             ? -errno
             : 0;
}

int keeper_receive(const struct keeper *keeper, struct keeper_report *ret_report) {
  ssize_t got = recv(keeper->channel, ret_report, sizeof *ret_report, 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR))
    return 0;
  if (got <= (ssize_t)offsetof(struct keeper_report, path))
    return -1;
  ret_report->path[(size_t)got - offsetof(struct keeper_report, path) - 1] = '\0';
  return 1;
}

void keeper_dismiss(const struct keeper *keeper) {
  if (keeper->channel >= 0)
    shutdown(keeper->channel, SHUT_WR);
}

void keeper_end(struct keeper *keeper) {
  if (keeper->channel < 0)
    return;
  close(keeper->channel);
  kill(keeper->pid, SIGKILL);
  keeper->channel = -1;
}

/* Who leaves it to pid 1 leaves a dead process for ever in many a container. */
void keeper_reap(struct keeper *keeper) {
  (void)child_wait_for(keeper->pid, CHILD_PATIENCE_MS);
  *keeper = KEEPER_NONE;
}
