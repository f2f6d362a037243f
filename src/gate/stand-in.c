/* Calls in a caller's place; see stand-in.h. */
#include "gate/stand-in.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "core/path.h"
#include "core/pidfd.h"
#include "engine/caps.h"
#include "gate/errand.h"
#include "gate/hand-back.h"

#define MESSAGE_LIMIT (1u << 18) /* longer ones the kernel would hardly take, either */
#define PIECES_LIMIT  64u

enum { ARGUMENT_DESCRIPTOR, ARGUMENT_DATA, ARGUMENT_SIZE, ARGUMENT_FLAGS };
enum { ARGUMENT_MESSAGE = 1, ARGUMENT_MESSAGE_FLAGS };
enum { ARGUMENT_MASK = 2 };

static int read_message(const struct stand_in_call *call, struct msghdr *ret_message) {
  return target_read(&call->target, call->arguments[ARGUMENT_MESSAGE], ret_message,
                     sizeof *ret_message);
}

bool stand_in_can(const struct stand_in_call *call) {
  struct msghdr message;
  if (call->kind != STAND_IN_MESSAGE)
    return call->kind != STAND_IN_CANNOT;
  return read_message(call, &message) == 0 && message.msg_controllen == 0 &&
         message.msg_iovlen <= PIECES_LIMIT;
}

/* ---- in the process of its own ---- */

struct task {
  const struct stand_in_call *call;
  int descriptor; /* the caller's */
  int object;     /* what its path led to, pinned */
  enum stand_in_return how;
};

static char *message; /* of MESSAGE_LIMIT; only who sends has one */
static size_t message_size;

static int fetch_piece(const struct task *task, uint64_t address, uint64_t size) {
  if (size > MESSAGE_LIMIT - message_size)
    return -EMSGSIZE;
  if (!message)
    message = xcalloc(1, MESSAGE_LIMIT);
  int result = target_read(&task->call->target, address, message + message_size, size);
  message_size += size;
  return result;
}

static int fetch_pieces(const struct task *task) {
  struct msghdr header;
  struct iovec pieces[PIECES_LIMIT];
  int result = read_message(task->call, &header);
  if (result < 0 || header.msg_controllen != 0 || header.msg_iovlen > PIECES_LIMIT)
    return result < 0 ? result : -EACCES;
  result = target_read(&task->call->target, (uintptr_t)header.msg_iov, pieces,
                       header.msg_iovlen * sizeof *pieces);
  for (size_t i = 0; result == 0 && i < header.msg_iovlen; i++)
    result = fetch_piece(task, (uintptr_t)pieces[i].iov_base, pieces[i].iov_len);
  return result;
}

/* While we may still read the caller's memory. */
static int fetch(const struct task *task) {
  const uint64_t *arguments = task->call->arguments;
  switch (task->call->kind) {
  case STAND_IN_SEND:
    return fetch_piece(task, arguments[ARGUMENT_DATA], arguments[ARGUMENT_SIZE]);
  case STAND_IN_MESSAGE:
    return fetch_pieces(task);
  default:
    return 0;
  }
}

static struct sockaddr_un address_of(const struct task *task) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d", task->object);
  return address;
}

static long watch(const struct task *task) {
  struct sockaddr_un address = address_of(task);
  uint32_t mask = (uint32_t)task->call->arguments[ARGUMENT_MASK];
  /* The object itself is no link; its name here is one. */
  return inotify_add_watch(task->descriptor, address.sun_path, mask & ~(uint32_t)IN_DONT_FOLLOW);
}

static long send_with(const struct task *task, uint64_t flags) {
  struct sockaddr_un address = address_of(task);
  return sendto(task->descriptor, message, message_size, (int)flags | MSG_NOSIGNAL,
                (struct sockaddr *)&address, sizeof address);
}

static long make_call(const struct task *task) {
  const uint64_t *arguments = task->call->arguments;
  struct sockaddr_un address = address_of(task);
  switch (task->call->kind) {
  case STAND_IN_WATCH:
    return watch(task);
  case STAND_IN_CONNECT:
    return connect(task->descriptor, (struct sockaddr *)&address, sizeof address);
  case STAND_IN_SEND:
    return send_with(task, arguments[ARGUMENT_FLAGS]);
  case STAND_IN_MESSAGE:
    return send_with(task, arguments[ARGUMENT_MESSAGE_FLAGS]);
  case STAND_IN_CANNOT:
    break;
  }
  errno = EACCES;
  return -1;
}

