/* The node table; see nodes.h. */
#include "gate/nodes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "gate/automount.h"
#include "plan/distant.h"

#define BUCKETS          1024
#define DESCRIPTOR_LIMIT 256 /* of nodes that are not fixed; the fixed ones are few */

#define REPLACED BUCKETS /* the bucket of those whose name leads to something else by now */

struct nodes {
  struct node *buckets[BUCKETS + 1];
  struct node root;
  struct node recent; /* ring of nodes with a descriptor that may be closed, most recent first */
  size_t open;
};

static size_t bucket_of(const struct node *parent, const char *name) {
  size_t hash = (size_t)(uintptr_t)parent >> 4;
  for (const char *at = name; *at; at++)
    hash = hash * 31 + (unsigned char)*at;
  return hash % BUCKETS;
}

struct nodes *nodes_new(void) {
  struct nodes *nodes = xcalloc(1, sizeof *nodes);
  nodes->recent.older = nodes->recent.newer = &nodes->recent;
  nodes->root = (struct node){.name = (char *)"", .lookups = 1, .references = 1, .fixed = true};
  nodes->root.fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (nodes->root.fd < 0 || fstat(nodes->root.fd, &nodes->root.status) < 0) {
    nodes_free(nodes);
    return NULL;
  }
  return nodes;
}

struct node *nodes_root(struct nodes *nodes) {
  return &nodes->root;
}

/* ---- descriptors ---- */

static void unlink_recent(struct node *node) {
  node->older->newer = node->newer;
  node->newer->older = node->older;
  node->older = node->newer = NULL;
}

static void link_recent(struct nodes *nodes, struct node *node) {
  node->older = nodes->recent.older;
  node->newer = &nodes->recent;
  node->older->newer = node;
  nodes->recent.older = node;
}

static void close_node(struct nodes *nodes, struct node *node) {
  if (node->older) {
    unlink_recent(node);
    nodes->open--;
  }
  if (node->fd >= 0)
    close(node->fd);
  node->fd = -1;
}

/* On another file system than the root, which nobody unmounts. */
static bool is_foreign(const struct nodes *nodes, const struct node *node) {
  return node->status.st_dev != nodes->root.status.st_dev;
}

void nodes_let_go(struct nodes *nodes) {
  for (struct node *node = nodes->recent.newer, *next; node != &nodes->recent; node = next) {
    next = node->newer;
    if (node->pins == 0 && is_foreign(nodes, node))
      close_node(nodes, node);
  }
}

static void take_fd(struct nodes *nodes, struct node *node, int fd) {
  node->fd = fd;
  link_recent(nodes, node);
  nodes->open++;
}

/* A descriptor was used: it is the last that would be closed. Fixed nodes keep theirs. */
static void touch(struct nodes *nodes, struct node *node) {
  if (!node->older)
    return;
  unlink_recent(node);
  if (node->fixed && !is_foreign(nodes, node))
    nodes->open--;
  else
    link_recent(nodes, node);
}

static void close_oldest(struct nodes *nodes, const struct node *kept) {
  for (struct node *node = nodes->recent.newer, *next; nodes->open > DESCRIPTOR_LIMIT;
       node = next) {
    next = node->newer;
    if (node == &nodes->recent)
      return;
    if (node != kept && node->pins == 0)
      close_node(nodes, node);
  }
}

/* NULL if it is too long: mounts have shorter names. */
static char *path_in(const struct node *parent, const char *name) {
  char path[PATH_MAX];
  if (!node_path(parent, path, sizeof path - NAME_MAX - 1))
    return NULL;
  return xasprintf("%s/%s", parent->parent ? path : "", name);
}

static bool makes_mount(const struct node *parent, int folder, const char *name) {
  _cleanup_free_ char *path = automount_exists() ? path_in(parent, name) : NULL;
  return path && automount_waits(folder, path);
}

/* 0, or -ETIMEDOUT: whoever looks at it waits for a server. */
static int may_look(const struct node *parent, const char *name) {
  _cleanup_free_ char *path = distant_exists() ? path_in(parent, name) : NULL;
  return path ? distant_answers(path) : 0;
}

/* Every command that lists a home folder looks at what is mounted there, and every session at what
 * is in "/": what the kernel remembers of it will do, and no server need be asked. Not to use it.
 */
