/* Who in the session holds something below a protected name by another way than the protection: a
 * folder that he stands in, a descriptor. What the host gives such a name later stays open to him,
 * for a walk that begins there does not meet the mount, and what can be read there can be opened
 * anew for writing (/proc/self/fd). Descriptors of who is not dumpable are shown to nobody but
 * root: of those only the working folder is seen. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/path.h"
#include "engine/keeping.h"

/* So many links are looked at before we look whether something has to be covered: the command can
 * hold as much as it likes, and must not gain time by it. */
#define TURN 64

struct search {
  const struct keeping *keeping;
  const char *path;
  unsigned looked;
  int result; /* 1: somebody holds it; -EAGAIN: there is something else to do first */
};

static bool is_needed_elsewhere(const struct keeping *keeping) {
  struct pollfd changes = {.fd = keeping->changes, .events = POLLIN};
  return poll(&changes, 1, 0) > 0;
}

/* By the name that the kernel has for it: nothing is opened that lies elsewhere. */
static void look_at_link(struct search *search, const char *link) {
  char text[PATH_MAX];
  struct statfs mount;
  if (++search->looked % TURN == 0 && is_needed_elsewhere(search->keeping)) {
    search->result = -EAGAIN;
    return;
  }
  ssize_t got = readlink(link, text, sizeof text - 1);
  text[got < 0 ? 0 : got] = '\0';
  if (!path_is_under(text, search->path))
    return;
  _cleanup_close_ int fd = open(link, O_PATH | O_CLOEXEC);
  search->result = fd >= 0 && fstatfs(fd, &mount) == 0 && !(mount.f_flags & ST_RDONLY);
}

typedef void visit_number(struct search *search, const char *path);

/* Of processes, threads, descriptors: until there is a result. */
static void visit_numbers(struct search *search, const char *folder, visit_number *visit) {
  DIR *names = opendir(folder);
  for (struct dirent *entry; names && !search->result && (entry = readdir(names));) {
    _cleanup_free_ char *path = path_join(folder, entry->d_name);
    if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
      visit(search, path);
  }
  if (names)
    closedir(names);
}

static void visit_thread(struct search *search, const char *thread) {
  _cleanup_free_ char *working = path_join(thread, "cwd"), *descriptors = path_join(thread, "fd");
  look_at_link(search, working);
  if (!search->result)
    visit_numbers(search, descriptors, look_at_link);
}

static void visit_process(struct search *search, const char *process) {
  _cleanup_free_ char *threads = path_join(process, "task");
  visit_numbers(search, threads, visit_thread);
}

int held_inside(struct keeping *keeping, const char *path) {
  struct search search = {.keeping = keeping, .path = path};
  int result = powers_go(&keeping->powers, IN_SESSION);
  /* In a container the outer /proc may have stayed, and shows others' processes. We are in none
   * that is the session's own. */
  if (result == 0 && access("/proc/self", F_OK) < 0)
    visit_numbers(&search, "/proc", visit_process);
  return result < 0 ? result : search.result;
}
