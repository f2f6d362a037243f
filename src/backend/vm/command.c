/* Starts the command in the guest: the caller's ids, no capability, nothing of ours open. */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/vm/guest.h"
#include "core/exit-code.h"

static int open_terminal(const struct guest *guest, char name[64]) {
  int number, unlock = 0;
  int master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (master < 0 || ioctl(master, TIOCSPTLCK, &unlock) < 0 || ioctl(master, TIOCGPTN, &number) < 0)
    guest_fail(guest, errno, "opening", "/dev/ptmx");
  struct winsize size = {.ws_row = guest->rows, .ws_col = guest->columns};
  ioctl(master, TIOCSWINSZ, &size);
  snprintf(name, 64, "/dev/pts/%d", number);
  if (chown(name, guest->user, guest->group) < 0)
    guest_fail(guest, errno, "giving away", name);
  return master;
}

static void make_pipe(const struct guest *guest, int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) < 0)
    guest_fail(guest, errno, "making", "a pipe");
}

/* ---- in the new process ---- */

static int set_limit(int resource, uint64_t value) {
  struct rlimit limit = {value, value};
  return value ? setrlimit((__rlimit_resource_t)resource, &limit) : 0;
}

static int drop_rights(const struct guest *guest) {
  struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
  struct __user_cap_data_struct none[2] = {0};
  for (int capability = 0; capability <= 63; capability++) {
    if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0 &&
        errno != EINVAL) /* the kernel has less */
      return -1;
  }
  if (prctl(PR_SET_SECUREBITS, 0x2f, 0, 0, 0) < 0) /* being root gives nothing back */
    return -1;
  if (setgroups(0, NULL) < 0 || setresgid(guest->group, guest->group, guest->group) < 0 ||
      setresuid(guest->user, guest->user, guest->user) < 0 ||
      syscall(SYS_capset, &header, none) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
    return -1;
  return set_limit(RLIMIT_NOFILE, guest->open_files) < 0 ||
                 set_limit(RLIMIT_FSIZE, guest->file_size) < 0
             ? -1
             : 0;
}

static int enter_group(int group) {
  return group < 0 || write(group, "0", 1) == 1 ? 0 : -1;
}

static void execute_script(const struct guest *guest, char *file) {
  size_t count = 0;
  while (guest->arguments[count])
    count++;
  char **words = calloc(count + 2, sizeof *words);
  if (!words)
    return;
  words[0] = "sh";
  words[1] = file;
  memcpy(words + 2, guest->arguments + 1, (count - 1) * sizeof *words);
  execve("/bin/sh", words, guest->variables);
}

/* The first place that has it; as a shell does, a file without a header is a script. */
static void execute(const struct guest *guest) {
  int errnum = ENOENT;
  for (char **place = guest->executables; place && *place; place++) {
    execve(*place, guest->arguments, guest->variables);
    if (errno == ENOEXEC)
      execute_script(guest, *place);
    if (errno != ENOENT && errno != ENOTDIR)
      errnum = errno;
  }
  errno = errnum;
}

struct child {
  int standard[3], report, group;
  const char *terminal; /* NULL: none */
};

static int take_standard(const struct child *child) {
  int fds[3] = {child->standard[0], child->standard[1], child->standard[2]};
  if (child->terminal) {
    fds[0] = fds[1] = fds[2] = open(child->terminal, O_RDWR | O_CLOEXEC);
    if (fds[0] < 0 || ioctl(fds[0], TIOCSCTTY, 0) < 0)
      return -1;
  }
  for (int i = 0; i < 3; i++) {
    if (dup2(fds[i], i) < 0)
      return -1;
  }
  return 0;
}

static _Noreturn void become_command(const struct guest *guest, const struct child *child) {
  sigset_t none;
  sigemptyset(&none);
  setsid();
  if (enter_group(child->group) == 0 && take_standard(child) == 0 && drop_rights(guest) == 0 &&
      chdir(guest->cwd) == 0) {
    sigprocmask(SIG_SETMASK, &none, NULL);
    execute(guest);
  }
  int errnum = errno;
  guest_write_all(child->report, &errnum, sizeof errnum);
  _exit(127);
}

/* ---- in ours ---- */

/* Waits until the new process has become the command; else the shells' answers. */
static void check_started(const struct guest *guest, int report, pid_t pid) {
  int errnum = 0;
  ssize_t length;
  do
    length = read(report, &errnum, sizeof errnum);
  while (length < 0 && errno == EINTR);
  close(report);
  if (length <= 0) {
    guest_send(guest, (struct vm_message){.kind = VM_RUNNING, .value = (uint32_t)pid});
    return;
  }
  char text[4400];
  int size = snprintf(text, sizeof text, "cannot execute '%s': %s\n", guest->arguments[0],
                      strerror(errnum));
  size_t shown = size < (int)sizeof text ? (size_t)size : sizeof text - 1;
  guest_write_all(guest->error, text, shown);
  guest_send(guest, (struct vm_message){
                        .kind = VM_EXIT, .value = exit_code_of_exec(errnum), .second = shown});
  for (;;)
    pause(); /* the host switches us off */
}

void guest_start(const struct guest *guest, struct guest_command *ret_command) {
  int input[2] = {-1, -1}, output[2] = {-1, -1}, error[2] = {-1, -1}, report[2];
  char terminal[64];
  int master = guest->terminal ? open_terminal(guest, terminal) : -1;
  if (!guest->terminal) {
    make_pipe(guest, input);
    make_pipe(guest, output);
    make_pipe(guest, error);
  }
  make_pipe(guest, report);
  struct child child = {
      {input[0], output[1], error[1]}, report[1], guest->limits, guest->terminal ? terminal : NULL};
  pid_t pid = fork();
  if (pid < 0)
    guest_fail(guest, errno, "starting", "the command");
  if (pid == 0)
    become_command(guest, &child);
  const int theirs[] = {input[0], output[1], error[1], report[1], guest->limits};
  for (size_t i = 0; i < sizeof theirs / sizeof theirs[0]; i++) {
    if (theirs[i] >= 0)
      close(theirs[i]);
  }
  *ret_command = (struct guest_command){pid, guest->terminal ? master : input[1],
                                        guest->terminal ? master : output[0], error[0]};
  check_started(guest, report[0], pid);
}
