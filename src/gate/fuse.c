/* The FUSE trigger: the workload's "/" is served from here, and everything that is allowed is
 * mounted over it, so allowed paths never come here. The kernel walks paths; what arrives is the
 * same look-up on the same object, whichever call, thread, link or working folder it came from.
 *
 * A look-up is always answered at once: the broker's own walk to a mount point would wait behind
 * it. What waits is the use of what was found (open, stat, access, attributes). Once the object is
 * mounted, the call is answered with ESTALE: the kernel then walks the path again, meets the mount,
 * and the very call that waited succeeds natively. */
#include "gate/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/alloc.h"
#include "engine/caps.h"
#include "gate/quiet.h"

#define TURN_LIMIT 64 /* requests served before the monitor looks at its other business */

/* ---- once ---- */

/* The kernel's own flag for the open of an exec; its headers for us lack it. */
#define OPENED_TO_EXECUTE 0x20

enum once_use held_use(const struct held *held) {
  if (held->call == CALL_OPEN)
    return held->info.flags & OPENED_TO_EXECUTE ? ONCE_EXECUTE : ONCE_OPEN;
  return held->call == CALL_OPENDIR ? ONCE_OPEN : ONCE_LOOK;
}

static bool use_once(struct fuse_gate *fuse, const struct held *held) {
  return once_may_use(&fuse->once, held->waiting.request.pid, &held->node->status, held_use(held));
}

static void remember_once(struct fuse_gate *fuse, const struct held *held) {
  once_remember(&fuse->once, held->waiting.request.pid, &held->node->status, held_use(held));
}

/* ---- calls that wait ---- */

void held_free(struct held *held) {
  if (held->previous)
    held->previous->next = held->next;
  else
    held->fuse->held = held->next;
  if (held->next)
    held->next->previous = held->previous;
  fuse_forget_stand_in(held);
  held->node->pins--;
  nodes_release(held->fuse->nodes, held->node);
  if (held->other)
    nodes_release(held->fuse->nodes, held->other);
  free((char *)held->waiting.request.path);
  free(held->name);
  free(held->other_name);
  free(held->attribute);
  free(held);
}

struct target fuse_caller(fuse_req_t request) {
  const struct fuse_gate *fuse = fuse_gate_of(request);
  return (struct target){.thread = gate_outer_thread(fuse->gate, fuse_req_ctx(request)->pid),
                         .may_stall = fuse->opens > 0};
}

/* What looks at a descriptor walks no path, and would not meet the mount. */
static bool is_on_descriptor(const struct held *held) {
  struct target caller = fuse_caller(held->request);
  return fuse_is_listing(held) || (held->call == CALL_GETATTR && quiet_has_descriptor(&caller));
}

/* So long a way cannot be gone again. Nothing is opened through here but files and folders. */
static bool came_too_far(const struct held *held) {
  mode_t mode = held->node->status.st_mode;
  return held->links > LINKS_AGAIN && held->waiting.request.want != WANT_WRITE &&
         (held->call == CALL_QUIET || held->call != CALL_OPEN || S_ISREG(mode));
}

/* What is asked about in a link's place need not be looked for from the start: it is beside it. */
static void go_on_from_here(struct held *held) {
  if (held->call == CALL_QUIET)
    fuse_reply_readlink(held->request, held->node->name);
  else
    fuse_serve(held);
}

static void serve_once(struct held *held) {
  if (fuse_stands_in(held)) {
    fuse_stand_in(held);
    return;
  }
  fuse_serve(held);
  held_free(held);
}

/* Granted before, too: then the caller comes from where the mount is not met. */
static bool is_granted_write(const struct held *held, enum outcome outcome) {
  return outcome == OUTCOME_RETRY ||
         (outcome == OUTCOME_SERVE && held->waiting.request.want == WANT_WRITE &&
          gate_writable_mount(held->fuse->gate, held->waiting.request.path));
}

/* Because it does not walk again, or would come here again, or because there is none
 * (`ask_writes`). */
static bool meets_no_mount(const struct held *held, enum outcome outcome) {
  return held->checked || held->granted_before || held->below ||
         (outcome == OUTCOME_SERVE && held->waiting.request.want != WANT_CONNECT);
}

