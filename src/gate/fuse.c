/* The FUSE trigger: the workload's "/" is served from here, and everything that is allowed is
 * mounted over it, so allowed paths never come here. The kernel walks paths; what arrives is the
 * same look-up on the same object, whichever call, thread, link or working folder it came from.
 *
 * A look-up is always answered at once: the broker's own walk to a mount point would wait behind
 * it. What waits is the use of what was found (open, stat, access, attributes). Once the object is
 * mounted, the call is answered with ESTALE: the kernel then walks the path again, meets the mount,
 * and the very call that waited succeeds natively. */
#define FUSE_USE_VERSION 314
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "gate/nodes.h"
#include "gate/once.h"
#include "gate/quiet.h"
#include "gate/waiting.h"

#define ENDLESS        1e9
#define FOLDER_SECONDS 1.0
#define TURN_LIMIT     64 /* requests served before the monitor looks at its other business */

enum call {
  CALL_GETATTR,
  CALL_OPEN,
  CALL_OPENDIR,
  CALL_READDIR,
  CALL_READDIRPLUS,
  CALL_ACCESS,
  CALL_GETXATTR,
  CALL_LISTXATTR,
  CALL_QUIET,
};

struct fuse_gate {
  struct gate *gate;
  struct nodes *nodes;
  struct fuse_session *session;
  struct fuse_buf buffer;
  struct once_list once;
  struct held *held;     /* every call that waits */
  struct parked *parked; /* look-ups that do */
};

/* A call that waits for a decision or a grant. */
struct held {
  struct waiting waiting; /* first: a pointer to it is one to this */
  struct held *previous, *next;
  struct fuse_gate *fuse;
  fuse_req_t request;
  struct node *node;
  enum call call;
  struct fuse_file_info info;
  char *attribute;
  size_t size;
  off_t offset;
  bool signalled; /* and goes on */
};

static struct fuse_gate *gate_of(fuse_req_t request) {
  return fuse_req_userdata(request);
}

/* A node is known by two numbers: its own, and that of the question in its place. */
#define QUESTION ((fuse_ino_t)1)

static struct node *node_of(struct fuse_gate *fuse, fuse_ino_t number) {
  return number == FUSE_ROOT_ID ? nodes_root(fuse->nodes) : (struct node *)(number & ~QUESTION);
}

static fuse_ino_t number_of(const struct node *node) {
  return node->parent ? (fuse_ino_t)node : FUSE_ROOT_ID;
}

/* ---- what can be said without a decision ---- */

/* Folders and links must show enough to be walked. Of anything else only the kind is told: a caller
 * may ask the kernel for what it remembers (AT_STATX_DONT_SYNC) without asking us. */
static struct stat harmless(const struct stat *status) {
  /* The owner must be one whom the session's user namespace knows: else the kernel refuses every
   * write by itself, and nobody is asked or told. */
  struct stat shown = {.st_ino = status->st_ino,
                       .st_mode = status->st_mode & S_IFMT,
                       .st_nlink = 1,
                       .st_uid = geteuid(),
                       .st_gid = getegid()};
  if (!S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode))
    return shown;
  shown.st_mode = status->st_mode;
  shown.st_uid = status->st_uid;
  shown.st_gid = status->st_gid;
  shown.st_size = S_ISLNK(status->st_mode) ? status->st_size : 0;
  return shown;
}

static bool is_open_kind(const struct node *node) {
  return S_ISDIR(node->status.st_mode) || S_ISLNK(node->status.st_mode);
}

/* A look-up whose answer waits for a mount. */
struct parked {
  struct parked *next;
  fuse_req_t request;
  struct node *node;
  char path[];
};

static struct fuse_entry_param entry_of(struct fuse_gate *fuse, struct node *node,
                                        const char *path) {
  if (!node->fixed)
    node->fixed = gate_leads_to_mount(fuse->gate, path);
  double seconds = node->fixed                      ? ENDLESS
                   : !S_ISDIR(node->status.st_mode) ? 0
                   /* bind(2) can be asked about only while it looks its folder up. */
                   : fuse->gate->config.plan->ask_writes ? 0
                                                         : FOLDER_SECONDS;
  return (struct fuse_entry_param){
      .ino = number_of(node),
      .generation = 1,
      .attr = harmless(&node->status),
      .attr_timeout = S_ISDIR(node->status.st_mode) ? seconds : 0,
      .entry_timeout = seconds,
  };
}

