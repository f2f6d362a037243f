/* File systems whose server may not answer; see distant.h. */
#include "plan/distant.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "plan/host-mounts.h"

#define PATIENCE_MS 2000
#define FAREWELL_MS 100

enum errand { LOOK = 'l', READ = 'r' };

/* ---- the process that looks ---- */

static void read_some(int object, mode_t mode) {
  char name[64], data[4096];
  snprintf(name, sizeof name, "/proc/self/fd/%d", object);
  _cleanup_close_ int fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0 && S_ISDIR(mode))
    (void)syscall(SYS_getdents64, fd, data, sizeof data);
  else if (fd >= 0)
    (void)!read(fd, data, 1);
}

/* What the monitor may be about to do: nothing of it is told, it only must have ended. */
static void look(enum errand errand, const char *path) {
  struct open_how how = {.flags = O_PATH | O_CLOEXEC | O_NOFOLLOW,
                         .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
  struct stat status;
  char text[PATH_MAX];
  _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
  if (fd < 0 || fstat(fd, &status) < 0)
    return;
  if (S_ISLNK(status.st_mode))
    (void)!readlinkat(fd, "", text, sizeof text);
  else
    (void)!faccessat(fd, "", R_OK, AT_EMPTY_PATH | AT_EACCESS);
  if (errand == READ && (S_ISDIR(status.st_mode) || S_ISREG(status.st_mode)))
    read_some(fd, status.st_mode);
}

/* It may have to stay behind: then it must keep nothing of ours open, or the session would not
 * learn of our end. */
static _Noreturn void scout_main(int line) {
  char order[1 + PATH_MAX];
  prctl(PR_SET_NAME, "sandbox-scout");
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();
  child_keep_only(&line, 1);
  (void)!chdir("/");
  for (;;) {
    ssize_t got = recv(line, order, sizeof order - 1, 0);
    if (got <= 1)
      _exit(0);
    order[got] = '\0';
    look((enum errand)order[0], order + 1);
    if (send(line, "", 1, MSG_NOSIGNAL) < 0)
      _exit(0);
  }
}

/* ---- our side ---- */

struct scout {
  char *point; /* of the mount that it is for */
  pid_t pid;
  int line;
  bool out; /* it has not come back yet */
};

static struct {
  struct scout *items;
  size_t count;
  pid_t owner;
  char *silent; /* where one has just not come back from */
} scouts;

static void end_scout(struct scout *scout) {
  close(scout->line);
  if (scout->out)
    kill(scout->pid, SIGKILL);
  (void)child_wait_for(scout->pid, FAREWELL_MS);
  free(scout->point);
  *scout = scouts.items[--scouts.count];
}

/* Who is left to pid 1 is left dead for ever in many a container. */
static void end_all(void) {
  if (scouts.owner != getpid())
    return;
  while (scouts.count > 0)
    end_scout(&scouts.items[scouts.count - 1]);
}

/* A process that we forked has our list, but not our lines. */
static void make_own(void) {
  if (scouts.owner == getpid())
    return;
  if (scouts.owner == 0)
    atexit(end_all);
  scouts.owner = getpid();
  scouts.count = 0;
}

static struct scout *find_or_start(const char *point) {
  make_own();
  for (size_t i = 0; i < scouts.count; i++) {
    if (strcmp(scouts.items[i].point, point) == 0)
      return &scouts.items[i];
  }
  _cleanup_error_ struct sb_error error = {0};
  int line;
  pid_t pid = child_start("the scout", &line, &error);
  if (pid == 0)
    scout_main(line);
  if (pid < 0)
    return NULL;
  ARRAY_GROW(scouts.items, scouts.count);
  struct scout *scout = &scouts.items[scouts.count++];
  *scout = (struct scout){.point = xstrdup(point), .pid = pid, .line = line};
  return scout;
}

/* If it died, another one goes the next time. */
static bool is_back(struct scout *scout, int milliseconds) {
  struct pollfd watched = {.fd = scout->line, .events = POLLIN};
  char told;
  if (poll(&watched, 1, milliseconds) <= 0)
    return false;
  if (recv(scout->line, &told, sizeof told, 0) == sizeof told) {
    scout->out = false;
    return true;
  }
  end_scout(scout);
  return false;
}

static void note_silence(const char *point) {
  free(scouts.silent);
  scouts.silent = xstrdup(point);
}

static int send_scout(enum errand errand, const char *point, const char *path) {
  char order[1 + PATH_MAX];
  int length = snprintf(order, sizeof order, "%c%s", (char)errand, path);
  if (length >= (int)sizeof order)
    return 0; /* no such path can be looked at */
  struct scout *scout = find_or_start(point);
  if (!scout || (scout->out && !is_back(scout, 0)) ||
      send(scout->line, order, (size_t)length, MSG_NOSIGNAL) < 0)
    return -ETIMEDOUT;
  scout->out = true;
  if (is_back(scout, PATIENCE_MS))
    return 0;
  note_silence(point);
  return -ETIMEDOUT;
}

static int ask(enum errand errand, const char *path) {
  const struct host_mounts *mounts = host_mounts();
  const struct mount_entry *mount = mounts->distant ? mount_of(&mounts->table, path) : NULL;
  return mount && mount_is_distant(mount) ? send_scout(errand, mount->point, path) : 0;
}

bool distant_exists(void) {
  return host_mounts()->distant;
}

int distant_answers(const char *path) {
  return ask(LOOK, path);
}

int distant_reads(const char *path) {
  return ask(READ, path);
}

int distant_reads_tree(const char *path) {
  const struct host_mounts *mounts = host_mounts();
  int result = ask(READ, path);
  for (size_t i = 0; i < mounts->table.count && result == 0; i++) {
    const struct mount_entry *entry = &mounts->table.entries[i];
    const char *below = mount_is_distant(entry) ? path_below(entry->point, path) : NULL;
    if (below && below[0])
      result = send_scout(READ, entry->point, entry->point);
  }
  return result;
}

bool distant_is_top(const char *path) {
  const struct host_mounts *mounts = host_mounts();
  const struct mount_entry *mount = mounts->distant ? mount_of(&mounts->table, path) : NULL;
  return mount && mount_is_distant(mount) && strcmp(mount->point, path) == 0 &&
         strncmp(mount->type, "fuse", strlen("fuse")) == 0;
}

char *distant_take_news(void) {
  return steal_pointer(scouts.silent);
}
