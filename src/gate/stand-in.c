/* Calls in a caller's place; see stand-in.h. */
#include "gate/stand-in.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "engine/caps.h"

#define MESSAGE_LIMIT (1u << 18) /* longer ones the kernel would hardly take, either */

enum { ARGUMENT_DESCRIPTOR, ARGUMENT_DATA, ARGUMENT_SIZE, ARGUMENT_FLAGS };

static bool is_watch(const struct call *call) {
  return call->trap->links == TRAP_WATCH;
}

bool stand_in_can(const struct call *call) {
  return is_watch(call) || call->trap->kind == TRAP_CONNECT;
}

/* ---- in the process of its own ---- */

struct task {
  const struct call *call;
  int descriptor; /* the caller's */
  int object;     /* what its path led to, pinned */
};

static long watch(const struct task *task) {
  char path[64];
  uint32_t mask = (uint32_t)task->call->arguments[task->call->trap->flags];
  snprintf(path, sizeof path, "/proc/self/fd/%d", task->object);
  /* The object itself is no link; its name here is one. */
  return inotify_add_watch(task->descriptor, path, mask & ~(uint32_t)IN_DONT_FOLLOW);
}

static struct sockaddr_un address_of(const struct task *task) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", task->object);
  return address;
}

static long speak(const struct task *task) {
  struct sockaddr_un address = address_of(task);
  return connect(task->descriptor, (struct sockaddr *)&address, sizeof address);
}

static char message[MESSAGE_LIMIT];

/* While we may still read the caller's memory. */
static int fetch(const struct task *task) {
  const uint64_t *arguments = task->call->arguments;
  if (arguments[ARGUMENT_SIZE] > sizeof message)
    return -EMSGSIZE;
  return target_read(&task->call->target, arguments[ARGUMENT_DATA], message,
                     arguments[ARGUMENT_SIZE]);
}

static long send_message(const struct task *task) {
  struct sockaddr_un address = address_of(task);
  const uint64_t *arguments = task->call->arguments;
  return sendto(task->descriptor, message, arguments[ARGUMENT_SIZE],
                (int)arguments[ARGUMENT_FLAGS] | MSG_NOSIGNAL, (struct sockaddr *)&address,
                sizeof address);
}

static _Noreturn void work(const struct task *task, int result_fd) {
  const int kept[] = {task->descriptor, task->object, result_fd};
  const struct call *call = task->call;
  bool sends = !is_watch(call) && call->trap->at[0].path > ARGUMENT_FLAGS;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "sandbox-once");
  fd_close_others(kept, ARRAY_SIZE(kept));
  long result = sends ? fetch(task) : 0;
  if (result == 0)
    result = caps_keep(0); /* the caller has none */
  if (result == 0) {
    result = is_watch(call) ? watch(task) : sends ? send_message(task) : speak(task);
    result = result < 0 ? -errno : result;
  }
  ssize_t ignored = write(result_fd, &result, sizeof result);
  (void)ignored;
  _exit(0);
}

/* ---- in the monitor ---- */

/* The caller may have put anything there; we have no business with other kinds of sockets. */
static bool is_of_use(const struct call *call, int descriptor) {
  int domain = -1;
  socklen_t size = sizeof domain;
  return is_watch(call) ||
         (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX);
}

int stand_in_start(struct stand_in *stand_in, const struct call *call, int process, int object) {
  int ends[2];
  _cleanup_close_ int descriptor =
      pidfd_getfd(process, (int)(uint32_t)call->arguments[ARGUMENT_DESCRIPTOR], 0);
  if (descriptor < 0)
    return errno == EBADF ? -EBADF : -EACCES;
  if (!is_of_use(call, descriptor))
    return -EACCES;
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
    return -EACCES;
  pid_t pid = fork();
  if (pid == 0)
    work(&(struct task){call, descriptor, object}, ends[1]);
  close(ends[1]);
  *stand_in = (struct stand_in){.pid = pid, .result = ends[0]};
  if (pid > 0)
    return 0;
  close(ends[0]);
  *stand_in = STAND_IN_NONE;
  return -EACCES;
}

void stand_in_end(struct stand_in *stand_in) {
  if (stand_in->result < 0)
    return;
  close(stand_in->result);
  kill(stand_in->pid, SIGKILL);
  while (waitpid(stand_in->pid, NULL, 0) < 0 && errno == EINTR)
    ;
  *stand_in = STAND_IN_NONE;
}

long stand_in_finish(struct stand_in *stand_in) {
  long result = -EACCES;
  if (read(stand_in->result, &result, sizeof result) != sizeof result)
    result = -EACCES;
  stand_in_end(stand_in);
  return result;
}
