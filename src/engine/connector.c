/* The connector; see connector.h. A forked copy of the monitor: it has the plan in memory, and
 * nothing of the monitor's descriptors. One loop; what has to wait for a server is looked at again
 * and again, and what waits for an answer is told of it, so that nobody else waits with either. */
#include "engine/connector.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/child.h"
#include "core/cleanup.h"
#include "core/clock.h"
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

static bool keep_waiting(struct connecting *connecting, const struct caller *caller, int *object,
                         bool asked) {
  if (connecting->waiting_count >= connecting->waiting_limit)
    return false;
  connecting->waiting[connecting->waiting_count++] =
      (struct waiting){.caller = *caller,
                       .asked = asked,
                       .object = steal_fd(object),
                       .until_ns = asked ? 0 : deadline_of(caller->socket)};
  return true;
}

/* The object is pinned, and what was found out about it stays true. When its server is gone,
 * another may have its name; but who was allowed one by a word is not for another. */
static int attempt_again(struct connecting *connecting, struct waiting *waiting,
                         bool *ret_blocking) {
  const struct caller *caller = &waiting->caller;
  if (waiting->object >= 0) {
    int result = attempt_through(caller, waiting->object, ret_blocking);
    if (result == 0 || waiting->told || attempt_waits(caller, result, *ret_blocking))
      return result;
    close(waiting->object);
    waiting->object = -1;
  }
  return attempt_connect(connecting, caller, &waiting->object, ret_blocking);
}

/* While somebody thinks about it, only what ends programs ends the call. */
static bool is_asked_in_vain(const struct connecting *connecting, const struct waiting *waiting) {
  if (!waiting->asked)
    return false;
  return !caller_still_waits(&waiting->caller, connecting->listener) ||
         caller_must_end(&waiting->caller, connecting->proc);
}

