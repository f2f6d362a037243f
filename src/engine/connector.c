/* The connector; see connector.h. A forked copy of the monitor: it has the plan in memory, and
 * nothing of the monitor's descriptors. One loop; what has to wait for a server is looked at again
 * and again, so that nobody else waits with it. */
#include "engine/connector.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/clock.h"
#include "core/file.h"
#include "engine/caps.h"
#include "engine/connecting.h"

/* Linux 6.6; younger than the headers of most distributions. */
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define SYNC_WAKE_UP 1UL /* SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP, an enum in newer headers */

#define WAITING_LIMIT 512 /* each holds up to two descriptors */
#define OWN_FILES     64
#define RETRY_NS      (5 * 1000000ull)
#define SIGNALS_NS    (50 * 1000000ull)
#define IDLE_SHARE    10 /* times as long as it took to look at all who wait, they are left alone */

/* A call whose server is not ready yet. */
struct waiting {
  struct caller caller;
  int object; /* what it connects to, opened and allowed, if it has a name of a file; or -1 */
  uint64_t until_ns; /* SO_SNDTIMEO; 0: for ever */
};

struct connecting {
  int listener, channel;
  int proc; /* the host's; also our working folder */
  struct judge judge;
  struct waiting *waiting;
  size_t waiting_count, waiting_limit;
  uint64_t retry_at_ns, signals_at_ns; /* when queues and signals are looked at again */
};

/* ---- connecting ---- */

/* Never waits, unless the session itself arranges for it: the flag is one of the socket, which the
 * caller has, too. */
static int connect_now(int socket, const void *address, socklen_t length, bool *ret_blocking) {
  int flags = fcntl(socket, F_GETFL);
  if (flags < 0)
    return -errno;
  *ret_blocking = !(flags & O_NONBLOCK);
  if (*ret_blocking)
    fcntl(socket, F_SETFL, flags | O_NONBLOCK);
  int result = connect(socket, address, length) < 0 ? -errno : 0;
  if (*ret_blocking)
    fcntl(socket, F_SETFL, flags);
  return result;
}

/* What a call that may block would wait for: room in a queue, or the other side's answer. */
static bool has_to_wait(const struct caller *caller, int result, bool blocking) {
  return blocking && (caller->family == AF_UNIX ? result == -EAGAIN
                                                : result == -EINPROGRESS || result == -EALREADY);
}

/* The object itself, whatever becomes of its name: by way of our own descriptor. */
static int connect_through(const struct caller *caller, int object, bool *ret_blocking) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  snprintf(address.sun_path, sizeof address.sun_path, "self/fd/%d", object);
  return connect_now(caller->socket, &address, sizeof address, ret_blocking);
}

/* For who has to wait, the object is kept. */
static int connect_object(struct connecting *connecting, const struct caller *caller,
                          int *ret_object, bool *ret_blocking) {
  _cleanup_close_ int object = caller_open_object(caller, connecting->proc);
  if (object < 0)
    return object;
  int result = judge_enter_network(&connecting->judge, caller->thread);
  if (result < 0)
    return -EPERM;
  /* Nobody is there, as far as the session is concerned; programs know what to do then. */
  if (!judge_allows(&connecting->judge, object))
    return -ECONNREFUSED;
  result = connect_through(caller, object, ret_blocking);
  if (has_to_wait(caller, result, *ret_blocking))
    *ret_object = steal_fd(&object);
  return result;
}

/* Landlock keeps abstract names of the host from the session, but not from us. */
static int check_network(struct connecting *connecting, const struct caller *caller) {
  int result = judge_enter_network(&connecting->judge, caller->thread);
  return result < 0 || !judge_knows_network(&connecting->judge, caller->socket) ? -EPERM : 0;
}

static int attempt(struct connecting *connecting, const struct caller *caller, int *ret_object,
                   bool *ret_blocking) {
  *ret_blocking = false;
  if (caller_names_object(caller))
    return connect_object(connecting, caller, ret_object, ret_blocking);
  int result = caller_names_abstract(caller) ? check_network(connecting, caller) : 0;
  return result < 0 ? result
                    : connect_now(caller->socket, &caller->address, caller->length, ret_blocking);
}

/* ---- those that wait ---- */

static uint64_t deadline_of(int socket) {
  struct timeval limit = {0};
  socklen_t length = sizeof limit;
  if (getsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, &length) < 0 ||
      (limit.tv_sec == 0 && limit.tv_usec == 0))
    return 0;
  return monotonic_ns() + (uint64_t)limit.tv_sec * 1000000000ull +
         (uint64_t)limit.tv_usec * 1000ull;
}

