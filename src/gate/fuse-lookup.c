/* What the FUSE gate says without a decision: look-ups, links, folders; see fuse.c. */
#include "gate/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/alloc.h"

/* A look-up whose answer waits for a mount. */
struct parked {
  struct parked *next;
  fuse_req_t request;
  struct node *node;
  char path[];
};

struct fuse_entry_param fuse_entry_of(struct fuse_gate *fuse, struct node *node, const char *path) {
  if (!node->fixed)
    node->fixed = gate_leads_to_mount(fuse->gate, path);
  /* A socket is asked about while it is looked up, also when its grant has been taken back. */
  double seconds = S_ISSOCK(node->status.st_mode)   ? 0
                   : node->fixed                    ? ENDLESS
                   : !S_ISDIR(node->status.st_mode) ? 0
                   /* bind(2) can be asked about only while it looks its folder up. */
                   : fuse_may_ask_to_write(fuse, path) ? 0
                                                       : FOLDER_SECONDS;
  struct fuse_entry_param entry = {
      .ino = fuse_number_of(node),
      .generation = 1,
      .attr = fuse_shown(fuse, node),
      .attr_timeout = S_ISDIR(node->status.st_mode) ? fuse_shown_seconds(fuse, node) : 0,
      .entry_timeout = seconds,
  };
  if (fuse_is_always_asked(node)) {
    entry.ino |= QUESTION;
    entry.attr = fuse_question();
  }
  return entry;
}

/* The broker, which follows what the host does to its root: it wants to know how it is now. Nobody
 * else looks names up there from outside. */
static bool follows_host(fuse_req_t request, const struct node *parent) {
  return fuse_req_ctx(request)->pid == 0 && parent && !parent->parent;
}

static void reply_entry(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                        const char *path) {
  struct fuse_entry_param entry = fuse_entry_of(fuse, node, path);
  if (follows_host(request, node->parent) && !node->fixed)
    entry.entry_timeout = 0;
  fuse_reply_entry(request, &entry);
}

/* Some calls use what they looked up without another word to us (connect, bind, inotify, O_PATH).
 * They get a link instead, whose text they read next: that can wait as no look-up may, and when all
 * is decided ESTALE sends them to look the name up again. Nobody else ever sees the link, unless it
 * is one for ever (fuse_is_always_asked()). */
static void reply_question(fuse_req_t request, struct node *node) {
  struct fuse_entry_param entry = {
      .ino = fuse_number_of(node) | QUESTION,
      .generation = 1,
      .attr = fuse_question(),
  };
  fuse_reply_entry(request, &entry);
}

bool fuse_may_ask_to_write(const struct fuse_gate *fuse, const char *path) {
  return fuse->gate->config.plan->ask_writes || gate_is_writable(fuse->gate, path);
}

/* A quiet call that speaks to a socket or watches a file needs the host's own: there is nobody
 * behind our socket, and nothing to be seen in our file. */
bool fuse_needs_mount(enum want want) {
  return want != WANT_STAT && want != WANT_WRITE;
}

static enum quiet judge_quiet(struct fuse_gate *fuse, fuse_req_t request, const struct node *node,
                              const char *path, enum want *ret_want) {
  pid_t inside = fuse_req_ctx(request)->pid;
  bool mounted = node->fixed || gate_leads_to_mount(fuse->gate, path);
  if (inside == 0 || (mounted && !gate_is_below_grant(fuse->gate, path)) ||
      gate_is_granting(fuse->gate, path))
    return QUIET_NOT;
  /* Folders are looked up by whoever goes through them: too many to search for each caller. */
  if (S_ISDIR(node->status.st_mode) && !gate_knows_numbers(fuse->gate))
    return QUIET_NOT;
  struct quiet_use use;
  struct target caller = fuse_caller(request);
  enum quiet quiet = quiet_call(&caller, path, &node->status, &use);
  *ret_want = use.want;
  if (quiet == QUIET_REFUSED && fuse->checks && use.call.kind == STAND_IN_WATCH)
    return QUIET_NOT; /* it waits when its right to do so is checked */
  if (quiet == QUIET_NOT)
    return QUIET_NOT;
  /* Nobody reads from our FIFO. */
  if (*ret_want == WANT_WRITE && !fuse_may_ask_to_write(fuse, path))
    return S_ISFIFO(node->status.st_mode) ? QUIET_REFUSED : QUIET_NOT;
  if (quiet == QUIET_REFUSED) /* what needs no question is mounted by the first other use */
    return gate_is_touchable(fuse->gate, path) ? QUIET_NOT : QUIET_REFUSED;
  struct access_request wanted = {
      .want = *ret_want, .path = path, .device = node->status.st_dev, .inode = node->status.st_ino};
  if (fuse_needs_mount(*ret_want))
    return QUIET_ASKED;
  return gate_is_served(fuse->gate, &wanted) ||
                 once_may_use(&fuse->once, gate_outer_pid(fuse->gate, inside), &node->status,
                              ONCE_LOOK)
             ? QUIET_NOT
             : QUIET_ASKED;
}

/* The one exception to "at once": a call that holds a lock on the mount point was sent away before
 * the mounting, and is on its second walk. The broker's own walk is over by then. */