static void reply_entry(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                        const char *path) {
  struct fuse_entry_param entry = entry_of(fuse, node, path);
  fuse_reply_entry(request, &entry);
}

/* Some calls use what they looked up without another word to us (connect, bind, inotify, O_PATH).
 * They get a link instead, whose text they read next: that can wait as no look-up may, and when all
 * is decided ESTALE sends them to look the name up again. Nobody else ever sees the link. */
static void reply_question(fuse_req_t request, struct node *node) {
  struct stat status = {.st_mode = S_IFLNK | 0777};
  struct fuse_entry_param entry = {
      .ino = number_of(node) | QUESTION,
      .generation = 1,
      .attr = harmless(&status),
  };
  fuse_reply_entry(request, &entry);
}

static bool may_ask_to_write(const struct fuse_gate *fuse, const char *path) {
  return fuse->gate->config.plan->ask_writes || gate_is_writable(fuse->gate, path);
}

/* A quiet call that speaks to a socket or watches a file needs the host's own. */
static bool needs_mount(enum want want) {
  return want != WANT_STAT && want != WANT_WRITE;
}

static bool is_quiet(struct fuse_gate *fuse, fuse_req_t request, const struct node *node,
                     const char *path) {
  pid_t inside = fuse_req_ctx(request)->pid;
  enum want want;
  if (inside == 0 || node->fixed || gate_leads_to_mount(fuse->gate, path) ||
      gate_is_granting(fuse->gate, path))
    return false;
  /* Folders are looked up by whoever goes through them: too many to search for each caller. */
  if (S_ISDIR(node->status.st_mode) && !gate_knows_numbers(fuse->gate))
    return false;
  if (!quiet_call(gate_outer_thread(fuse->gate, inside), path, &node->status, &want) ||
      (want == WANT_WRITE && !may_ask_to_write(fuse, path)))
    return false;
  struct access_request wanted = {
      .want = want, .path = path, .device = node->status.st_dev, .inode = node->status.st_ino};
  if (!needs_mount(want) && gate_is_served(fuse->gate, &wanted))
    return false;
  return want == WANT_CONNECT ||
         !once_use(&fuse->once, gate_outer_pid(fuse->gate, inside), &node->status, false);
}

/* The one exception to "at once": a call that holds a lock on the mount point was sent away before
 * the mounting, and is on its second walk. The broker's own walk is over by then. */
static void park(struct fuse_gate *fuse, fuse_req_t request, struct node *node, const char *path) {
  struct parked *parked = xcalloc(1, sizeof *parked + strlen(path) + 1);
  *parked = (struct parked){.next = fuse->parked, .request = request, .node = node};
  memcpy(parked->path, path, strlen(path) + 1);
  fuse->parked = parked;
}