static bool keep_waiting(struct connecting *connecting, const struct caller *caller, int *object) {
  if (connecting->waiting_count >= connecting->waiting_limit)
    return false;
  connecting->waiting[connecting->waiting_count++] = (struct waiting){
      .caller = *caller, .object = steal_fd(object), .until_ns = deadline_of(caller->socket)};
  return true;
}

/* The object is pinned, and what was found out about it stays true. When its server is gone,
 * another may have its name. */
static int attempt_again(struct connecting *connecting, struct waiting *waiting,
                         bool *ret_blocking) {
  const struct caller *caller = &waiting->caller;
  if (waiting->object >= 0) {
    int result = connect_through(caller, waiting->object, ret_blocking);
    if (result == 0 || has_to_wait(caller, result, *ret_blocking))
      return result;
    close(waiting->object);
    waiting->object = -1;
  }
  return attempt(connecting, caller, &waiting->object, ret_blocking);
}

/* One more attempt; false: it goes on waiting. */
static bool is_done(struct connecting *connecting, struct waiting *waiting, bool look_for_signals) {
  struct caller *caller = &waiting->caller;
  bool blocking;
  if (!caller_still_waits(caller, connecting->listener)) {
    close(caller->socket);
    return true;
  }
  int result = attempt_again(connecting, waiting, &blocking);
  bool late = waiting->until_ns && monotonic_ns() >= waiting->until_ns;
  if (has_to_wait(caller, result, blocking) && !late) {
    if (!look_for_signals || !caller_is_signalled(caller, connecting->proc))
      return false;
    result = -EINTR;
  }
  caller_answer(caller, connecting->listener, result == -EALREADY ? -EINPROGRESS : result);
  return true;
}

static void forget(struct connecting *connecting, size_t index) {
  if (connecting->waiting[index].object >= 0)
    close(connecting->waiting[index].object);
  connecting->waiting[index] = connecting->waiting[--connecting->waiting_count];
}

/* Who waits must not take all our time from who does not. */
static uint64_t next_look(uint64_t began_ns, uint64_t at_least_ns) {
  uint64_t now = monotonic_ns(), idle = (now - began_ns) * IDLE_SHARE;
  return now + (idle > at_least_ns ? idle : at_least_ns);
}

/* From the last to the first: `ready` is by their places of before. */
static void look_at_waiting(struct connecting *connecting, const struct pollfd *ready) {
  uint64_t now = monotonic_ns();
  bool retry = now >= connecting->retry_at_ns, signals = now >= connecting->signals_at_ns;
  for (size_t i = connecting->waiting_count; i-- > 0;) {
    bool is_unix = connecting->waiting[i].caller.family == AF_UNIX;
    if ((ready[i].revents || signals || (is_unix && retry)) &&
        is_done(connecting, &connecting->waiting[i], signals))
      forget(connecting, i);
  }
  if (retry || signals)
    connecting->retry_at_ns = next_look(now, RETRY_NS);
  if (signals)
    connecting->signals_at_ns = next_look(now, SIGNALS_NS);
}

static bool waits_for_queue(const struct connecting *connecting) {
  for (size_t i = 0; i < connecting->waiting_count; i++) {
    if (connecting->waiting[i].caller.family == AF_UNIX)
      return true;
  }
  return false;
}

/* A queue that is full tells nobody when it is not. */
static int next_timeout(const struct connecting *connecting) {
  if (connecting->waiting_count == 0)
    return -1;
  uint64_t now = monotonic_ns(), at = connecting->signals_at_ns;
  if (connecting->retry_at_ns < at && waits_for_queue(connecting))
    at = connecting->retry_at_ns;
  return at > now ? (int)((at - now) / 1000000) + 1 : 0;
}

/* ---- the loop ---- */

static void serve(struct connecting *connecting, struct caller *caller) {
  bool blocking = false;
  _cleanup_close_ int object = -1;
  int result = caller_take_socket(caller, connecting->listener, connecting->proc);
  if (result == 0)
    result = attempt(connecting, caller, &object, &blocking);
  if (!has_to_wait(caller, result, blocking) || !keep_waiting(connecting, caller, &object))
    caller_answer(caller, connecting->listener, result);
}

static void serve_next(struct connecting *connecting) {
  struct caller caller;
  if (caller_receive(&caller, connecting->listener))
    serve(connecting, &caller);
}

