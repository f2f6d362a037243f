/* The gate by seccomp notify, with a real listener: what a workload cannot bring about by itself.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "engine/seccomp.h"
#include "gate/waiting.h"

enum { CANNOT = 200 }; /* exit status: this machine does not allow what the test needs */

/* In a child: hands over the listener of a filter, makes one call, ends with its errno. */
static _Noreturn void be_watched(int line, const char *path) {
  const struct sock_fprog *program = seccomp_program((struct seccomp_variant){.waits = WAIT_PATHS});
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    _exit(CANNOT);
  int listener = seccomp_install_listener(program);
  if (listener < 0 || fd_send(line, &listener, 1, "l", 1) < 0)
    _exit(CANNOT);
  close(listener);
  int fd = open(path, O_RDONLY);
  _exit(fd < 0 ? errno : 0);
}

static int take_listener(int line) {
  int fds[FD_PASS_LIMIT];
  char byte;
  return fd_receive(line, fds, &byte, 1) == 1 ? fds[0] : -1;
}

/* Serves what comes until nobody is left. */
static int serve_all(int listener) {
  _cleanup_error_ struct sb_error error = {0};
  struct plan plan = {.gate = GATE_NOTIFY};
  struct gate gate = {
      .config = {.plan = &plan, .trigger = listener, .root = open("/proc", O_PATH)}};
  if (notify_trigger.open(&gate, listener, &error) < 0)
    return -1;
  struct pollfd watched = {.fd = gate.watched_fd, .events = POLLIN};
  while (watched.fd >= 0 && poll(&watched, 1, 5000) == 1) {
    notify_trigger.serve(&gate, watched.revents);
    watched.fd = gate.watched_fd;
  }
  notify_trigger.close(&gate);
  close(gate.config.root);
  return 0;
}

static int status_of(pid_t pid) {
  int status;
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* A child that calls, and whoever serves it. */
struct watched {
  int line[2], listener;
  pid_t pid;
};

static struct watched watch(void (*prepare)(void), const char *path) {
  struct watched watched;
  assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, watched.line), errno);
  watched.pid = fork();
  if (watched.pid == 0) {
    if (prepare)
      prepare();
    be_watched(watched.line[0], path);
  }
  watched.listener = take_listener(watched.line[1]);
  return watched;
}

/* What became of its call, when nobody listens any more. */
static int answer_of(const struct watched *watched) {
  close(watched->listener);
  int answer = status_of(watched->pid);
  close(watched->line[0]);
  close(watched->line[1]);
  if (answer == CANNOT)
    skip();
  return answer;
}

/* Runs in the first process of a new pid namespace, and ends as it ends. */
static _Noreturn void in_own_pid_namespace(void (*run)(int line), int line) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
    _exit(CANNOT);
  pid_t pid = fork();
  if (pid == 0)
    run(line);
  int status;
  waitpid(pid, &status, 0);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : CANNOT);
}

static void watched_side(int line) {
  be_watched(line, "/etc/hostname");
}

static void watching_side(int line) {
  int listener = take_listener(line);
  _exit(listener < 0 || serve_all(listener) < 0 ? CANNOT : 0);
}

/* Its pid is 0 for us, so nothing that we could read would be its own. */
static void test_a_process_without_a_number_is_refused(void **state) {
  (void)state;
  int line[2];
  assert_return_code(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, line), errno);
  pid_t watched = fork();
  if (watched == 0)
    in_own_pid_namespace(watched_side, line[0]);
  pid_t watching = fork();
  if (watching == 0)
    in_own_pid_namespace(watching_side, line[1]);
  close(line[0]);
  close(line[1]);
  int answer = status_of(watched), served = status_of(watching);
  if (answer == CANNOT || served == CANNOT) {
    print_message("# no user namespaces or no listener here\n");
    skip();
  }
  assert_int_equal(answer, EACCES);
}

static void test_a_bad_address_is_a_fault(void **state) {
  (void)state;
  struct watched watched = watch(NULL, (const char *)8);
  if (watched.listener >= 0)
    serve_all(watched.listener);
  assert_int_equal(answer_of(&watched), EFAULT);
}

static void on_alarm(int signal) {
  (void)signal;
}

static void set_alarms(void) {
  signal(SIGALRM, on_alarm);
  setitimer(ITIMER_REAL, &(struct itimerval){{0, 30000}, {0, 30000}}, NULL);
}

static bool has_killable_wait(void) {
  struct utsname system;
  int major = 0, minor = 0;
  uname(&system);
  sscanf(system.release, "%d.%d", &major, &minor);
  return major > 5 || (major == 5 && minor >= 19);
}

/* The same notification is answered after a signal that the caller handles. */
static void test_a_handled_signal_does_not_start_the_call_over(void **state) {
  (void)state;
  if (!has_killable_wait())
    skip();
  struct watched watched = watch(set_alarms, "/");
  struct seccomp_notif notification = {0};
  int received = ioctl(watched.listener, SECCOMP_IOCTL_NOTIF_RECV, &notification);
  usleep(150000);
  struct seccomp_notif_resp response = {.id = notification.id,
                                        .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
  int sent = received < 0 ? -1 : ioctl(watched.listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
  int answer = answer_of(&watched);
  assert_int_equal(sent, 0);
  assert_int_equal(answer, 0);
}

/* Without a listener nothing opens. */
static void test_without_a_listener_calls_fail(void **state) {
  (void)state;
  struct watched watched = watch(NULL, "/");
  assert_int_equal(answer_of(&watched), ENOSYS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_a_process_without_a_number_is_refused),
    cmocka_unit_test(test_a_bad_address_is_a_fault),
    cmocka_unit_test(test_a_handled_signal_does_not_start_the_call_over),
    cmocka_unit_test(test_without_a_listener_calls_fail),
};
UNIT_MAIN(tests)
