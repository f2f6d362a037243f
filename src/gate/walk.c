/* Walks paths of the workload; see walk.h. */
#include "gate/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/path.h"
#include "gate/automount.h"
#include "plan/distant.h"

#define LINK_LIMIT 40       /* the kernel's */
#define STEP_LIMIT PATH_MAX /* twice what a path without links can have; with them it is 60,000 */

void found_clear(struct found *found) {
  if (found->fd >= 0)
    close(found->fd);
  strv_clear(&found->repeats);
  *found = FOUND_NONE;
}

int walk_open_with(int base, const char *path, unsigned flags, unsigned resolve) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags, .resolve = resolve};
  int fd = (int)syscall(SYS_openat2, base, path, &how, sizeof how);
  return fd < 0 ? -errno : fd;
}

int walk_open(int root, const char *path) {
  return walk_open_with(root, path, O_NOFOLLOW,
                        RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

bool walk_is_empty(const struct walker *walker, int fd) {
  struct stat status;
  return fstat(fd, &status) < 0 || status.st_dev == walker->empty;
}

struct walk {
  const struct walker *walker;
  const struct walk_request *request;
  struct found *found;
  char current[PATH_MAX]; /* canonical; "" is the root */
  int here;               /* the same in the view, or -1: it is not there */
  bool native;            /* it is mounted in the view */
  bool automounts;        /* the host has such folders */
  bool distant;           /* it has file systems that wait for a server */
  char rest[2 * PATH_MAX];
  char *next; /* in rest */
  int links, steps;
};

static bool is_last(const struct walk *walk) {
  return walk->next[strspn(walk->next, "/")] == '\0';
}

/* Once is enough, however often the path leads by. */
static void repeat(struct walk *walk, const char *path, const char *text) {
  const struct strv *repeats = &walk->found->repeats;
  for (size_t i = 0; i + 1 < repeats->count; i += 2) {
    if (strcmp(repeats->items[i], path) == 0 && strcmp(repeats->items[i + 1], text) == 0)
      return;
  }
  strv_add(&walk->found->repeats, path);
  strv_add(&walk->found->repeats, text);
}

/* One folder is opened from the other: a command can make them so deep, and walk in and out of them
 * so often by one path, that to begin at the root each time would take us half a minute. */
static void stand_in(struct walk *walk, int fd) {
  if (walk->here >= 0)
    close(walk->here);
  walk->here = fd < 0 ? -1 : fd;
  walk->native = fd >= 0 && !walk_is_empty(walk->walker, fd);
}

static void stand_in_current(struct walk *walk) {
  stand_in(walk, walk_open(walk->walker->root, walk->current[0] ? walk->current : "/"));
}

static void go_to(struct walk *walk, const char *path) {
  snprintf(walk->current, sizeof walk->current, "%s", strcmp(path, "/") == 0 ? "" : path);
  stand_in_current(walk);
}

/* The kernel has to go into the folder before it comes out again. */
static void leave_folder(struct walk *walk) {
  const char *top = strcmp(walk->request->top, "/") == 0 ? "" : walk->request->top;
  if (strcmp(walk->current, top) == 0)
    return;
  if (walk->here < 0)
    repeat(walk, walk->current, "");
  *strrchr(walk->current, '/') = '\0';
  int above = walk->native ? walk_open_with(walk->here, "..", O_DIRECTORY, 0) : -1;
  if (above >= 0)
    stand_in(walk, above);
  else
    stand_in_current(walk);
}

/* The text takes the component's place. */
static int follow(struct walk *walk, const char *text) {
  char rest[sizeof walk->rest];
  if (++walk->links > LINK_LIMIT)
    return -ELOOP;
  int length = snprintf(rest, sizeof rest, "%s%s%s", text, *walk->next ? "/" : "", walk->next);
  if (length >= (int)sizeof rest)
    return -ENAMETOOLONG;
  memcpy(walk->rest, rest, (size_t)length + 1);
  walk->next = walk->rest;
  if (text[0] != '/')
    return 1;
  go_to(walk, walk->request->top);
  return 1;
}

/* What /proc calls "self" is whoever looks, and that must not be us. */
static int read_link(const struct walk *walk, int fd, const char *path, char ret_text[PATH_MAX]) {
  bool process = strcmp(path, "/proc/self") == 0, thread = strcmp(path, "/proc/thread-self") == 0;
  if (process || thread) {
    pid_t inside, thread_inside;
    target_inside(walk->request->target, &inside, &thread_inside);
    snprintf(ret_text, PATH_MAX, process ? "%d" : "%d/task/%d", inside, thread_inside);
    return 0;
  }
  ssize_t length = readlinkat(fd, "", ret_text, PATH_MAX - 1);
  if (length < 0)
    return -errno;
  ret_text[length] = '\0';
  return 0;
}

static int finish(struct walk *walk, enum place place, const char *path, int *fd) {
  struct found *found = walk->found;
  found->place = place;
  snprintf(found->path, sizeof found->path, "%s", path[0] ? path : "/");
  found->fd = fd ? steal_fd(fd) : -1;
  return found->fd >= 0 && fstat(found->fd, &found->status) < 0 ? -errno : 0;
}

/* `seen`: the folder in the view, or NULL. */
static void descend(struct walk *walk, const char *path, int *seen) {
  memcpy(walk->current, path, strlen(path) + 1);
  stand_in(walk, seen ? steal_fd(seen) : -1);
}

/* In the view, mounted. Returns 1 to go on. */
static int step_native(struct walk *walk, const char *path, int *fd, const struct stat *status) {
  char text[PATH_MAX];
  bool follows = !is_last(walk) || *walk->next == '/' || walk->request->follow;
  if (S_ISLNK(status->st_mode) && follows && read_link(walk, *fd, path, text) == 0)
    return follow(walk, text);
  if (is_last(walk) || !S_ISDIR(status->st_mode))
    return finish(walk, PLACE_NATIVE, path, fd);
  descend(walk, path, fd);
  return 1;
}

/* A link of the host; the empty root may have another, from earlier. */
static int step_link(struct walk *walk, const char *path, int *fd) {
  char text[PATH_MAX], here[PATH_MAX] = "";
  int result = read_link(walk, *fd, "", text);
  if (result < 0)
    return result;
  _cleanup_close_ int repeated = walk_open(walk->walker->root, path);
  if (repeated >= 0)
    (void)read_link(walk, repeated, "", here);
  if (strcmp(text, here) != 0)
    repeat(walk, path, text);
  if (!is_last(walk) || *walk->next == '/' || walk->request->follow)
    return follow(walk, text);
  return finish(walk, PLACE_LINK, path, fd);
}

static int step_folder(struct walk *walk, const char *path, int *seen, int *fd) {
  if (!is_last(walk)) {
    descend(walk, path, seen);
    return 1;
  }
  if (!seen)
    repeat(walk, path, "");
  return finish(walk, PLACE_FOLDER, path, fd);
}

/* The host's own /proc is nobody's business, should the session have none. */
static bool is_of_kernel(int fd) {
  struct statfs status;
  return fstatfs(fd, &status) == 0 &&
         (status.f_type == PROC_SUPER_MAGIC || status.f_type == SYSFS_MAGIC);
}

/* -EREMOTE: the host would have to mount it, and nobody can make a name there. */
static int open_of_host(const struct walk *walk, const char *path) {
  if (!walk->automounts)
    return walk_open(walk->walker->host, path);
  _cleanup_close_ int folder =
      walk_open(walk->walker->host, walk->current[0] ? walk->current : "/");
  if (folder < 0)
    return folder;
  return automount_waits(folder, path) ? -EREMOTE : walk_open(folder, path_base(path));
}

/* In the empty root: what the host has there. `seen` is what the root itself has, or -1. */
static int step_host(struct walk *walk, const char *path, int *seen) {
  struct stat status, shown;
  bool folder_seen = *seen >= 0 && fstat(*seen, &shown) == 0 && S_ISDIR(shown.st_mode);
  _cleanup_close_ int fd = open_of_host(walk, path);
  if (fd < 0 || is_of_kernel(fd)) {
    if (fd == -EACCES || fd == -ENAMETOOLONG)
      return fd;
    if (folder_seen)
      return step_folder(walk, path, seen, seen);
    bool may_be_made = is_last(walk) && fd != -EREMOTE;
    return finish(walk, may_be_made ? PLACE_MISSING : PLACE_NOWHERE, path, NULL);
  }
  if (fstat(fd, &status) < 0)
    return -errno;
  if (walk->walker->hides(walk->walker->context, path))
    return finish(walk, PLACE_HIDDEN, path, &fd);
  if (S_ISLNK(status.st_mode))
    return step_link(walk, path, &fd);
  if (S_ISDIR(status.st_mode))
    return step_folder(walk, path, folder_seen ? seen : NULL, &fd);
  if (!is_last(walk) || *walk->next == '/')
    return -ENOTDIR;
  return finish(walk, PLACE_GATED, path, &fd);
}

static int step(struct walk *walk, const char *name, size_t length) {
  char path[PATH_MAX], here[NAME_MAX + 1] = "";
  struct stat status;
  if (length > NAME_MAX)
    return -ENAMETOOLONG;
  int size = snprintf(path, sizeof path, "%s/%.*s", walk->current, (int)length, name);
  if (size >= (int)sizeof path)
    return -ENAMETOOLONG;
  memcpy(here, name, length);
  int answers = walk->distant ? distant_answers(path) : 0;
  if (answers < 0)
    return answers;
  bool waits = walk->automounts && walk->here >= 0 && automount_waits(walk->here, path);
  _cleanup_close_ int seen = walk->here < 0 || waits ? -1 : walk_open(walk->here, here);
  if (seen >= 0 && fstat(seen, &status) == 0 && status.st_dev != walk->walker->empty)
    return step_native(walk, path, &seen, &status);
  if (walk->native)
    return finish(walk, PLACE_NATIVE, path, NULL); /* missing, and the kernel says so */
  return step_host(walk, path, &seen);
}

/* The path ends in a folder that was walked into ("/", "..", "."). */
static int finish_here(struct walk *walk) {
  const char *path = walk->current[0] ? walk->current : "/";
  if (walk->native)
    return finish(walk, PLACE_NATIVE, path, &walk->here);
  _cleanup_close_ int fd = walk_open(walk->walker->host, path);
  if (fd < 0)
    return finish(walk, PLACE_NOWHERE, path, NULL);
  if (walk->here < 0)
    repeat(walk, path, "");
  return finish(walk, PLACE_FOLDER, path, &fd);
}

static int walk_on(struct walk *walk) {
  for (;;) {
    walk->next += strspn(walk->next, "/");
    if (*walk->next == '\0')
      return finish_here(walk);
    const char *name = walk->next;
    size_t length = strcspn(name, "/");
    walk->next += length;
    if (++walk->steps > STEP_LIMIT)
      return -ELOOP;
    int result = 1;
    if (length == 2 && name[0] == '.' && name[1] == '.')
      leave_folder(walk);
    else if (length != 1 || name[0] != '.')
      result = step(walk, name, length);
    if (result <= 0)
      return result;
  }
}

int walk_path(const struct walker *walker, const struct walk_request *request,
              struct found *ret_found) {
  struct walk walk = {.walker = walker,
                      .request = request,
                      .found = ret_found,
                      .here = -1,
                      .automounts = automount_exists(),
                      .distant = distant_exists()};
  const char *start = request->path[0] == '/' ? request->top : request->start;
  *ret_found = FOUND_NONE;
  int answers = walk.distant ? distant_answers(start) : 0;
  if (answers < 0)
    return answers;
  go_to(&walk, start);
  snprintf(walk.rest, sizeof walk.rest, "%s", request->path);
  walk.next = walk.rest;
  int result = walk_on(&walk);
  if (walk.here >= 0)
    close(walk.here);
  if (result < 0)
    found_clear(ret_found);
  return result;
}