static long attempt(const struct task *task, pid_t hold) {
  /* First, for afterwards it would be too late to say no. */
  if (hold > 0 && hand_back_begin(hold) < 0)
    return -EACCES;
  long result = fetch(task);
  if (result == 0)
    result = caps_keep(0); /* the caller has none */
  if (result < 0)
    return result;
  result = make_call(task);
  if (result < 0)
    return -errno;
  return hold > 0 && hand_back_prepare(hold) < 0 ? -EACCES : result;
}

static _Noreturn void work(const struct task *task, int result_fd) {
  const int kept[] = {task->descriptor, task->object, result_fd};
  pid_t hold = task->how == STAND_IN_HANDS_BACK ? task->call->target.thread : 0;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "sandbox-once");
  fd_close_others(kept, ARRAY_SIZE(kept));
  long result = attempt(task, hold);
  ssize_t told = write(result_fd, &result, sizeof result);
  if (hold > 0 && result >= 0 && told == sizeof result && hand_back_wait(hold))
    hand_back_value(hold, result);
  _exit(0);
}

/* ---- to begin anew ---- */

static void name_base(const struct stand_in_call *call, int base, char ret_name[64]) {
  if (base == AT_FDCWD)
    snprintf(ret_name, 64, "/proc/%d/cwd", call->target.thread);
  else
    snprintf(ret_name, 64, "/proc/%d/fd/%d", call->target.thread, base);
}

static uint64_t mount_of(const char *folder) {
  struct statx status;
  return statx(AT_FDCWD, folder, AT_STATX_DONT_SYNC, STATX_MNT_ID, &status) < 0 ? 0
                                                                                : status.stx_mnt_id;
}

static uint64_t mount_of_base(const struct stand_in_call *call, int base) {
  char name[64];
  name_base(call, base, name);
  return mount_of(name);
}

/* The folder that one of its paths starts from, by its descriptor, or AT_FDCWD. */
static bool start_of(const struct stand_in_call *call, size_t index, int *ret_base) {
  const struct trap *trap = call->trap;
  if (!trap || trap->at[index].path == TRAP_NONE)
    return false;
  int base = trap->at[index].base;
  *ret_base = base < 0 ? AT_FDCWD : (int)call->arguments[base];
  return true;
}

void stand_in_note_start(struct stand_in_call *call) {
  int base;
  for (size_t i = 0; i < ARRAY_SIZE(call->started); i++) {
    if (start_of(call, i, &base))
      call->started[i] = mount_of_base(call, base);
  }
}

static bool lies_below(const struct stand_in_call *call, int base) {
  char name[64], path[PATH_MAX];
  name_base(call, base, name);
  ssize_t length = readlink(name, path, sizeof path - 1);
  path[length < 0 ? 0 : length] = '\0';
  return path_is_under(path, call->mounted);
}

bool stand_in_starts_below(const struct stand_in_call *call) {
  int base;
  for (size_t i = 0; call->trap && i < ARRAY_SIZE(call->trap->at); i++) {
    if (start_of(call, i, &base) && lies_below(call, base))
      return true;
  }
  return false;
}

static bool misses_mount(const struct stand_in_call *call, int base) {
  char path[PATH_MAX];
  _cleanup_close_ int folder = -1;
  if (target_folder(&call->target, base, &folder, path) < 0 || !path_is_under(path, call->mounted))
    return false;
  _cleanup_free_ char *seen = xasprintf("/proc/%d/root%s", call->target.thread, path);
  uint64_t there = mount_of(seen);
  return there && there != mount_of_base(call, base);
}

bool stand_in_misses_mount(const struct stand_in_call *call) {
  int base;
  for (size_t i = 0; call->trap && i < ARRAY_SIZE(call->trap->at); i++) {
    if (start_of(call, i, &base) && misses_mount(call, base))
      return true;
  }
  return false;
}

enum moved { NOT_SENT, NOT_MOVED, MOVED };

/* To where the same path leads by now. Another thread may have been faster: the working folder is
 * that of all. */