static void park(struct fuse_gate *fuse, fuse_req_t request, struct node *node, const char *path) {
  struct parked *parked = xcalloc(1, sizeof *parked + strlen(path) + 1);
  *parked = (struct parked){.next = fuse->parked, .request = request, .node = node};
  memcpy(parked->path, path, strlen(path) + 1);
  fuse->parked = parked;
}

void fuse_unpark(struct fuse_gate *fuse, const char *path) {
  for (struct parked **place = &fuse->parked; *place;) {
    struct parked *parked = *place;
    if (path && strcmp(parked->path, path) != 0) {
      place = &parked->next;
      continue;
    }
    *place = parked->next;
    reply_entry(fuse, parked->request, parked->node, parked->path);
    free(parked);
  }
}

static struct access_request describe(struct fuse_gate *fuse, fuse_req_t request,
                                      const struct node *node, const char *path, enum want want) {
  return (struct access_request){
      .subject = SUBJECT_FILE,
      .want = want,
      .path = path,
      .device = node->status.st_dev,
      .inode = node->status.st_ino,
      .folder = S_ISDIR(node->status.st_mode),
      .socket = S_ISSOCK(node->status.st_mode),
      .pid = gate_outer_pid(fuse->gate, fuse_req_ctx(request)->pid),
  };
}

static void refuse(struct fuse_gate *fuse, fuse_req_t request, struct node *node) {
  nodes_forget(fuse->nodes, node, 1);
  fuse_reply_err(request, EACCES);
}

/* What is hidden is not even walked through; whoever hid it may read that somebody tried. */
static void refuse_hidden(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                          const char *path) {
  struct access_request wanted = describe(fuse, request, node, path, WANT_STAT);
  if (!follows_host(request, node->parent))
    gate_note_hidden(fuse->gate, &wanted);
  refuse(fuse, request, node);
}

/* It would seem to work on an object of ours that is nothing to anybody. */
static void refuse_quiet(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                         const char *path, enum want want) {
  struct access_request wanted = describe(fuse, request, node, path, want);
  decisions_note_unaskable(fuse->gate->config.decisions, &wanted);
  refuse(fuse, request, node);
}

static void reply_found(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                        const char *path) {
  enum want want;
  const char *mounting = gate_mounting(fuse->gate);
  if (fuse_req_ctx(request)->pid != 0 && mounting && strcmp(mounting, path) == 0) {
    park(fuse, request, node, path);
    return;
  }
  switch (judge_quiet(fuse, request, node, path, &want)) {
  case QUIET_NOT:
    reply_entry(fuse, request, node, path);
    return;
  case QUIET_ASKED:
    reply_question(request, node);
    return;
  case QUIET_REFUSED:
    refuse_quiet(fuse, request, node, path, want);
    return;
  }
}

/* Remembered by the kernel: a compiler looks for its tools in every folder of $PATH, each time. Not
 * when we look ourselves, for something that the host is about to replace; nor where somebody may
 * be about to make it, while others stand in the folder. */
static void reply_missing(fuse_req_t request, const struct node *above) {
  char folder[PATH_MAX];
  bool passing = fuse_req_ctx(request)->pid == 0 || !node_path(above, folder, sizeof folder) ||
                 fuse_may_ask_to_write(fuse_gate_of(request), folder);
  fuse_reply_entry(request,
                   &(struct fuse_entry_param){.entry_timeout = passing ? 0 : FOLDER_SECONDS});
}

void fuse_op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct node *node;
  char path[PATH_MAX];
  struct node *above = fuse_node_of(fuse, parent);
  int result = nodes_lookup(fuse->nodes, above, name, &node);
  if (result == -ENOENT) {
    reply_missing(request, above);
    return;
  }
  if (result < 0) {
    fuse_reply_err(request, result == -ESTALE ? ENOENT : -result);
    return;
  }
  if (!node_path(node, path, sizeof path)) {
    nodes_forget(fuse->nodes, node, 1);
    fuse_reply_err(request, ENAMETOOLONG);
    return;
  }
  if (!node->fixed && gate_hides(fuse->gate, path)) {
    refuse_hidden(fuse, request, node, path);
    return;
  }
  reply_found(fuse, request, node, path);
}

void fuse_op_forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  nodes_forget(fuse->nodes, fuse_node_of(fuse, number), count);
  fuse_reply_none(request);
}

void fuse_serve_link(fuse_req_t request, fuse_ino_t number) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  char target[PATH_MAX + 1];
  int fd = nodes_fd(fuse->nodes, fuse_node_of(fuse, number));
  ssize_t length = fd < 0 ? -1 : readlinkat(fd, "", target, PATH_MAX);
  if (length < 0) {
    fuse_reply_err(request, fd >= 0 ? errno : fd == -ETIMEDOUT ? ETIMEDOUT : ENOENT);
    return;
  }
  target[length] = '\0';
  fuse_reply_readlink(request, target);
}

/* Programs look for room before they make something large, also above what they may write to. */
void fuse_op_statfs(fuse_req_t request, fuse_ino_t number) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct statvfs status;
  int fd = nodes_fd(fuse->nodes, fuse_node_of(fuse, number));
  if (fd < 0 || fstatvfs(fd, &status) < 0)
    status = (struct statvfs){.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_MAX};
  fuse_reply_statfs(request, &status);
}
