/* What the FUSE gate tells of an object, and who waits to be told; see fuse.c.
 *
 * Where it can be seen what a caller is doing, the kernel checks rights itself, by the attributes
 * that we show ("default_permissions"). It asks for them each time, except for folders above
 * mounts, through which everything passes. That is the one moment at which a call can be held that
 * uses an object without another word to us: a watch, whose folder may have been looked up before,
 * or is the caller's own, or is right below "/", where nothing is looked up. What another request
 * will come for is let pass here with every right. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "gate/fuse.h"
#include "gate/purpose.h"

/* Folders and links must show enough to be walked. Of anything else only the kind is told: a caller
 * may ask the kernel for what it remembers (AT_STATX_DONT_SYNC) without asking us. */
static struct stat harmless(const struct stat *status) {
  /* The owner must be one whom the session's user namespace knows: else the kernel refuses every
   * write by itself, and nobody is asked or told. */
  struct stat shown = {.st_ino = status->st_ino,
                       .st_mode = status->st_mode,
                       .st_nlink = 1,
                       .st_uid = geteuid(),
                       .st_gid = getegid()};
  /* The kernel goes by whatever it heard last, which may be an answer to another: nothing but every
   * right would do for one who may, while somebody looks the name up. */
  if (!S_ISDIR(status->st_mode) && !S_ISLNK(status->st_mode)) {
    shown.st_mode = (status->st_mode & S_IFMT) | 0777;
    return shown;
  }
  shown.st_uid = status->st_uid;
  shown.st_gid = status->st_gid;
  shown.st_size = S_ISLNK(status->st_mode) ? status->st_size : 0;
  return shown;
}

/* As the kernel sees it. */
struct stat fuse_question(void) {
  struct stat status = {.st_mode = S_IFLNK | 0777};
  return harmless(&status);
}

bool fuse_is_open_kind(const struct node *node) {
  return S_ISDIR(node->status.st_mode) || S_ISLNK(node->status.st_mode);
}

/* The kernel knows neither the groups of the caller nor access lists: who may read or enter a
 * folder by them must find that in its bits. */
static void let_pass(struct fuse_gate *fuse, struct node *node, struct stat *shown) {
  static const struct {
    int right;
    mode_t bit;
  } rights[] = {{R_OK, 04}, {X_OK, 01}};
  unsigned shift = shown->st_uid == geteuid() ? 6 : shown->st_gid == getegid() ? 3 : 0;
  for (size_t i = 0; i < ARRAY_SIZE(rights); i++) {
    mode_t bit = rights[i].bit << shift;
    if (!(shown->st_mode & bit) && faccessat(nodes_fd(fuse->nodes, node), "", rights[i].right,
                                             AT_EMPTY_PATH | AT_EACCESS) == 0)
      shown->st_mode |= bit;
  }
}

struct stat fuse_shown(struct fuse_gate *fuse, struct node *node) {
  struct stat shown = harmless(&node->status);
  if (fuse->checks && S_ISDIR(shown.st_mode))
    let_pass(fuse, node, &shown);
  /* Another size would cut the file off for who was allowed to read it, or runs it. */
  if (node->opens > 0 || node->told)
    shown.st_size = node->status.st_size;
  return shown;
}

struct stat fuse_usable(struct fuse_gate *fuse, struct node *node) {
  struct stat shown = fuse_shown(fuse, node);
  shown.st_mode |= 0777;
  return shown;
}

double fuse_shown_seconds(const struct fuse_gate *fuse, const struct node *node) {
  if (node->fixed)
    return ENDLESS;
  return fuse->checks ? 0 : FOLDER_SECONDS;
}

/* Nothing can be served in the place of what is a link to the kernel, and whoever has the socket
 * itself can speak to it: so that is what is asked. */
void fuse_ask_to_look(fuse_req_t request, struct node *node, enum call call) {
  struct held *held = held_new(request, node, call, NULL);
  held->link = true;
  held->waiting.needs_mount = true;
  held->in_its_place.kind = STAND_IN_CANNOT;
  held_ask(held, WANT_CONNECT);
}

static void show(struct fuse_gate *fuse, fuse_req_t request, struct node *node) {
  struct stat shown = fuse_shown(fuse, node);
  fuse_reply_attr(request, &shown, fuse_shown_seconds(fuse, node));
}

static void show_usable(struct fuse_gate *fuse, fuse_req_t request, struct node *node) {
  struct stat shown = fuse_usable(fuse, node);
  fuse_reply_attr(request, &shown, 0);
}

static void look(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                 enum purpose purpose) {
  if (fuse_is_open_kind(node)) {
    show(fuse, request, node);
    return;
  }
  struct held *held = held_new(request, node, CALL_GETATTR, NULL);
  held->waiting.holds_lock = purpose == PURPOSE_UNKNOWN;
  held_ask(held, purpose == PURPOSE_EXECUTE ? WANT_EXECUTE : WANT_STAT);
}

/* chdir comes here, too: who enters a folder before it is mounted would stay below the mount. One
 * above mounts is never mounted itself. */
static bool waits_for_mount(struct fuse_gate *fuse, const struct node *node, const char *path) {
  return !fuse_is_open_kind(node) || (!node->fixed && (gate_is_touchable(fuse->gate, path) ||
                                                       gate_is_writable(fuse->gate, path)));
}

/* Nobody is asked about a folder that is only passed or looked at, but who may not enter it on the
 * host does not here. One that can be asked for, or that a cache is to be made in, can be written
 * to by who may on the host. */