static void unpark(struct fuse_gate *fuse, const char *path) {
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

/* What is hidden is not even walked through; whoever hid it may read that somebody tried. */
static void refuse_hidden(struct fuse_gate *fuse, fuse_req_t request, const struct node *node,
                          const char *path) {
  struct access_request wanted = {
      .subject = SUBJECT_FILE,
      .want = WANT_STAT,
      .path = path,
      .device = node->status.st_dev,
      .inode = node->status.st_ino,
      .folder = S_ISDIR(node->status.st_mode),
      .pid = gate_outer_pid(fuse->gate, fuse_req_ctx(request)->pid),
  };
  gate_note_hidden(fuse->gate, &wanted);
  fuse_reply_err(request, EACCES);
}

/* Remembered by the kernel: a compiler looks for its tools in every folder of $PATH, each time. */
static void reply_missing(fuse_req_t request) {
  struct fuse_entry_param nothing = {.entry_timeout = FOLDER_SECONDS};
  fuse_reply_entry(request, &nothing);
}

static void op_lookup(fuse_req_t request, fuse_ino_t parent, const char *name) {
  struct fuse_gate *fuse = gate_of(request);
  struct node *node;
  char path[PATH_MAX];
  int result = nodes_lookup(fuse->nodes, node_of(fuse, parent), name, &node);
  if (result == -ENOENT) {
    reply_missing(request);
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
    nodes_forget(fuse->nodes, node, 1);
    return;
  }
  if (fuse_req_ctx(request)->pid != 0 && gate_is_mounting(fuse->gate, path))
    park(fuse, request, node, path);
  else if (is_quiet(fuse, request, node, path))
    reply_question(request, node);
  else
    reply_entry(fuse, request, node, path);
}

static void op_forget(fuse_req_t request, fuse_ino_t number, uint64_t count) {
  struct fuse_gate *fuse = gate_of(request);
  nodes_forget(fuse->nodes, node_of(fuse, number), count);
  fuse_reply_none(request);
}

static void serve_link(fuse_req_t request, fuse_ino_t number) {
  struct fuse_gate *fuse = gate_of(request);
  char target[PATH_MAX + 1];
  int fd = nodes_fd(fuse->nodes, node_of(fuse, number));
  ssize_t length = fd < 0 ? -1 : readlinkat(fd, "", target, PATH_MAX);
  if (length < 0) {
    fuse_reply_err(request, fd < 0 ? ENOENT : errno);
    return;
  }
  target[length] = '\0';
  fuse_reply_readlink(request, target);
}

static void op_statfs(fuse_req_t request, fuse_ino_t number) {
  (void)number;
  struct statvfs status = {.f_bsize = 4096, .f_frsize = 4096, .f_namemax = NAME_MAX};
  fuse_reply_statfs(request, &status);
}

/* ---- serving without a mount ---- */

static int reopen(int fd, int flags) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  int opened = open(name, flags | O_CLOEXEC | O_NOCTTY);
  return opened < 0 ? -errno : opened;
}

static void serve_attributes(fuse_req_t request, int fd) {
  struct stat status;
  if (fstat(fd, &status) < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_attr(request, &status, 0);
}

static void serve_open(struct held *held, int fd) {
  struct fuse_file_info info = held->info;
  int opened = S_ISREG(held->node->status.st_mode) ? reopen(fd, O_RDONLY) : -EACCES;
  if (opened < 0) {
    fuse_reply_err(held->request, -opened);
    return;
  }
  info.fh = (uint64_t)opened;
  if (fuse_reply_open(held->request, &info) < 0)
    close(opened); /* interrupted: nobody will release it */
}

/* A folder that is open without a mount. */
struct listing {
  DIR *folder;
  bool allowed; /* its names may be read */
};

static struct listing *listing_of(const struct fuse_file_info *info) {
  return (struct listing *)(uintptr_t)info->fh;
}

static void listing_free(struct listing *listing) {
  closedir(listing->folder);
  free(listing);
}

static void serve_folder(struct held *held, int fd, bool allowed) {
  struct fuse_file_info info = held->info;
  int opened = reopen(fd, O_RDONLY | O_DIRECTORY);
  DIR *folder = opened < 0 ? NULL : fdopendir(opened);
  if (!folder) {
    fuse_reply_err(held->request, opened < 0 ? -opened : errno);
    return;
  }
  struct listing *listing = xcalloc(1, sizeof *listing);
  *listing = (struct listing){folder, allowed};
  info.fh = (uint64_t)(uintptr_t)listing;
  if (fuse_reply_open(held->request, &info) < 0)
    listing_free(listing);
}

/* The kernel remembers what comes with an entry as if it had looked the name up. In "/" the names
 * that lead to mounts come so: at the start each would be a look-up of its own, with two changes of
 * process. Of others only the name is told (no number). */
static struct fuse_entry_param entry_beside(struct held *held, const struct dirent *named) {
  struct fuse_entry_param entry = {
      .attr = {.st_ino = named->d_ino, .st_mode = DTTOIF(named->d_type)}};
  char path[NAME_MAX + 2];
  struct node *node;
  snprintf(path, sizeof path, "/%s", named->d_name);
  if (held->node->parent || named->d_name[0] == '.' ||
      !gate_leads_to_mount(held->fuse->gate, path) ||
      nodes_lookup(held->fuse->nodes, held->node, named->d_name, &node) < 0)
    return entry;
  return entry_of(held->fuse, node, path);
}

static size_t add_name(struct held *held, char *data, size_t room, const struct dirent *named,
                       off_t next) {
  if (held->call == CALL_READDIR) {
    struct stat status = {.st_ino = named->d_ino, .st_mode = DTTOIF(named->d_type)};
    return fuse_add_direntry(held->request, data, room, named->d_name, &status, next);
  }
  size_t needed = fuse_add_direntry_plus(held->request, NULL, 0, named->d_name, NULL, next);
  if (needed > room)
    return needed;
  struct fuse_entry_param entry = entry_beside(held, named);
  return fuse_add_direntry_plus(held->request, data, room, named->d_name, &entry, next);
}

static void serve_names(struct held *held) {
  struct listing *listing = listing_of(&held->info);
  _cleanup_free_ char *data = xmalloc(held->size);
  size_t used = 0;
  listing->allowed = true;
  seekdir(listing->folder, held->offset);
  for (struct dirent *entry; (entry = readdir(listing->folder));) {
    size_t needed = add_name(held, data + used, held->size - used, entry, telldir(listing->folder));
    if (needed > held->size - used)
      break;
    used += needed;
  }
  fuse_reply_buf(held->request, data, used);
}

static void serve_extended(struct held *held, int fd) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  _cleanup_free_ char *value = held->size ? xmalloc(held->size) : NULL;
  ssize_t length = held->attribute ? getxattr(name, held->attribute, value, held->size)
                                   : listxattr(name, value, held->size);
  if (length < 0)
    fuse_reply_err(held->request, errno);
  else if (held->size == 0)
    fuse_reply_xattr(held->request, (size_t)length);
  else
    fuse_reply_buf(held->request, value, (size_t)length);
}

