/* Writes to gated places: refused and noted, or asked for. */
#include "gate/fuse.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "gate/doing.h"

/* ---- locks ---- */

/* The kernel holds the locks of the folders that a call changes or lists, of the name in them that
 * it removes or moves, and of a file whose attributes it changes. What cannot be told is in the
 * way. Nobody else is: the kernel walks a second time only once, and the call would fail then. */
static bool is_locked(const struct node *node, const char *name, const char *path) {
  char own[PATH_MAX];
  if (!node || !path || !node_path(node, own, sizeof own))
    return node;
  const char *below = path_below(path, own);
  return below && (!*below || (name && strcmp(below, name) == 0));
}

static bool is_in_the_way(const struct held *held, const char *path) {
  return held->waiting.holds_lock && !held->standing &&
         (is_locked(held->node, held->name, path) ||
          is_locked(held->other, held->other_name, path));
}

/* A question that it waited for is asked again on its second walk, unless the mount settles it. */
static void send_away(struct held *held, const char *path) {
  gate_withdraw(held->fuse->gate, &held->waiting);
  fuse_req_interrupt_func(held->request, NULL, NULL);
  if (path && fuse_must_begin_anew(held) && path_is_under(held->waiting.request.path, path)) {
    fuse_stand_in(held);
    return;
  }
  if (path && fuse_is_listing(held))
    fuse_serve(held); /* of what is being mounted the names may be read */
  else
    fuse_reply_err(held->request, ESTALE);
  held_free(held);
}

void fuse_give_way(struct fuse_gate *fuse, const char *path) {
  for (struct held *held = fuse->held, *next; held; held = next) {
    next = held->next;
    if (is_in_the_way(held, path))
      send_away(held, path);
  }
}

bool fuse_comes_in_between(struct held *held) {
  const char *path = gate_mounting(held->fuse->gate);
  if (!path || !is_in_the_way(held, path))
    return false;
  send_away(held, path);
  return true;
}

static bool is_on_the_way(const struct node *node, const char *path) {
  char own[PATH_MAX];
  return node && (!node_path(node, own, sizeof own) || path_is_under(path, own));
}

void fuse_clear_way(struct fuse_gate *fuse, const char *path) {
  fuse_unpark(fuse, path);
  for (struct held *held = fuse->held, *next; held; held = next) {
    next = held->next;
    if (held->waiting.holds_lock && !held->standing &&
        (is_on_the_way(held->node, path) || is_on_the_way(held->other, path)))
      send_away(held, NULL);
  }
}

/* ---- asking ---- */

/* It has no path that would lead to a mount, and what it has open cannot be put in its place as a
 * folder can (see fuse-once.c): nothing would be gained by asking. */
static bool changes_open_file(fuse_req_t request, const struct node *node) {
  struct doing doing;
  struct target caller = fuse_caller(request);
  return !S_ISDIR(node->status.st_mode) && doing_read(&caller, &doing) == 0 &&
         doing_changes_descriptor(&doing);
}

/* A write to a gated place. With `ask_writes` the folder (or the file) is asked for, and granted
 * writable; without, it is refused and noted. */
static void write_to(fuse_req_t request, struct node *node, const char *name, struct node *other,
                     const char *other_name) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  char path[PATH_MAX];
  if (!node_path(node, path, sizeof path)) {
    fuse_reply_err(request, ENAMETOOLONG);
    return;
  }
  if (fuse_may_ask_to_write(fuse, path) && node->parent && !changes_open_file(request, node)) {
    struct held *held = held_new(request, node, CALL_OPEN, NULL);
    held->waiting.holds_lock = true;
    held->name = name ? xstrdup(name) : NULL;
    held->other = other;
    held->other_name = other_name ? xstrdup(other_name) : NULL;
    if (other)
      node_reference(other);
    held_ask(held, WANT_WRITE);
    return;
  }
  _cleanup_free_ char *named = name ? path_join(path, name) : NULL;
  struct access_request refused = {
      .subject = SUBJECT_FILE,
      .want = WANT_WRITE,
      .path = named ? named : path,
      .device = node->status.st_dev,
      .inode = node->status.st_ino,
      .pid = gate_outer_pid(fuse->gate, fuse_req_ctx(request)->pid),
  };
  fuse_reply_err(request, gate_refuse_write(fuse->gate, &refused, path));
}