/* One more attempt; false: it goes on waiting. */
static bool is_done(struct connecting *connecting, struct waiting *waiting, bool look_for_signals) {
  struct caller *caller = &waiting->caller;
  bool blocking;
  if (is_asked_in_vain(connecting, waiting)) {
    line_withdraw(connecting->channel, caller->id);
    caller_answer(caller, connecting->listener, -EINTR);
    return true;
  }
  if (waiting->asked)
    return false;
  if (!caller_still_waits(caller, connecting->listener)) {
    close(caller->socket);
    return true;
  }
  int result = attempt_again(connecting, waiting, &blocking);
  waiting->asked = result == ATTEMPT_ASKED;
  if (waiting->asked)
    return false; /* its time begins with the answer */
  bool late = waiting->until_ns && monotonic_ns() >= waiting->until_ns;
  if (attempt_waits(caller, result, blocking) && !late) {
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

static bool waits_for_queue(const struct waiting *waiting) {
  return waiting->caller.family == AF_UNIX && !waiting->asked;
}

/* From the last to the first: `ready` is by their places of before. */
static void look_at_waiting(struct connecting *connecting, const struct pollfd *ready) {
  uint64_t now = monotonic_ns();
  bool retry = now >= connecting->retry_at_ns, signals = now >= connecting->signals_at_ns;
  for (size_t i = connecting->waiting_count; i-- > 0;) {
    bool queues = waits_for_queue(&connecting->waiting[i]);
    if ((ready[i].revents || signals || (queues && retry)) &&
        is_done(connecting, &connecting->waiting[i], signals))
      forget(connecting, i);
  }
  if (retry || signals)
    connecting->retry_at_ns = next_look(now, RETRY_NS);
  if (signals)
    connecting->signals_at_ns = next_look(now, SIGNALS_NS);
}

static bool any_waits_for_queue(const struct connecting *connecting) {
  for (size_t i = 0; i < connecting->waiting_count; i++) {
    if (waits_for_queue(&connecting->waiting[i]))
      return true;
  }
  return false;
}

/* A queue that is full tells nobody when it is not. */
static int next_timeout(const struct connecting *connecting) {
  if (connecting->waiting_count == 0)
    return -1;
  uint64_t now = monotonic_ns(), at = connecting->signals_at_ns;
  if (connecting->retry_at_ns < at && any_waits_for_queue(connecting))
    at = connecting->retry_at_ns;
  return at > now ? (int)((at - now) / 1000000) + 1 : 0;
}

/* ---- the loop ---- */

static void serve(struct connecting *connecting, const struct connect_call *call) {
  struct caller caller;
  bool blocking = false;
  _cleanup_close_ int object = -1;
  int result = caller_take(&caller, call);
  if (result == -EACCES)
    (void)line_tell_unreadable(connecting->channel, connecting->proc, caller.thread);
  if (result == 0)
    result = caller_take_socket(&caller, connecting->listener, connecting->proc);
  if (result == 0)
    result = attempt_connect(connecting, &caller, &object, &blocking);
  if (!attempt_waits(&caller, result, blocking) ||
      !keep_waiting(connecting, &caller, &object, result == ATTEMPT_ASKED))
    caller_answer(&caller, connecting->listener, result);
}

static void serve_next(struct connecting *connecting) {
  struct connect_call call;
  if (connector_receive(connecting->listener, &call))
    serve(connecting, &call);
}

static struct waiting *find_asked(const struct connecting *connecting, uint64_t id) {
  for (size_t i = 0; i < connecting->waiting_count; i++) {
    if (connecting->waiting[i].asked && connecting->waiting[i].caller.id == id)
      return &connecting->waiting[i];
  }
  return NULL;
}

/* It is allowed, by way of the descriptor that came along if the session has none of its own. */
static bool is_done_as_told(struct connecting *connecting, struct waiting *waiting, int result,
                            int *object) {
  if (result < 0) {
    caller_answer(&waiting->caller, connecting->listener, result);
    return true;
  }
  if (*object >= 0) {
    close(waiting->object);
    waiting->object = steal_fd(object);
  }
  waiting->asked = false;
  waiting->told = true;
  waiting->until_ns = deadline_of(waiting->caller.socket);
  return is_done(connecting, waiting, false);
}

static void read_line(struct connecting *connecting) {
  struct line_word word;
  _cleanup_close_ int object = -1;
  if (line_read(connecting->channel, &word, &object) < 0)
    _exit(0); /* dismissed, or the monitor is gone and the session with it */
  if (word.is_call) {
    serve(connecting, &word.call);
    return;
  }
  struct waiting *waiting = find_asked(connecting, word.id);
  if (waiting && is_done_as_told(connecting, waiting, word.result, &object))
    forget(connecting, (size_t)(waiting - connecting->waiting));
}

static void work(struct connecting *connecting) {
  static struct pollfd watched[2 + WAITING_LIMIT];
  size_t waiting = connecting->waiting_count;
  watched[0] = (struct pollfd){.fd = connecting->channel, .events = POLLIN};
  watched[1] =
      (struct pollfd){.fd = connecting->is_told ? -1 : connecting->listener, .events = POLLIN};
  for (size_t i = 0; i < waiting; i++) {
    const struct caller *caller = &connecting->waiting[i].caller;
    watched[2 + i] =
        (struct pollfd){.fd = caller->family == AF_UNIX ? -1 : caller->socket, .events = POLLOUT};
  }
  if (poll(watched, 2 + waiting, next_timeout(connecting)) < 0)
    return;
  if (waiting > 0)
    look_at_waiting(connecting, watched + 2);
  if (watched[0].revents)
    read_line(connecting);
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
  int result = judge_prepare(&connecting->judge, input, connecting->proc);
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
  struct connecting connecting = {.listener = input->listener,
                                  .channel = channel,
                                  .is_told = input->is_told,
                                  .looks_for = input->connecting};
  const int kept[] = {channel, input->listener, input->user_ns, input->mount_ns};
  prctl(PR_SET_NAME, "sandbox-connect");
  setsid(); /* Ctrl-C is not meant for us: the monitor's end is ours */
  child_keep_only(kept, ARRAY_SIZE(kept));
  if (prepare(&connecting, input) < 0)
    _exit(1); /* the monitor notices */
  close(input->user_ns);
  close(input->mount_ns);
  if (input->first)
    serve(&connecting, input->first);
  for (;;)
    work(&connecting);
}

/* ---- the monitor's side ---- */

bool connector_can_spare(int listener, const struct connect_call *call) {
  struct caller caller;
  _cleanup_close_ int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (caller_take(&caller, call) < 0 || !caller_misses_service(&caller, proc))
    return false;
  caller_answer(&caller, listener, -ENOENT);
  return true;
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
  return fcntl(line, F_SETFL, O_NONBLOCK) < 0 ? sb_fail_errno(error, "the line to the connector")
                                              : 0;
}

void connector_end(struct connector *connector) {
  if (connector->channel < 0)
    return;
  close(connector->channel);
  connector_forget_unsaid(connector);
  kill(connector->pid, SIGKILL); /* it may wait for a server */
  connector->channel = -1;
}

void connector_reap(struct connector *connector) {
  (void)child_wait_for(connector->pid, CHILD_PATIENCE_MS);
  *connector = CONNECTOR_NONE;
}