static void serve(struct held *held) {
  int fd = nodes_fd(held->fuse->nodes, held->node);
  if (fd < 0) {
    fuse_reply_err(held->request, ENOENT);
    return;
  }
  switch (held->call) {
  case CALL_GETATTR:
    serve_attributes(held->request, fd);
    return;
  case CALL_OPEN:
    serve_open(held, fd);
    return;
  case CALL_OPENDIR:
    serve_folder(held, fd, true);
    return;
  case CALL_READDIR:
  case CALL_READDIRPLUS:
    serve_names(held);
    return;
  case CALL_ACCESS:
    fuse_reply_err(held->request,
                   faccessat(fd, "", held->info.flags, AT_EMPTY_PATH) < 0 ? errno : 0);
    return;
  case CALL_GETXATTR:
  case CALL_LISTXATTR:
    serve_extended(held, fd);
    return;
  case CALL_QUIET:
    /* There is nobody behind our own socket; all else may have what we show. */
    fuse_reply_err(held->request, held->waiting.request.want == WANT_CONNECT ? EACCES : ESTALE);
    return;
  }
}

/* ---- once ---- */

static bool opens(const struct held *held) {
  return held->call == CALL_OPEN || held->call == CALL_OPENDIR;
}

static bool use_once(struct fuse_gate *fuse, const struct held *held) {
  return once_use(&fuse->once, held->waiting.request.pid, &held->node->status, opens(held));
}

static void remember_once(struct fuse_gate *fuse, const struct held *held) {
  once_remember(&fuse->once, held->waiting.request.pid, &held->node->status, opens(held));
}

/* ---- calls that wait ---- */

static void held_free(struct held *held) {
  if (held->previous)
    held->previous->next = held->next;
  else
    held->fuse->held = held->next;
  if (held->next)
    held->next->previous = held->previous;
  held->node->pins--;
  nodes_release(held->fuse->nodes, held->node);
  free((char *)held->waiting.request.path);
  free(held->attribute);
  free(held);
}

/* What looks at a descriptor walks no path, and would not meet the mount. */
static bool is_on_descriptor(const struct held *held) {
  pid_t inside = fuse_req_ctx(held->request)->pid;
  return held->call == CALL_GETATTR &&
         quiet_has_descriptor(gate_outer_thread(held->fuse->gate, inside));
}

