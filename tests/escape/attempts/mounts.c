/* Changing the view: mounts, roots and namespaces. */
#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attempt.h"

#ifndef SYS_open_tree_attr
#define SYS_open_tree_attr 467
#endif
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#define TREE_CLONE      1
#define TREE_CLOEXEC    O_CLOEXEC
#define MOVE_FROM_EMPTY 4

struct mount_attributes {
  uint64_t set, clear, propagation, userns_fd;
};

static int unmount(char **arguments) {
  return answer(umount2(arguments[0], MNT_DETACH));
}

static int remount_writable(char **arguments) {
  return answer(mount(NULL, arguments[0], NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int bind(char **arguments) {
  return answer(mount(arguments[0], arguments[1], NULL, MS_BIND, NULL));
}

static int mount_new(char **arguments) {
  return answer(mount("none", arguments[1], arguments[0], 0, NULL));
}

static int make_shared(char **arguments) {
  return answer(mount(NULL, arguments[0], NULL, MS_SHARED | MS_REC, NULL));
}

static int new_fsopen(char **arguments) {
  return answer(syscall(SYS_fsopen, arguments[0], 0));
}

static int new_open_tree(char **arguments) {
  return answer(syscall(SYS_open_tree, AT_FDCWD, arguments[0], TREE_CLONE | TREE_CLOEXEC));
}

static int new_open_tree_attr(char **arguments) {
  struct mount_attributes attributes = {0};
  long result = syscall(SYS_open_tree_attr, AT_FDCWD, arguments[0], TREE_CLONE | TREE_CLOEXEC,
                        &attributes, sizeof(attributes));

  return answer(result);
}

static int new_move_mount(char **arguments) {
  (void)arguments;
  return reached(syscall(SYS_move_mount, -1, "", -1, "", MOVE_FROM_EMPTY));
}

static int new_mount_setattr(char **arguments) {
  struct mount_attributes attributes = {.clear = 1 /* MOUNT_ATTR_RDONLY */};

  return answer(
      syscall(SYS_mount_setattr, AT_FDCWD, arguments[0], 0, &attributes, sizeof(attributes)));
}

static int new_fspick(char **arguments) {
  return answer(syscall(SYS_fspick, AT_FDCWD, arguments[0], 0));
}

static int new_fsmount(char **arguments) {
  (void)arguments;
  return reached(syscall(SYS_fsmount, -1, 0, 0));
}

static int change_root(char **arguments) {
  if (chroot(arguments[0]) < 0)
    return errno;
  return answer(chdir("../../../../.."));
}

static int pivot(char **arguments) {
  (void)arguments;
  return reached(syscall(SYS_pivot_root, "/", "/"));
}

/* ---- namespaces ---- */

static int unshare_now(char **arguments) {
  return answer(unshare((int)number(arguments[0])));
}

static int unshare_flags(char **arguments) {
  return in_child(unshare_now, arguments);
}

static int clone_flags(char **arguments) {
  unsigned long flags = (unsigned long)number(arguments[0]);
  long child = syscall(SYS_clone, flags | SIGCHLD, NULL, NULL, NULL, NULL);

  if (child < 0)
    return errno;
  if (child == 0)
    _exit(0);
  waitpid((pid_t)child, NULL, 0);
  return OPENED;
}

static int clone3_flags(char **arguments) {
  struct clone_args request = {.flags = (uint64_t)number(arguments[0]), .exit_signal = SIGCHLD};
  long child = syscall(SYS_clone3, &request, sizeof(request));

  if (child < 0)
    return errno;
  if (child == 0)
    _exit(0);
  waitpid((pid_t)child, NULL, 0);
  return OPENED;
}

static int become_root_inside(void) {
  return answer(unshare(CLONE_NEWUSER | CLONE_NEWNS));
}

static int nested_unmount(char **arguments) {
  int result = become_root_inside();

  if (result != OPENED)
    return result;
  if (umount2(arguments[0], MNT_DETACH) < 0)
    return errno;
  return read_path(arguments[1]);
}

static int nested_remount(char **arguments) {
  int result = become_root_inside();

  return result != OPENED ? result : remount_writable(arguments);
}

static int nested_mount(char **arguments) {
  int result = become_root_inside();

  if (result != OPENED)
    return result;
  if (strcmp(arguments[0], "overlay") == 0)
    return answer(mount("none", arguments[1], "overlay", 0, "lowerdir=/tmp:/var/tmp"));
  if (strcmp(arguments[0], "proc") == 0 && unshare(CLONE_NEWPID) == 0) {
    pid_t child = fork();
    int status;
    if (child == 0)
      _exit(mount("none", arguments[1], "proc", 0, NULL) < 0 ? errno : 0);
    waitpid(child, &status, 0);
    return WEXITSTATUS(status);
  }
  return mount_new(arguments);
}

static int nested_unmount_in_child(char **arguments) {
  return in_child(nested_unmount, arguments);
}

static int nested_remount_in_child(char **arguments) {
  return in_child(nested_remount, arguments);
}

static int nested_mount_in_child(char **arguments) {
  return in_child(nested_mount, arguments);
}

static int join_now(char **arguments) {
  int fd = open(arguments[0], O_RDONLY | O_CLOEXEC);

  if (fd < 0)
    return errno;
  return answer(setns(fd, 0));
}

static int join(char **arguments) {
  return in_child(join_now, arguments);
}

static int join_process_now(char **arguments) {
  int fd = (int)syscall(SYS_pidfd_open, number(arguments[0]), 0);

  if (fd < 0)
    return errno;
  return answer(setns(fd, CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC));
}

static int join_process(char **arguments) {
  return in_child(join_process_now, arguments);
}

/* Which namespaces we are in, for the tests to compare with the host's. */
static int same_namespace(char **arguments) {
  char name[64], target[64];
  ssize_t length;

  snprintf(name, sizeof(name), "/proc/self/ns/%s", arguments[0]);
  length = readlink(name, target, sizeof(target) - 1);
  if (length < 0)
    return errno;
  target[length] = '\0';
  return strcmp(target, arguments[1]) == 0 ? OPENED : ENOENT;
}

/* ---- clocks and names ---- */

static int set_clock(char **arguments) {
  struct timespec time;

  (void)arguments;
  clock_gettime(CLOCK_REALTIME, &time);
  return answer(clock_settime(CLOCK_REALTIME, &time));
}

static int set_time_of_day(char **arguments) {
  struct timeval time;

  (void)arguments;
  gettimeofday(&time, NULL);
  return answer(settimeofday(&time, NULL));
}

static int adjust_clock(char **arguments) {
  struct timex state = {0};

  (void)arguments;
  if (adjtimex(&state) < 0)
    return errno;
  state.modes = ADJ_STATUS;
  return answer(adjtimex(&state));
}

static int set_host_name(char **arguments) {
  return answer(sethostname(arguments[0], strlen(arguments[0])));
}

static int set_domain_name(char **arguments) {
  return answer(setdomainname(arguments[0], strlen(arguments[0])));
}

const struct attempt mount_attempts[] = {
    {"E52", 1, "PATH: umount2 MNT_DETACH", unmount},
    {"E53", 1, "PATH: remount read-write", remount_writable},
    {"E53.bind", 2, "PATH PATH: bind", bind},
    {"E53.tmpfs", 2, "TYPE PATH: mount", mount_new},
    {"E53.shared", 1, "PATH: make shared", make_shared},
    {"E54.fsopen", 1, "TYPE", new_fsopen},
    {"E54.open_tree", 1, "PATH", new_open_tree},
    {"E54.open_tree_attr", 1, "PATH", new_open_tree_attr},
    {"E54.move_mount", 0, "is there", new_move_mount},
    {"E54.mount_setattr", 1, "PATH: clear read-only", new_mount_setattr},
    {"E54.fspick", 1, "PATH", new_fspick},
    {"E54.fsmount", 0, "is there", new_fsmount},
    {"E55.chroot", 1, "PATH", change_root},
    {"E55.pivot", 0, "is there", pivot},
    {"E56.unshare", 1, "FLAGS", unshare_flags},
    {"E56.clone", 1, "FLAGS", clone_flags},
    {"E57", 2, "MASK FILE: unmount the mask in a user namespace, then read",
     nested_unmount_in_child},
    {"E58", 1, "PATH: remount read-write in a user namespace", nested_remount_in_child},
    {"E59", 2, "TYPE PATH: mount in a user namespace", nested_mount_in_child},
    {"E60", 1, "FLAGS: clone3", clone3_flags},
    {"E61", 1, "PATH: setns", join},
    {"E61.pidfd", 1, "PID: setns by pidfd", join_process},
    {"E61.same", 2, "KIND LINK: is this our namespace", same_namespace},
    {"E65.clock", 0, "clock_settime", set_clock},
    {"E65.tod", 0, "settimeofday", set_time_of_day},
    {"E65.adjtimex", 0, "adjtimex ADJ_STATUS", adjust_clock},
    {"E66.host", 1, "NAME: sethostname", set_host_name},
    {"E66.domain", 1, "NAME: setdomainname", set_domain_name},
    {NULL, 0, NULL, NULL},
};