/* It walks on to the mount; or, where it would not meet that, to its write, which is granted. */
static bool goes_on_to_write(struct held *held, enum outcome outcome) {
  struct stat usable = fuse_usable(held->fuse, held->node);
  if (!held->early || !is_granted_write(held, outcome) ||
      (outcome == OUTCOME_RETRY && !fuse_starts_below(held)))
    return false;
  fuse_reply_attr(held->request, &usable, 0);
  held_free(held);
  return true;
}

static void on_done(struct waiting *waiting, enum outcome outcome) {
  struct held *held = (struct held *)waiting;
  fuse_req_interrupt_func(held->request, NULL, NULL);
  if (goes_on_to_write(held, outcome))
    return;
  if (outcome == OUTCOME_SERVE && !waiting->lasts && waiting->request.want != WANT_WRITE) {
    remember_once(held->fuse, held);
    serve_once(held);
    return;
  }
  held->granted_before = outcome == OUTCOME_SERVE;
  if (is_granted_write(held, outcome) && fuse_must_begin_anew(held)) {
    fuse_stand_in(held);
    return;
  }
  if (outcome != OUTCOME_REFUSE && meets_no_mount(held, outcome) && fuse_stands_in(held)) {
    fuse_stand_in(held);
    return;
  }
  if (outcome == OUTCOME_SERVE && waiting->request.want == WANT_WRITE) {
    fuse_reply_err(held->request, EROFS); /* nothing is ever written through here */
  } else if (outcome == OUTCOME_SERVE) {
    fuse_serve(held);
  } else if (outcome == OUTCOME_RETRY && is_on_descriptor(held)) {
    fuse_serve(held);
  } else if (outcome == OUTCOME_RETRY && came_too_far(held)) {
    go_on_from_here(held);
  } else {
    if (outcome == OUTCOME_RETRY)
      fuse_expect_again(held);
    fuse_reply_err(held->request, outcome == OUTCOME_RETRY ? ESTALE : EACCES);
  }
  held_free(held);
}

static void give_up(struct held *held) {
  gate_withdraw(held->fuse->gate, &held->waiting);
  fuse_reply_err(held->request, EINTR);
  held_free(held);
}

/* The kernel tells us of the first signal only, so a call that goes on is looked at again. */
static void keep_looking(struct held *held) {
  held->signalled = true;
  held->fuse->gate->signalled = true;
}

static void on_interrupt(fuse_req_t request, void *context) {
  (void)request;
  struct held *held = context;
  if (gate_must_end(held->thread))
    give_up(held);
  else
    keep_looking(held);
}

static void trigger_look(struct gate *gate) {
  struct fuse_gate *fuse = gate->trigger_state;
  gate->signalled = false;
  for (struct held *held = fuse->held, *next; held; held = next) {
    next = held->next;
    if (!held->signalled)
      continue;
    if (gate_must_end(held->thread))
      give_up(held);
    else
      gate->signalled = true;
  }
}

const enum want held_wants[] = {
    [CALL_READDIR] = WANT_LIST,  [CALL_READDIRPLUS] = WANT_LIST, [CALL_GETATTR] = WANT_STAT,
    [CALL_OPEN] = WANT_READ,     [CALL_OPENDIR] = WANT_LIST,     [CALL_ACCESS] = WANT_STAT,
    [CALL_GETXATTR] = WANT_READ, [CALL_LISTXATTR] = WANT_READ,
};

struct held *held_new(fuse_req_t request, struct node *node, enum call call,
                      const struct fuse_file_info *info) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct held *held = xcalloc(1, sizeof *held);
  *held = (struct held){.fuse = fuse, .request = request, .node = node, .call = call};
  if (info)
    held->info = *info;
  held->waiting.done = on_done;
  node_reference(node);
  node->pins++;
  held->next = fuse->held;
  if (fuse->held)
    fuse->held->previous = held;
  fuse->held = held;
  return held;
}

static void set_request(struct held *held, enum want want, const char *path) {
  held->waiting.request = (struct access_request){
      .subject = SUBJECT_FILE,
      .want = want,
      .path = xstrdup(path),
      .device = held->node->status.st_dev,
      .inode = held->node->status.st_ino,
      .folder = S_ISDIR(held->node->status.st_mode),
      .socket = S_ISSOCK(held->node->status.st_mode),
      .names = held->call == CALL_OPENDIR || fuse_is_listing(held),
      .lasting = held->waiting.needs_mount && !fuse_stands_in(held),
      .pid = held->waiting.request.pid,
  };
}