static void on_done(struct waiting *waiting, enum outcome outcome) {
  struct held *held = (struct held *)waiting;
  fuse_req_interrupt_func(held->request, NULL, NULL);
  if (outcome == OUTCOME_SERVE && waiting->request.want == WANT_WRITE) {
    fuse_reply_err(held->request, EROFS); /* nothing is ever written through here */
  } else if (outcome == OUTCOME_SERVE) {
    if (!waiting->lasts)
      remember_once(held->fuse, held);
    serve(held);
  } else if (outcome == OUTCOME_RETRY && is_on_descriptor(held)) {
    serve(held);
  } else {
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
  if (gate_must_end(held->waiting.request.pid))
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
    if (gate_must_end(held->waiting.request.pid))
      give_up(held);
    else
      gate->signalled = true;
  }
}

static const enum want wants[] = {
    [CALL_READDIR] = WANT_LIST,  [CALL_READDIRPLUS] = WANT_LIST, [CALL_GETATTR] = WANT_STAT,
    [CALL_OPEN] = WANT_READ,     [CALL_OPENDIR] = WANT_LIST,     [CALL_ACCESS] = WANT_STAT,
    [CALL_GETXATTR] = WANT_READ, [CALL_LISTXATTR] = WANT_READ,
};

static struct held *held_new(fuse_req_t request, struct node *node, enum call call,
                             const struct fuse_file_info *info) {
  struct fuse_gate *fuse = gate_of(request);
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

static void ask(struct held *held, enum want want) {
  struct fuse_gate *fuse = held->fuse;
  char path[PATH_MAX];
  held->waiting.request.want = want;
  held->waiting.request.pid = gate_outer_pid(fuse->gate, fuse_req_ctx(held->request)->pid);
  if (want != WANT_WRITE && want != WANT_CONNECT && use_once(fuse, held)) {
    serve(held);
    held_free(held);
    return;
  }
  if (nodes_fd(fuse->nodes, held->node) < 0 || !node_path(held->node, path, sizeof path)) {
    fuse_reply_err(held->request, ENOENT);
    held_free(held);
    return;
  }
  held->waiting.request = (struct access_request){
      .subject = SUBJECT_FILE,
      .want = want,
      .path = xstrdup(path),
      .device = held->node->status.st_dev,
      .inode = held->node->status.st_ino,
      .folder = S_ISDIR(held->node->status.st_mode),
      .socket = S_ISSOCK(held->node->status.st_mode),
      .pid = held->waiting.request.pid,
  };
  if (fuse_req_interrupted(held->request) && gate_must_end(held->waiting.request.pid)) {
    fuse_reply_err(held->request, EINTR);
    held_free(held);
    return;
  }
  if (fuse_req_interrupted(held->request))
    keep_looking(held);
  else
    fuse_req_interrupt_func(held->request, on_interrupt, held);
  gate_ask(fuse->gate, &held->waiting);
}

static void hold(fuse_req_t request, fuse_ino_t number, enum call call,
                 const struct fuse_file_info *info) {
  ask(held_new(request, node_of(gate_of(request), number), call, info), wants[call]);
}

static void ask_quietly(struct held *held, enum want want) {
  held->waiting.needs_mount = needs_mount(want);
  ask(held, want);
}

static void op_readlink(fuse_req_t request, fuse_ino_t number) {
  struct fuse_gate *fuse = gate_of(request);
  struct node *node = node_of(fuse, number);
  pid_t thread = gate_outer_thread(fuse->gate, fuse_req_ctx(request)->pid);
  enum want want;
  char path[PATH_MAX];
  if (!(number & QUESTION) || number == FUSE_ROOT_ID)
    serve_link(request, number);
  else if (node_path(node, path, sizeof path) && quiet_call(thread, path, &node->status, &want))
    ask_quietly(held_new(request, node, CALL_QUIET, NULL), want);
  else
    fuse_reply_err(request, ESTALE);
}

static void op_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  struct node *node = node_of(gate_of(request), number);
  if (info && info->fh && S_ISREG(node->status.st_mode)) {
    serve_attributes(request, (int)info->fh);
  } else if (is_open_kind(node)) {
    struct stat shown = harmless(&node->status);
    fuse_reply_attr(request, &shown, node->fixed ? ENDLESS : FOLDER_SECONDS);
  } else {
    hold(request, number, CALL_GETATTR, NULL);
  }
}