static int open_top(const struct node *parent, int folder, const char *name,
                    struct stat *ret_status) {
  struct statx known;
  _cleanup_free_ char *path = distant_exists() ? path_in(parent, name) : NULL;
  if (!path || !distant_is_top(path))
    return -EAGAIN;
  _cleanup_close_ int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS, &known) < 0)
    return -errno;
  *ret_status = (struct stat){.st_dev = makedev(known.stx_dev_major, known.stx_dev_minor),
                              .st_ino = known.stx_ino,
                              .st_mode = known.stx_mode,
                              .st_nlink = known.stx_nlink,
                              .st_uid = known.stx_uid,
                              .st_gid = known.stx_gid};
  return known.stx_mode & ALLPERMS ? steal_fd(&fd) : -EAGAIN; /* nobody has looked at it yet */
}

/* `folder` is the parent's descriptor. */
static int open_child(const struct node *parent, int folder, const char *name,
                      struct stat *ret_status) {
  if (makes_mount(parent, folder, name))
    return -ENOENT;
  int result = may_look(parent, name);
  if (result < 0)
    return result;
  _cleanup_close_ int fd = openat(folder, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0 || fstat(fd, ret_status) < 0)
    return -errno;
  return steal_fd(&fd);
}

static bool is_same_object(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino &&
         (a->st_mode & S_IFMT) == (b->st_mode & S_IFMT);
}

/* What its name leads to on the host. */
static bool look_again(struct nodes *nodes, const struct node *node, struct stat *ret_status) {
  int parent = nodes_fd(nodes, node->parent);
  return parent >= 0 && may_look(node->parent, node->name) == 0 &&
         fstatat(parent, node->name, ret_status, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT) == 0;
}

static bool is_current(struct nodes *nodes, const struct node *node) {
  struct stat status;
  return !node->parent ||
         (look_again(nodes, node, &status) && is_same_object(&status, &node->status) &&
          is_current(nodes, node->parent));
}

/* A folder above a mount keeps its number. But when the host has put another one there, that is
 * what its name leads to. */
static bool may_follow(const struct node *node, const struct stat *status) {
  return node->fixed && node->pins == 0 && S_ISDIR(node->status.st_mode) &&
         S_ISDIR(status->st_mode);
}

static bool has_moved(struct nodes *nodes, const struct node *node) {
  struct stat status;
  return node->fixed && node->parent && look_again(nodes, node, &status) &&
         !is_same_object(&status, &node->status) && may_follow(node, &status);
}

static bool is_gone(const struct node *node) {
  return node->status.st_ino == 0;
}

/* Its folder was moved away, and is back, or another one has its name. Who uses it would be sent to
 * look the name up anew, and once more to meet the mount: the kernel does that only once. */
static bool has_come_back(struct nodes *nodes, const struct node *node, const struct stat *status) {
  return is_gone(node) && (node->status.st_mode & S_IFMT) == (status->st_mode & S_IFMT) &&
         is_current(nodes, node->parent);
}

int nodes_fd(struct nodes *nodes, struct node *node) {
  if (node->fd >= 0 && has_moved(nodes, node))
    close_node(nodes, node);
  if (node->fd >= 0) {
    touch(nodes, node);
    int result = node->parent ? may_look(node->parent, node->name) : 0;
    return result < 0 ? result : node->fd;
  }
  int parent = nodes_fd(nodes, node->parent);
  if (parent < 0)
    return parent;
  struct stat status;
  _cleanup_close_ int fd = open_child(node->parent, parent, node->name, &status);
  if (fd < 0)
    return fd;
  bool same = is_same_object(&status, &node->status);
  if (!same && !may_follow(node, &status) && !has_come_back(nodes, node, &status))
    return -ESTALE;
  if (!same)
    node->status = status;
  take_fd(nodes, node, steal_fd(&fd));
  close_oldest(nodes, node);
  return node->fd;
}

/* ---- the table ---- */

static struct node *find(struct nodes *nodes, const struct node *parent, const char *name) {
  for (struct node *node = nodes->buckets[bucket_of(parent, name)]; node; node = node->next) {
    if (node->parent == parent && strcmp(node->name, name) == 0)
      return node;
  }
  return NULL;
}

static void list(struct nodes *nodes, struct node *node, size_t bucket) {
  node->bucket = bucket;
  node->next = nodes->buckets[bucket];
  nodes->buckets[bucket] = node;
}