bool held_mind_signals(struct held *held) {
  if (fuse_req_interrupted(held->request) && gate_must_end(held->thread)) {
    fuse_reply_err(held->request, EINTR);
    held_free(held);
    return false;
  }
  if (fuse_req_interrupted(held->request))
    keep_looking(held);
  else
    fuse_req_interrupt_func(held->request, on_interrupt, held);
  return true;
}

/* Before it changes an owner the kernel looks for the bits that this clears, with the file locked:
 * nothing could be mounted on it while that waits. What is harmless has none, and the change itself
 * comes next. */
static bool looks_while_locked(const struct held *held) {
  struct target caller = fuse_caller(held->request);
  return held->call == CALL_GETATTR && !gate_is_served(held->fuse->gate, &held->waiting.request) &&
         quiet_changes_owner(&caller);
}

static void show_harmless(struct held *held) {
  struct stat shown = held->link ? fuse_question() : fuse_usable(held->fuse, held->node);
  fuse_reply_attr(held->request, &shown, 0);
  held_free(held);
}

void held_ask(struct held *held, enum want want) {
  struct fuse_gate *fuse = held->fuse;
  char path[PATH_MAX];
  held->waiting.request.want = want;
  held->links = links_take(&fuse->links, fuse_req_ctx(held->request)->pid);
  held->waiting.request.pid = gate_outer_pid(fuse->gate, fuse_req_ctx(held->request)->pid);
  held->thread = gate_outer_thread(fuse->gate, fuse_req_ctx(held->request)->pid);
  bool may_be_served = !held->waiting.needs_mount || fuse_stands_in(held);
  if (want != WANT_WRITE && want != WANT_CONNECT && may_be_served && use_once(fuse, held)) {
    serve_once(held);
    return;
  }
  int fd = nodes_fd(fuse->nodes, held->node);
  if (fd < 0 || !node_path(held->node, path, sizeof path)) {
    /* The kernel remembers what was a mount point for ever, unless it is sent to look again. */
    fuse_reply_err(held->request, fd == -ESTALE || fd == -ETIMEDOUT ? -fd : ENOENT);
    held_free(held);
    return;
  }
  set_request(held, want, path);
  held->below = gate_is_below_grant(fuse->gate, path);
  if (looks_while_locked(held)) {
    show_harmless(held);
    return;
  }
  if (held_mind_signals(held) && !fuse_comes_in_between(held))
    gate_ask(fuse->gate, &held->waiting);
}

void held_begin(fuse_req_t request, fuse_ino_t number, enum call call,
                const struct fuse_file_info *info) {
  held_ask(held_new(request, fuse_node_of(fuse_gate_of(request), number), call, info),
           held_wants[call]);
}

void held_ask_quietly(struct held *held, const struct quiet_use *use) {
  held->waiting.needs_mount = fuse_needs_mount(use->want) || fuse_is_always_asked(held->node);
  held->in_its_place = use->call;
  if (!stand_in_can(&use->call) || target_is_traced(&use->call.target))
    held->in_its_place.kind = STAND_IN_CANNOT;
  held->in_its_place.target.may_stall = false; /* who makes it is another, and may wait */
  held_ask(held, fuse_is_always_asked(held->node) ? WANT_CONNECT : use->want);
}

static void answer_question(fuse_req_t request, struct node *node) {
  struct quiet_use use;
  char path[PATH_MAX];
  if (!node_path(node, path, sizeof path)) {
    fuse_reply_err(request, ESTALE);
    return;
  }
  struct target caller = fuse_caller(request);
  switch (quiet_call(&caller, path, &node->status, &use)) {
  case QUIET_ASKED:
    held_ask_quietly(held_new(request, node, CALL_QUIET, NULL), &use);
    return;
  case QUIET_NOT:
  case QUIET_REFUSED:
    if (fuse_is_always_asked(node))
      fuse_ask_to_look(request, node, CALL_QUIET);
    else
      fuse_reply_err(request, ESTALE);
    return;
  }
}