static enum moved move(const struct stand_in_call *call, size_t index, int base) {
  char path[PATH_MAX];
  _cleanup_close_ int folder = -1;
  struct errand *errand = NULL;
  if (target_folder(&call->target, base, &folder, path) == 0 && path_is_under(path, call->mounted))
    errand = errand_begin(&call->target, path);
  if (!errand)
    return NOT_SENT;
  int result = base == AT_FDCWD ? errand_enter(errand) : errand_replace(errand, base);
  errand_end(errand);
  return result == 0 && mount_of_base(call, base) != call->started[index] ? MOVED : NOT_MOVED;
}

static void begin_anew(const struct stand_in_call *call) {
  enum moved moved = NOT_SENT;
  int base;
  for (size_t i = 0; call->trap && i < ARRAY_SIZE(call->trap->at); i++) {
    enum moved next = start_of(call, i, &base) ? move(call, i, base) : NOT_SENT;
    moved = next > moved ? next : moved;
  }
  if (call->unmoved_error && moved != MOVED)
    hand_back_value(call->target.thread, -call->unmoved_error);
  else if (moved == NOT_SENT)
    hand_back_again(call->target.thread, call->arguments[0]);
  else
    hand_back_restart(call->target.thread, call->arguments[0]);
}

static _Noreturn void hold(const struct stand_in_call *call, int line) {
  pid_t thread = call->target.thread;
  char word;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NAME, "sandbox-again");
  fd_close_others(&line, 1);
  long result = hand_back_begin(thread);
  if (result == 0)
    result = hand_back_prepare(thread);
  ssize_t told = write(line, &result, sizeof result);
  /* Whoever does not say that it may go on leaves it the error. */
  if (result == 0 && told == sizeof result && hand_back_wait(thread) && read(line, &word, 1) == 1)
    begin_anew(call);
  _exit(0);
}

/* ---- in the monitor ---- */

/* The caller may have put anything there; we have no business with other kinds of sockets. */
static bool is_of_use(const struct stand_in_call *call, int descriptor) {
  int domain = -1;
  socklen_t size = sizeof domain;
  return call->kind == STAND_IN_WATCH ||
         (getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX);
}

/* The thread's own: the first one of the process may have ended, and has no descriptors then. */
static int take_descriptor(const struct stand_in_call *call, int process) {
  _cleanup_close_ int thread = pidfd_open(call->target.thread, PIDFD_THREAD);
  int number = (int)(uint32_t)call->arguments[ARGUMENT_DESCRIPTOR];
  int descriptor = pidfd_getfd(thread >= 0 ? thread : process, number, 0);
  return descriptor < 0 ? (errno == EBADF ? -EBADF : -EACCES) : descriptor;
}

int stand_in_start(struct stand_in *stand_in, const struct stand_in_call *call, int process,
                   int object, enum stand_in_return how) {
  int ends[2];
  _cleanup_close_ int descriptor = take_descriptor(call, process);
  if (descriptor < 0)
    return descriptor;
  if (!is_of_use(call, descriptor))
    return -EACCES;
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
    return -EACCES;
  pid_t pid = fork();
  if (pid == 0)
    work(&(struct task){call, descriptor, object, how}, ends[1]);
  close(ends[1]);
  *stand_in = (struct stand_in){.pid = pid, .result = ends[0]};
  if (pid > 0)
    return 0;
  close(ends[0]);
  *stand_in = STAND_IN_NONE;
  return -EACCES;
}

int stand_in_repeat(struct stand_in *stand_in, const struct stand_in_call *call) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
    return -errno;
  pid_t pid = fork();
  if (pid == 0)
    hold(call, ends[1]);
  close(ends[1]);
  *stand_in = (struct stand_in){.pid = pid, .result = ends[0]};
  if (pid > 0)
    return 0;
  close(ends[0]);
  *stand_in = STAND_IN_NONE;
  return -EAGAIN;
}

void stand_in_go_on(const struct stand_in *stand_in) {
  (void)send(stand_in->result, "", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

void stand_in_end(struct stand_in *stand_in) {
  if (stand_in->result < 0)
    return;
  close(stand_in->result);
  kill(stand_in->pid, SIGKILL);
  (void)child_wait(stand_in->pid);
  *stand_in = STAND_IN_NONE;
}

long stand_in_result(const struct stand_in *stand_in) {
  long result = -EACCES;
  return read(stand_in->result, &result, sizeof result) == sizeof result ? result : -EACCES;
}