static int access_folder(struct fuse_gate *fuse, struct node *node, const char *path, int mask) {
  int fd = S_ISDIR(node->status.st_mode) && !node->fixed ? nodes_fd(fuse->nodes, node) : -1;
  bool writable = mask & W_OK && (touched_makes_in(fuse->gate, path) ||
                                  (!node->fixed && fuse_may_ask_to_write(fuse, path)));
  if (fd >= 0 && faccessat(fd, "", writable ? mask : mask & ~W_OK, AT_EMPTY_PATH) < 0)
    return errno;
  return mask & W_OK && !writable ? EROFS : 0;
}

static void test(struct fuse_gate *fuse, fuse_req_t request, struct node *node, const char *path,
                 int mask) {
  struct fuse_file_info info = {.flags = mask};
  if (!waits_for_mount(fuse, node, path)) {
    int refused = mask & W_OK ? access_folder(fuse, node, path, mask) : 0;
    if (refused)
      fuse_reply_err(request, refused);
    else if (mask & W_OK)
      show_usable(fuse, request, node);
    else
      show(fuse, request, node);
    return;
  }
  struct held *held = held_new(request, node, CALL_ACCESS, &info);
  held->checked = true;
  held_ask(held, held_wants[CALL_ACCESS]);
}

/* A folder may only be on the way. */
static void watch(struct fuse_gate *fuse, fuse_req_t request, struct node *node, const char *path) {
  struct quiet_use use;
  struct target caller = fuse_caller(request);
  if (quiet_call(&caller, path, &node->status, &use) == QUIET_NOT) {
    look(fuse, request, node, PURPOSE_LOOK);
    return;
  }
  struct held *held = held_new(request, node, CALL_QUIET, NULL);
  held->checked = true;
  held_ask_quietly(held, &use);
}

/* The kernel opens a FIFO by itself, and asks for nothing more. Most are held in the look-up; right
 * below "/", and by a descriptor, there is none. */
static void use_pipe(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                     const char *path) {
  struct quiet_use use;
  struct target caller = fuse_caller(request);
  if (quiet_call(&caller, path, &node->status, &use) == QUIET_NOT) {
    show_usable(fuse, request, node); /* another call, which does */
  } else if (use.want == WANT_WRITE) {
    fuse_write_to(request, node);
  } else {
    struct held *held = held_new(request, node, CALL_OPEN, NULL);
    held->waiting.needs_mount = true;
    held_ask(held, use.want);
  }
}

/* A folder in which a name is made is locked by then, and nobody else could look up another in it
 * until the question is answered. On the way there it is not. */
static bool asks_to_make(struct fuse_gate *fuse, fuse_req_t request, struct node *node,
                         const char *path) {
  char name[NAME_MAX + 1];
  struct stat status;
  struct target caller = fuse_caller(request);
  if (!S_ISDIR(node->status.st_mode) || !node->parent || !fuse_may_ask_to_write(fuse, path) ||
      touched_has_writable_below(fuse->gate, path) || !purpose_is_to_make(&caller, path, name))
    return false;
  int fd = nodes_fd(fuse->nodes, node);
  return fd >= 0 && faccessat(fd, "", W_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) == 0 &&
         fstatat(fd, name, &status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) < 0 && errno == ENOENT;
}

static void ask_to_make(fuse_req_t request, struct node *node) {
  struct held *held = held_new(request, node, CALL_GETATTR, NULL);
  held->early = true;
  held_ask(held, WANT_WRITE);
}

static void check(struct fuse_gate *fuse, fuse_req_t request, struct node *node) {
  pid_t inside = fuse_req_ctx(request)->pid;
  bool folder = S_ISDIR(node->status.st_mode);
  char path[PATH_MAX];
  int mask;
  if (!node_path(node, path, sizeof path)) {
    fuse_reply_err(request, ENAMETOOLONG);
    return;
  }
  /* The broker has to pass, whoever may. */
  if (inside == 0 && folder) {
    show_usable(fuse, request, node);
    return;
  }
  struct target caller = fuse_caller(request);
  enum purpose purpose = purpose_of(&caller, path, folder, &mask);
  switch (purpose) {
  case PURPOSE_UNKNOWN:
  case PURPOSE_LOOK:
  case PURPOSE_EXECUTE:
    look(fuse, request, node, purpose);
    return;
  case PURPOSE_USE:
    if (S_ISFIFO(node->status.st_mode))
      use_pipe(fuse, request, node, path);
    else if (asks_to_make(fuse, request, node, path))
      ask_to_make(request, node);
    else
      show_usable(fuse, request, node);
    return;
  case PURPOSE_TEST:
    test(fuse, request, node, path, mask);
    return;
  case PURPOSE_WATCH:
    watch(fuse, request, node, path);
    return;
  }
}

void fuse_op_getattr(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct node *node = fuse_node_of(fuse, number);
  if (info && info->fh && S_ISREG(node->status.st_mode))
    fuse_serve_attributes(request, (int)info->fh);
  else if (fuse_is_question(number))
    fuse_ask_to_look(request, node, CALL_GETATTR);
  else if (fuse->checks && !(fuse_is_open_kind(node) && node->fixed))
    check(fuse, request, node);
  else
    look(fuse, request, node, PURPOSE_LOOK);
}

/* Where the kernel does not check rights itself. */
void fuse_op_access(fuse_req_t request, fuse_ino_t number, int mask) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  struct node *node = fuse_node_of(fuse, number);
  struct fuse_file_info info = {.flags = mask};
  char path[PATH_MAX];
  if (!node_path(node, path, sizeof path))
    fuse_reply_err(request, ENAMETOOLONG);
  else if (waits_for_mount(fuse, node, path))
    held_begin(request, number, CALL_ACCESS, &info);
  else
    fuse_reply_err(request, access_folder(fuse, node, path, mask));
}
