/* What the FUSE gate serves without a mount: what is allowed once, and folders above mounts. */
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
#include "core/cleanup.h"
#include "core/folder.h"
#include "engine/caps.h"
#include "plan/distant.h"

/* Never waits: somebody may have a lease on the file, and give it back in a minute. */
static int reopen(int fd, int flags) {
  char name[64];
  snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
  int opened = open(name, flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  return opened < 0 ? -errno : opened;
}

void fuse_serve_attributes(fuse_req_t request, int fd) {
  struct stat status;
  if (fstat(fd, &status) < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_attr(request, &status, 0);
}

/* Attributes of another kind would make it useless to the kernel. */
static void serve_attributes(struct held *held, int fd) {
  struct stat shown = fuse_question();
  if (held->link)
    fuse_reply_attr(held->request, &shown, 0);
  else
    fuse_serve_attributes(held->request, fd);
}

/* As with a mount that is read-only: what is sent to a pipe or a device is not written there. */
static int test_access(const struct held *held, int fd) {
  char path[PATH_MAX];
  /* AT_EACCESS: root would be asked about with all that it may have. */
  if (faccessat(fd, "", held->info.flags, AT_EMPTY_PATH | AT_EACCESS) < 0)
    return errno;
  return held->info.flags & W_OK && S_ISREG(held->node->status.st_mode) &&
                 node_path(held->node, path, sizeof path) &&
                 !fuse_may_ask_to_write(held->fuse, path)
             ? EROFS
             : 0;
}

static void serve_access(struct held *held, int fd) {
  struct stat usable = fuse_usable(held->fuse, held->node);
  int refused = test_access(held, fd);
  if (refused)
    fuse_reply_err(held->request, refused);
  else if (held->checked)
    fuse_reply_attr(held->request, &usable, 0);
  else
    fuse_reply_err(held->request, 0);
}

void fuse_expect_again(struct held *held) {
  if (!S_ISREG(held->node->status.st_mode))
    return;
  held->node->told = true;
  second_walks_add(&held->fuse->second_walks, fuse_req_ctx(held->request)->pid,
                   &held->node->status);
}

/* What the kernel was told for another counts as well, once he has come for it. */
static bool knows_size(struct held *held) {
  const struct node *node = held->node;
  struct second_walks *walks = &held->fuse->second_walks;
  bool second = second_walks_take(walks, fuse_req_ctx(held->request)->pid, &node->status);
  return node->opens > 0 || node->status.st_size == 0 ||
         (node->told && (second || !second_walks_lead_to(walks, &node->status)));
}

/* The look-up told no size, and the kernel goes by it for what it does without us: a mapping of the
 * file ends with it, and so does sendfile. So the path is walked once more, and told it. */
static bool walks_again(struct held *held) {
  const struct node *node = held->node;
  if (knows_size(held) || held->links > LINKS_AGAIN)
    return false;
  if (!held->waiting.lasts &&
      !once_give_back(&held->fuse->once, held->waiting.request.pid, &node->status, held_use(held)))
    return false;
  fuse_expect_again(held);
  fuse_reply_err(held->request, ESTALE);
  return true;
}

static void count_open(struct fuse_gate *fuse, struct node *node, bool more) {
  node->opens = more ? node->opens + 1 : node->opens - 1;
  fuse->opens = more ? fuse->opens + 1 : fuse->opens - 1;
}

static void serve_open(struct held *held, int fd) {
  struct fuse_file_info info = held->info;
  if (S_ISREG(held->node->status.st_mode) && walks_again(held))
    return;
  int opened = S_ISREG(held->node->status.st_mode) ? reopen(fd, O_RDONLY) : -EACCES;
  if (opened < 0) {
    fuse_reply_err(held->request, -opened);
    return;
  }
  info.fh = (uint64_t)opened;
  /* An exec would ask us before it closes it, and until then it lets nobody look at the process:
   * not us, either, who may be doing just that. There is nothing to be written. */
  info.noflush = true;
  count_open(held->fuse, held->node, true);
  held->node->told =
      held->waiting.lasts || second_walks_lead_to(&held->fuse->second_walks, &held->node->status);
  if (fuse_reply_open(held->request, &info) < 0) {
    count_open(held->fuse, held->node, false);
    close(opened); /* interrupted: nobody will release it */
  }
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

void fuse_serve_folder(struct held *held, int fd, bool allowed) {
  struct fuse_file_info info = held->info;
  int opened = reopen(fd, O_RDONLY | O_DIRECTORY);
  DIR *folder = folder_stream(opened);
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

/* The kernel remembers what comes with an entry as if it had looked the name up. The names in our
 * root come so, for init puts them into the session's, unless something is mounted there: one by
 * one that would be as many changes of process. Of others, and of what is hidden, only the name is
 * told (no number). */
static struct fuse_entry_param entry_beside(struct held *held, const struct dirent *named) {
  struct fuse_entry_param entry = {
      .attr = {.st_ino = named->d_ino, .st_mode = DTTOIF(named->d_type)}};
  char path[NAME_MAX + 2];
  struct node *node;
  snprintf(path, sizeof path, "/%s", named->d_name);
  bool dots = strcmp(named->d_name, ".") == 0 || strcmp(named->d_name, "..") == 0;
  if (held->node->parent || dots || named->d_type == DT_LNK ||
      strv_contains(&held->fuse->gate->mounts, path) || gate_hides(held->fuse->gate, path) ||
      nodes_lookup(held->fuse->nodes, held->node, named->d_name, &node) < 0)
    return entry;
  entry = fuse_entry_of(held->fuse, node, path);
  if (entry.entry_timeout < FOLDER_SECONDS)
    entry.entry_timeout = FOLDER_SECONDS;
  return entry;
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

static void serve_call(struct held *held, int fd) {
  switch (held->call) {
  case CALL_GETATTR:
    serve_attributes(held, fd);
    return;
  case CALL_OPEN:
    serve_open(held, fd);
    return;
  case CALL_OPENDIR:
    fuse_serve_folder(held, fd, true);
    return;
  case CALL_READDIR:
  case CALL_READDIRPLUS:
    serve_names(held);
    return;
  case CALL_ACCESS:
    serve_access(held, fd);
    return;
  case CALL_GETXATTR:
  case CALL_LISTXATTR:
    serve_extended(held, fd);
    return;
  case CALL_QUIET:
    /* There is nobody behind our own socket, and nothing to be seen in our own file. Whoever only
     * looks may have what we show, and by now there may be a mount. */
    fuse_reply_err(held->request,
                   held->waiting.needs_mount && !held->waiting.lasts ? EACCES : ESTALE);
    return;
  }
}

/* Whoever looks asks for less of a server than who opens or lists. */
static int may_read(const struct node *node) {
  char path[PATH_MAX];
  return distant_exists() && node_path(node, path, sizeof path) ? distant_reads(path) : 0;
}

static int object_of(const struct held *held) {
  int fd = nodes_fd(held->fuse->nodes, held->node);
  int result = fd >= 0 && held->waiting.request.want != WANT_STAT ? may_read(held->node) : 0;
  return result < 0 ? result : fd;
}

/* A FIFO that the caller has held before: by way of its descriptor the mount is not met, and there
 * is nobody at the other end of ours. Who said yes would not know why it is refused. */
static void note_pipe(const struct held *held) {
  if (held->call == CALL_OPEN && S_ISFIFO(held->node->status.st_mode))
    decisions_note_failed(held->fuse->gate->config.decisions, &held->waiting.request, EXDEV);
}

void fuse_serve(struct held *held) {
  int fd = object_of(held);
  if (fd < 0) {
    fuse_reply_err(held->request, fd == -ETIMEDOUT ? ETIMEDOUT : ENOENT);
    return;
  }
  note_pipe(held);
  if (held->links > LINKS_AGAIN)
    fuse_expect_again(held);         /* what comes next of this call is not counted any more */
  uint64_t rights = caps_lay_down(); /* the caller has none */
  serve_call(held, fd);
  caps_take_up(rights);
}

/* ---- what was opened without a mount ---- */

void fuse_op_read(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                  struct fuse_file_info *info) {
  _cleanup_free_ char *data = xmalloc(size ? size : 1);
  int result = may_read(fuse_node_of(fuse_gate_of(request), number));
  ssize_t got = result < 0 ? -1 : pread((int)info->fh, data, size, offset);
  if (result < 0)
    fuse_reply_err(request, -result);
  else if (got < 0)
    fuse_reply_err(request, errno);
  else
    fuse_reply_buf(request, data, (size_t)got);
}

void fuse_op_release(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  count_open(fuse, fuse_node_of(fuse, number), false);
  close((int)info->fh);
  fuse_reply_err(request, 0);
}

static void list_names(struct held *held, size_t size, off_t offset) {
  held->size = size;
  held->offset = offset;
  if (!listing_of(&held->info)->allowed) {
    held->waiting.holds_lock = true;
    held_ask(held, held_wants[held->call]);
    return;
  }
  int result = may_read(held->node);
  if (result < 0)
    fuse_reply_err(held->request, -result);
  else
    serve_names(held);
  held_free(held);
}

void fuse_op_readdir(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                     struct fuse_file_info *info) {
  struct node *node = fuse_node_of(fuse_gate_of(request), number);
  list_names(held_new(request, node, CALL_READDIR, info), size, offset);
}

void fuse_op_readdirplus(fuse_req_t request, fuse_ino_t number, size_t size, off_t offset,
                         struct fuse_file_info *info) {
  struct node *node = fuse_node_of(fuse_gate_of(request), number);
  list_names(held_new(request, node, CALL_READDIRPLUS, info), size, offset);
}

void fuse_op_releasedir(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  (void)number;
  listing_free(listing_of(info));
  fuse_reply_err(request, 0);
}