struct node *nodes_find(struct nodes *nodes, const char *path) {
  struct node *node = &nodes->root;
  while (node && *path) {
    const char *name = path + strspn(path, "/"), *end = strchrnul(name, '/');
    if (end == name)
      break;
    _cleanup_free_ char *component = xstrndup(name, (size_t)(end - name));
    node = find(nodes, node, component);
    path = end;
  }
  return node;
}

void nodes_refresh(struct nodes *nodes, struct node *node) {
  close_node(nodes, node);
  node->fixed = false;
  bool is_there = node->parent && is_current(nodes, node->parent);
  int parent = is_there ? nodes_fd(nodes, node->parent) : -1;
  struct stat status;
  int fd = parent < 0 ? -1 : open_child(node->parent, parent, node->name, &status);
  if (fd < 0) {
    node->status.st_ino = 0; /* gone: every use of it will say so, and it is nothing else's node */
    return;
  }
  node->status = status;
  take_fd(nodes, node, fd);
}

static void unlist(struct nodes *nodes, struct node *node) {
  struct node **place = &nodes->buckets[node->bucket];
  while (*place != node)
    place = &(*place)->next;
  *place = node->next;
}

static struct node *add(struct nodes *nodes, struct node *parent, const char *name) {
  struct node *node = xcalloc(1, sizeof *node);
  *node = (struct node){.parent = parent, .name = xstrdup(name), .fd = -1};
  list(nodes, node, bucket_of(parent, name));
  parent->references++;
  return node;
}

static void drop_if_unused(struct nodes *nodes, struct node *node) {
  while (node->parent && node->lookups == 0 && node->references == 0) {
    struct node *parent = node->parent;
    unlist(nodes, node);
    close_node(nodes, node);
    free(node->name);
    free(node);
    parent->references--;
    node = parent;
  }
}

int nodes_lookup(struct nodes *nodes, struct node *parent, const char *name,
                 struct node **ret_node) {
  struct node *node = find(nodes, parent, name);
  if (node && node->fixed) {
    node->lookups++;
    *ret_node = node;
    return 0;
  }
  int above = nodes_fd(nodes, parent);
  if (above < 0)
    return above;
  struct stat status;
  _cleanup_close_ int fd = open_top(parent, above, name, &status);
  if (fd == -EAGAIN)
    fd = open_child(parent, above, name, &status);
  if (fd < 0)
    return fd;
  /* Another object under the same name is another node, so that the kernel lets go of the old. */
  if (node && !is_same_object(&node->status, &status)) {
    unlist(nodes, node);
    list(nodes, node, REPLACED);
    node = NULL;
  }
  if (!node)
    node = add(nodes, parent, name);
  node->status = status;
  if (node->fd < 0)
    take_fd(nodes, node, steal_fd(&fd));
  node->lookups++;
  close_oldest(nodes, node);
  *ret_node = node;
  return 0;
}

void nodes_forget(struct nodes *nodes, struct node *node, uint64_t count) {
  if (!node->parent)
    return;
  node->lookups -= count < node->lookups ? count : node->lookups;
  drop_if_unused(nodes, node);
}

void node_reference(struct node *node) {
  node->references++;
}

void nodes_release(struct nodes *nodes, struct node *node) {
  node->references--;
  drop_if_unused(nodes, node);
}

bool node_path(const struct node *node, char *ret_path, size_t size) {
  size_t length = 0;
  for (const struct node *at = node; at->parent; at = at->parent)
    length += 1 + strlen(at->name);
  if (length == 0) {
    memcpy(ret_path, "/", 2);
    return true;
  }
  if (length >= size)
    return false;
  ret_path[length] = '\0';
  for (const struct node *at = node; at->parent; at = at->parent) {
    size_t name = strlen(at->name);
    length -= name;
    memcpy(ret_path + length, at->name, name);
    ret_path[--length] = '/';
  }
  return true;
}

void nodes_free(struct nodes *nodes) {
  if (!nodes)
    return;
  for (size_t i = 0; i <= BUCKETS; i++) {
    for (struct node *node = nodes->buckets[i], *next; node; node = next) {
      next = node->next;
      if (node->fd >= 0)
        close(node->fd);
      free(node->name);
      free(node);
    }
  }
  if (nodes->root.fd >= 0)
    close(nodes->root.fd);
  free(nodes);
}