static void op_access(fuse_req_t request, fuse_ino_t number, int mask) {
  struct node *node = node_of(gate_of(request), number);
  struct fuse_file_info info = {.flags = mask};
  char path[PATH_MAX];
  /* chdir comes here, too: who enters a folder before it is mounted would stay below the mount. One
   * above mounts is never mounted itself. */
  bool touchable = !node->fixed && node_path(node, path, sizeof path) &&
                   gate_is_touchable(gate_of(request)->gate, path);
  if (is_open_kind(node) && !touchable)
    fuse_reply_err(request, mask & W_OK ? EROFS : 0);
  else
    hold(request, number, CALL_ACCESS, &info);
}

/* A folder above mounts cannot be mounted itself, so nothing is gained by asking now: only whoever
 * reads its names is held. The names in "/" are those of every system. */
static void op_opendir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  struct fuse_gate *fuse = gate_of(request);
  struct node *node = node_of(fuse, number);
  struct held *held = held_new(request, node, CALL_OPENDIR, info);
  int fd = node->fixed ? nodes_fd(fuse->nodes, node) : -1;
  if (fd < 0) {
    ask(held, wants[CALL_OPENDIR]);
    return;
  }
  serve_folder(held, fd, number == FUSE_ROOT_ID);
  held_free(held);
}

/* Programs ask for attributes of every folder on their way; nobody is asked about those. */
static void hold_extended(fuse_req_t request, fuse_ino_t number, const char *name, size_t size) {
  struct node *node = node_of(gate_of(request), number);
  /* The kernel itself looks for this one before every write; on a nosuid mount it means nothing. */
  bool capability = name && strcmp(name, "security.capability") == 0;
  if (is_open_kind(node) || capability) {
    fuse_reply_err(request, capability ? ENODATA : ENOTSUP);
    return;
  }
  enum call call = name ? CALL_GETXATTR : CALL_LISTXATTR;
  struct held *held = held_new(request, node, call, NULL);
  held->attribute = name ? xstrdup(name) : NULL;
  held->size = size < XATTR_SIZE_MAX ? size : XATTR_SIZE_MAX;
  ask(held, wants[call]);
}

static void op_getxattr(fuse_req_t request, fuse_ino_t number, const char *name, size_t size) {
  hold_extended(request, number, name, size);
}

static void op_listxattr(fuse_req_t request, fuse_ino_t number, size_t size) {
  hold_extended(request, number, NULL, size);
}

/* ---- what was opened without a mount ---- */

static void op_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                    struct fuse_file_info *info) {
  (void)number;
  _cleanup_free_ char *data = xmalloc(size ? size : 1);
  ssize_t got = pread((int)info->fh, data, size, offset);
  if (got < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_buf(request, data, (size_t)got);
}

static void op_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  (void)number;
  close((int)info->fh);
  fuse_reply_err(request, 0);
}

static void list_names(struct held *held, size_t size, off_t offset) {
  held->size = size;
  held->offset = offset;
  if (!listing_of(&held->info)->allowed) {
    ask(held, wants[held->call]);
    return;
  }
  serve_names(held);
  held_free(held);
}

static void op_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                       struct fuse_file_info *info) {
  struct node *node = node_of(gate_of(request), number);
  list_names(held_new(request, node, CALL_READDIR, info), size, offset);
}

static void op_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                           struct fuse_file_info *info) {
  struct node *node = node_of(gate_of(request), number);
  list_names(held_new(request, node, CALL_READDIRPLUS, info), size, offset);
}

static void op_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  (void)number;
  listing_free(listing_of(info));
  fuse_reply_err(request, 0);
}

/* ---- writing ---- */

/* A write to a gated place. With `ask_writes` the folder (or the file) is asked for, and granted
 * writable; without, it is refused and noted. */
static void write_to(fuse_req_t request, struct node *node, const char *name) {
  struct fuse_gate *fuse = gate_of(request);
  char path[PATH_MAX];
  if (!node_path(node, path, sizeof path)) {
    fuse_reply_err(request, ENAMETOOLONG);
    return;
  }
  if (may_ask_to_write(fuse, path) && node->parent) {
    struct held *held = held_new(request, node, CALL_OPEN, NULL);
    held->waiting.holds_lock = true;
    ask(held, WANT_WRITE);
    return;
  }
  size_t length = strlen(path);
  if (name)
    snprintf(path + length, sizeof path - length, "%s%s", length > 1 ? "/" : "", name);
  struct access_request refused = {
      .subject = SUBJECT_FILE,
      .want = WANT_WRITE,
      .path = path,
      .device = node->status.st_dev,
      .inode = node->status.st_ino,
      .pid = gate_outer_pid(fuse->gate, fuse_req_ctx(request)->pid),
  };
  decisions_note_refused(fuse->gate->config.decisions, &refused, "not a writable place");
  fuse_reply_err(request, EROFS);
}