static void fuse_op_readlink(fuse_req_t request, fuse_ino_t number) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  links_add(&fuse->links, fuse_req_ctx(request)->pid);
  if (fuse_is_question(number))
    answer_question(request, fuse_node_of(fuse, number));
  else
    fuse_serve_link(request, number);
}

/* The names in "/" are those of every system. */
static bool is_listed_freely(struct fuse_gate *fuse, const struct node *node) {
  char path[PATH_MAX];
  return !node->parent ||
         (node_path(node, path, sizeof path) && gate_lists_freely(fuse->gate, path));
}

static bool is_never_mounted(const struct fuse_gate *fuse, const struct node *node) {
  char path[PATH_MAX];
  return node->fixed ||
         (node_path(node, path, sizeof path) && touched_has_writable_below(fuse->gate, path));
}

/* A folder above mounts cannot be mounted itself, so nothing is gained by asking now: only whoever
 * reads its names is held. */
static void fuse_op_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct node *node = fuse_node_of(fuse, number);
  bool listed = is_listed_freely(fuse, node);
  int fd = listed || is_never_mounted(fuse, node) ? nodes_fd(fuse->nodes, node) : -1;
  struct held *held = held_new(request, node, CALL_OPENDIR, info);
  if (fd < 0) {
    held_ask(held, held_wants[CALL_OPENDIR]);
    return;
  }
  uint64_t rights = caps_lay_down(); /* the caller has none */
  fuse_serve_folder(held, fd, listed);
  caps_take_up(rights);
  held_free(held);
}

/* Programs ask for attributes of every folder on their way; nobody is asked about those. */
static void hold_extended(fuse_req_t request, fuse_ino_t number, const char *name, size_t size) {
  struct node *node = fuse_node_of(fuse_gate_of(request), number);
  /* The kernel itself looks for this one before every write; on a nosuid mount it means nothing. */
  bool capability = name && strcmp(name, "security.capability") == 0;
  if (fuse_is_open_kind(node) || capability) {
    fuse_reply_err(request, capability ? ENODATA : ENOTSUP);
    return;
  }
  enum call call = name ? CALL_GETXATTR : CALL_LISTXATTR;
  struct held *held = held_new(request, node, call, NULL);
  held->attribute = name ? xstrdup(name) : NULL;
  held->size = size < XATTR_SIZE_MAX ? size : XATTR_SIZE_MAX;
  held_ask(held, held_wants[call]);
}

static void fuse_op_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size) {
  hold_extended(request, number, name, size);
}

static void fuse_op_listxattr(fuse_req_t request, fuse_ino_t number, size_t size) {
  hold_extended(request, number, NULL, size);
}

bool gate_has_opened(const struct gate *gate) {
  const struct fuse_gate *fuse = gate->trigger_state;
  return fuse->opens > 0;
}

/* ---- the session with the kernel ---- */