void fuse_write_to(fuse_req_t request, struct node *node) {
  write_to(request, node, NULL, NULL, NULL);
}

void fuse_write_below(fuse_req_t request, fuse_ino_t parent, const char *name) {
  write_to(request, fuse_node_of(fuse_gate_of(request), parent), name, NULL, NULL);
}

void fuse_op_open(fuse_req_t request, fuse_ino_t number, struct fuse_file_info *info) {
  if ((info->flags & O_ACCMODE) != O_RDONLY || info->flags & O_TRUNC)
    fuse_write_to(request, fuse_node_of(fuse_gate_of(request), number));
  else
    held_begin(request, number, CALL_OPEN, info);
}

void fuse_op_create(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                    struct fuse_file_info *info) {
  (void)mode;
  (void)info;
  fuse_write_below(request, parent, name);
}

void fuse_op_mknod(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode,
                   dev_t device) {
  (void)mode;
  (void)device;
  fuse_write_below(request, parent, name);
}

/* A cache that is used for the first time: its folder is as good as made. */
static bool make_touched(fuse_req_t request, struct node *above, const char *name, mode_t mode) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  char folder[PATH_MAX];
  struct node *node;
  if (!node_path(above, folder, sizeof folder))
    return false;
  _cleanup_free_ char *path = path_join(folder, name);
  if (!touched_make(fuse->gate, path, mode) || nodes_lookup(fuse->nodes, above, name, &node) < 0)
    return false;
  struct fuse_entry_param entry = fuse_entry_of(fuse, node, path);
  fuse_reply_entry(request, &entry);
  return true;
}

void fuse_op_mkdir(fuse_req_t request, fuse_ino_t parent, const char *name, mode_t mode) {
  struct node *above = fuse_node_of(fuse_gate_of(request), parent);
  if (!above->parent || !make_touched(request, above, name, mode))
    fuse_write_below(request, parent, name);
}

void fuse_op_symlink(fuse_req_t request, const char *target, fuse_ino_t parent, const char *name) {
  (void)target;
  fuse_write_below(request, parent, name);
}

void fuse_op_link(fuse_req_t request, fuse_ino_t number, fuse_ino_t parent, const char *name) {
  struct fuse_gate *fuse = fuse_gate_of(request);
  write_to(request, fuse_node_of(fuse, parent), name, fuse_node_of(fuse, number), NULL);
}

void fuse_op_rename(fuse_req_t request, fuse_ino_t parent, const char *name, fuse_ino_t to,
                    const char *new_name, unsigned flags) {
  (void)flags;
  struct fuse_gate *fuse = fuse_gate_of(request);
  write_to(request, fuse_node_of(fuse, parent), name, fuse_node_of(fuse, to), new_name);
}

void fuse_op_setattr(fuse_req_t request, fuse_ino_t number, struct stat *status, int fields,
                     struct fuse_file_info *info) {
  (void)status;
  (void)fields;
  (void)info;
  fuse_write_to(request, fuse_node_of(fuse_gate_of(request), number));
}

void fuse_op_setxattr(fuse_req_t request, fuse_ino_t number, const char *name, const char *value,
                      size_t size, int flags) {
  (void)name;
  (void)value;
  (void)size;
  (void)flags;
  fuse_write_to(request, fuse_node_of(fuse_gate_of(request), number));
}

void fuse_op_removexattr(fuse_req_t request, fuse_ino_t number, const char *name) {
  (void)name;
  fuse_write_to(request, fuse_node_of(fuse_gate_of(request), number));
}
