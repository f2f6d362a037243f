/* Calls that end in time; see in-time.h. */
#include "core/in-time.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"

#define IN_VAIN_MS 3000

/* ---- a call in a process of its own ---- */

struct work {
  in_time_call *call;
  void *context;
  pid_t parent;
  bool done, killed;
};

/* If we die, what it waits for might never come: it keeps our descriptors open. */
static int work_main(void *data) {
  struct work *work = data;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != work->parent)
    return 0;
  work->call(work->context);
  work->done = true;
  return 0;
}

static void wait_for(struct work *work, pid_t pid, int pidfd, int milliseconds) {
  struct pollfd end = {.fd = pidfd, .events = POLLIN};
  work->killed = poll(&end, 1, milliseconds) <= 0;
  if (work->killed)
    kill(pid, SIGKILL);
  while (waitpid(pid, NULL, __WALL) < 0 && errno == EINTR)
    ;
}

/* No signal meanwhile: handlers of ours would run there, and errno is the same for both. */
static void run(struct work *work, int milliseconds) {
  static _Alignas(16) char stack[16 * 1024];
  _cleanup_close_ int pidfd = -1;
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_t pid =
      clone(work_main, stack + sizeof stack, CLONE_VM | CLONE_FILES | CLONE_PIDFD, work, &pidfd);
  if (pid > 0)
    wait_for(work, pid, pidfd, milliseconds);
  sigprocmask(SIG_SETMASK, &before, NULL);
}

bool in_time(in_time_call *call, void *context, int milliseconds) {
  static int left = IN_VAIN_MS;
  int patience = milliseconds < left ? milliseconds : left > 0 ? left : 1;
  struct work work = {.call = call, .context = context, .parent = getpid()};
  run(&work, patience);
  left -= work.killed ? patience : 0;
  return work.done;
}

/* ---- reading ---- */

struct reading {
  int fd;
  char *data;
  size_t size;
  ssize_t result;
};

static void read_all(void *context) {
  struct reading *reading = context;
  size_t have = 0;
  ssize_t got;
  do {
    got = read(reading->fd, reading->data + have, reading->size - have);
    have += got > 0 ? (size_t)got : 0;
  } while (got > 0 && have < reading->size);
  reading->result = got < 0 ? -errno : (ssize_t)have;
}

ssize_t in_time_read(int fd, char *ret_data, size_t size, int milliseconds) {
  struct reading reading = {.fd = fd, .data = ret_data, .size = size};
  return in_time(read_all, &reading, milliseconds) ? reading.result : -ETIMEDOUT;
}