static void write_below(fuse_req_t request, fuse_ino_t parent, const char *name) {
  write_to(request, node_of(gate_of(request), parent), name);
}

static void op_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  if ((info->flags & O_ACCMODE) != O_RDONLY || info->flags & O_TRUNC)
    write_to(request, node_of(gate_of(request), number), NULL);
  else
    hold(request, number, CALL_OPEN, info);
}

static void op_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                      struct fuse_file_info *info) {
  (void)mode;
  (void)info;
  write_below(request, parent, name);
}

static void op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                     dev_t device) {
  (void)mode;
  (void)device;
  write_below(request, parent, name);
}

static void op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode) {
  (void)mode;
  write_below(request, parent, name);
}

static void op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent,
                       const char *name) {
  (void)target;
  write_below(request, parent, name);
}

static void op_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name) {
  (void)number;
  write_below(request, parent, name);
}

static void op_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t to,
                      const char *new_name, unsigned flags) {
  (void)to;
  (void)new_name;
  (void)flags;
  write_below(request, parent, name);
}

static void op_setattr(fuse_req_t request, fuse_ino_t number, struct stat *status, int fields,
                       struct fuse_file_info *info) {
  (void)status;
  (void)fields;
  (void)info;
  write_to(request, node_of(gate_of(request), number), NULL);
}

static void op_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value,
                        size_t size, int flags) {
  (void)name;
  (void)value;
  (void)size;
  (void)flags;
  write_to(request, node_of(gate_of(request), number), NULL);
}

static void op_removexattr(fuse_req_t request, fuse_ino_t number, const char *name) {
  (void)name;
  write_to(request, node_of(gate_of(request), number), NULL);
}

/* ---- the session with the kernel ---- */

static void op_init(void *context, struct fuse_conn_info *connection) {
  (void)context;
  /* No pipes for the few bytes that pass here; O_TRUNC arrives with its open. */
  connection->want &=
      ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
  connection->want |= connection->capable & (FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_PARALLEL_DIROPS |
                                             FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
}

static const struct fuse_lowlevel_ops operations = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = write_below,
    .rmdir = write_below,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .read = op_read,
    .release = op_release,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .access = op_access,
    .create = op_create,
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

static void trigger_serve(struct gate *gate) {
  struct fuse_gate *fuse = gate->trigger_state;
  for (int i = 0; i < TURN_LIMIT; i++) {
    int got = fuse_session_receive_buf(fuse->session, &fuse->buffer);
    if (got <= 0)
      return; /* nothing left, or the session's mount is gone */
    fuse_session_process_buf(fuse->session, &fuse->buffer);
    nodes_let_go(fuse->nodes);
  }
}

static void trigger_granted(struct gate *gate, const char *path, bool mounted) {
  struct fuse_gate *fuse = gate->trigger_state;
  struct node *node = mounted ? nodes_find(fuse->nodes, path) : NULL;
  for (; node; node = node->parent)
    node->fixed = true;
  unpark(fuse, path);
}

static void trigger_refresh(struct gate *gate, const char *path) {
  struct fuse_gate *fuse = gate->trigger_state;
  struct node *node = nodes_find(fuse->nodes, path);
  if (node && node->parent)
    nodes_refresh(fuse->nodes, node);
}

static void trigger_close(struct gate *gate) {
  struct fuse_gate *fuse = gate->trigger_state;
  if (!fuse)
    return;
  while (fuse->held) {
    gate_withdraw(gate, &fuse->held->waiting);
    fuse_reply_err(fuse->held->request, ENOTCONN);
    held_free(fuse->held);
  }
  unpark(fuse, NULL);
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
    .granted = trigger_granted,
    .refresh = trigger_refresh,
    .close = trigger_close,
};