static void fuse_op_init(void *context, struct fuse_conn_info *connection) {
  (void)context;
  /* No pipes for the few bytes that pass here; O_TRUNC arrives with its open. */
  connection->want &=
      ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  connection->want |= connection->capable & (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
                                             FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
}

static const struct fuse_lowlevel_ops operations = {
    .init = fuse_op_init,
    .lookup = fuse_op_lookup,
    .forget = fuse_op_forget,
    .getattr = fuse_op_getattr,
    .setattr = fuse_op_setattr,
    .readlink = fuse_op_readlink,
    .mknod = fuse_op_mknod,
    .mkdir = fuse_op_mkdir,
    .unlink = fuse_write_below,
    .rmdir = fuse_write_below,
    .symlink = fuse_op_symlink,
    .rename = fuse_op_rename,
    .link = fuse_op_link,
    .open = fuse_op_open,
    .read = fuse_op_read,
    .release = fuse_op_release,
    .opendir = fuse_op_opendir,
    .readdir = fuse_op_readdir,
    .readdirplus = fuse_op_readdirplus,
    .releasedir = fuse_op_releasedir,
    .statfs = fuse_op_statfs,
    .setxattr = fuse_op_setxattr,
    .getxattr = fuse_op_getxattr,
    .listxattr = fuse_op_listxattr,
    .removexattr = fuse_op_removexattr,
    .access = fuse_op_access,
    .create = fuse_op_create,
};

static void log_nothing(enum fuse_log_level level, const char *format, va_list arguments) {
  (void)level;
  (void)format;
  (void)arguments; /* a library that prints; every failure reaches us by value */
}

static int trigger_open(struct gate *gate, int fd, struct sb_error *error) {
  struct fuse_gate *fuse = xcalloc(1, sizeof *fuse);
  char *words[] = {(char *)"sandbox", NULL};
  struct fuse_args arguments = FUSE_ARGS_INIT(1, words);
  char place[32];
  fuse->gate = gate;
  fuse->events = -1;
  fuse->checks = gate_knows_numbers(gate);
  gate->trigger_state = fuse;
  fuse_set_log_func(log_nothing);
  fuse->nodes = nodes_new();
  fuse->session = fuse_session_new(&arguments, &operations, sizeof operations, fuse);
  fuse_opt_free_args(&arguments);
  snprintf(place, sizeof place, "/dev/fd/%d", fd);
  if (!fuse->nodes || !fuse->session || fuse_session_mount(fuse->session, place) < 0)
    return sb_fail(error, SB_CODE_SYSTEM, 0, "serving the session's root");
  return 0;
}

static void let_all_go(struct fuse_gate *fuse) {
  while (fuse->held) {
    gate_withdraw(fuse->gate, &fuse->held->waiting);
    fuse_reply_err(fuse->held->request, ENOTCONN);
    held_free(fuse->held);
  }
  fuse_end_stand_ins(fuse);
  fuse_unpark(fuse, NULL);
}

/* The kernel has ended all calls: an administrator told it to, or it waits for nobody so long. What
 * is not mounted stays closed. */
static void has_ended(struct fuse_gate *fuse) {
  let_all_go(fuse);
  fuse->gate->watched_fd = -1; /* it would be ready for ever */
  fuse->gate->config.services.ended(fuse->gate->config.services.context);
}

static void trigger_serve(struct gate *gate, short ready) {
  (void)ready;
  struct fuse_gate *fuse = gate->trigger_state;
  fuse_serve_stand_ins(fuse);
  for (int i = 0; i < TURN_LIMIT; i++) {
    int got = fuse_session_receive_buf(fuse->session, &fuse->buffer);
    if (fuse_session_exited(fuse->session))
      has_ended(fuse);
    if (got <= 0)
      return; /* nothing left */
    fuse_session_process_buf(fuse->session, &fuse->buffer);
    nodes_let_go(fuse->nodes);
  }
}

static void trigger_granted(struct gate *gate, const char *path, bool mounted) {
  struct fuse_gate *fuse = gate->trigger_state;
  struct node *node = mounted ? nodes_find(fuse->nodes, path) : NULL;
  for (; node; node = node->parent)
    node->fixed = true;
  fuse_unpark(fuse, path);
  fuse_mounted(fuse, path, mounted);
}

static void trigger_walking(struct gate *gate, const char *path) {
  fuse_clear_way(gate->trigger_state, path);
}

static void trigger_mounting(struct gate *gate, const char *path) {
  fuse_give_way(gate->trigger_state, path);
}

static void trigger_refresh(struct gate *gate, const char *path) {
  struct fuse_gate *fuse = gate->trigger_state;
  struct node *node = nodes_find(fuse->nodes, path);
  if (node && node->parent && !S_ISDIR(node->status.st_mode))
    nodes_refresh(fuse->nodes, node);
}

static void trigger_close(struct gate *gate) {
  struct fuse_gate *fuse = gate->trigger_state;
  if (!fuse)
    return;
  let_all_go(fuse);
  once_clear(&fuse->once);
  if (fuse->session)
    fuse_session_destroy(fuse->session); /* closes the device: the kernel ends all else */
  nodes_free(fuse->nodes);
  free(fuse->buffer.mem);
  free(fuse);
}

const struct trigger fuse_trigger = {
    .open = trigger_open,
    .serve = trigger_serve,
    .look = trigger_look,
    .walking = trigger_walking,
    .mounting = trigger_mounting,
    .granted = trigger_granted,
    .refresh = trigger_refresh,
    .close = trigger_close,
};