static void work(struct connecting *connecting) {
  static struct pollfd watched[2 + WAITING_LIMIT];
  size_t waiting = connecting->waiting_count;
  watched[0] = (struct pollfd){.fd = connecting->channel, .events = POLLIN};
  watched[1] = (struct pollfd){.fd = connecting->listener, .events = POLLIN};
  for (size_t i = 0; i < waiting; i++) {
    const struct caller *caller = &connecting->waiting[i].caller;
    watched[2 + i] =
        (struct pollfd){.fd = caller->family == AF_UNIX ? -1 : caller->socket, .events = POLLOUT};
  }
  if (poll(watched, 2 + waiting, next_timeout(connecting)) < 0)
    return;
  if (watched[0].revents)
    _exit(0); /* dismissed, or the monitor is gone and the session with it */
  if (waiting > 0)
    look_at_waiting(connecting, watched + 2);
  if (watched[1].revents & POLLIN)
    serve_next(connecting);
  else if (watched[1].revents) /* nobody is left who could call */
    connecting->listener = -1;
}

/* ---- its start ---- */

static int enter_session(int user_ns, int mount_ns) {
  if (setns(user_ns, CLONE_NEWUSER) < 0 || setns(mount_ns, CLONE_NEWNS) < 0)
    return -errno;
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_DUMPABLE, 0);
  /* To look at processes and enter their network; what a path leads to is for the command's own
   * rights to decide. */
  return caps_keep((UINT64_C(1) << CAP_SYS_PTRACE) | (UINT64_C(1) << CAP_SYS_ADMIN));
}

/* As many as there are descriptors for. */
static size_t most_waiting(size_t held) {
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_max <= OWN_FILES + held + 2)
    return 1;
  files.rlim_cur = files.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &files);
  size_t most = (files.rlim_max - OWN_FILES - held) / 2;
  return most < WAITING_LIMIT ? most : WAITING_LIMIT;
}

static int prepare(struct connecting *connecting, const struct connector_input *input) {
  uint64_t flags = SYNC_WAKE_UP;
  connecting->proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (connecting->proc < 0)
    return -errno;
  int result = judge_prepare(&connecting->judge, input->plan, connecting->proc);
  if (result == 0)
    result = enter_session(input->user_ns, input->mount_ns);
  if (result == 0 && fchdir(connecting->proc) < 0)
    result = -errno;
  if (result < 0)
    return result;
  (void)ioctl(connecting->listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, flags);
  connecting->waiting_limit = most_waiting(input->plan->socket_count);
  connecting->waiting = xcalloc(connecting->waiting_limit, sizeof *connecting->waiting);
  return 0;
}

static _Noreturn void connector_main(int channel, const struct connector_input *input) {
  struct connecting connecting = {.listener = input->listener, .channel = channel};
  struct caller first = {0};
  const int kept[] = {channel, input->listener, input->user_ns, input->mount_ns};
  prctl(PR_SET_NAME, "sandbox-connect");
  setsid(); /* Ctrl-C is not meant for us: the monitor's end is ours */
  child_keep_only(kept, ARRAY_SIZE(kept));
  if (prepare(&connecting, input) < 0)
    _exit(1); /* the monitor notices */
  close(input->user_ns);
  close(input->mount_ns);
  if (input->first) {
    first = *input->first;
    serve(&connecting, &first);
  }
  for (;;)
    work(&connecting);
}

/* ---- the monitor's side ---- */

bool connector_is_needed(int listener, struct caller *ret_caller) {
  _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (!caller_receive(ret_caller, listener))
    return false;
  if (!caller_misses_service(ret_caller, proc))
    return true;
  caller_answer(ret_caller, listener, -ENOENT);
  return false;
}

int connector_start(struct connector *connector, const struct connector_input *input,
                    struct sb_error *error) {
  int line;
  pid_t pid = child_start("the connector of sockets", &line, error);
  if (pid == 0)
    connector_main(line, input);
  if (pid < 0)
    return -1;
  *connector = (struct connector){.channel = line, .pid = pid};
  return 0;
}

void connector_end(struct connector *connector) {
  if (connector->channel < 0)
    return;
  close(connector->channel);
  kill(connector->pid, SIGKILL); /* it may wait for a server */
  connector->channel = -1;
}

void connector_reap(struct connector *connector) {
  (void)child_wait(connector->pid);
  *connector = CONNECTOR_NONE;
}
