/* Confinement that is neither a namespace nor seccomp: Landlock, no_new_privs, ptrace rules. */
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "doctor/probe.h"

/* Restricts us and looks whether the kernel means it. 0 or an errno. */
static int restrict_and_check(void) {
  struct landlock_ruleset_attr attributes = {.handled_access_fs = LANDLOCK_ACCESS_FS_READ_DIR};
  _cleanup_close_ int rules = (int)syscall(SYS_landlock_create_ruleset, &attributes,
                                           sizeof attributes.handled_access_fs, 0);
  if (rules < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
      syscall(SYS_landlock_restrict_self, rules, 0) < 0)
    return errno;
  _cleanup_close_ int root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  return root < 0 && errno == EACCES ? 0 : EINVAL;
}

/* What an ABI lacks that we would use, the newest first. */
static const char *landlock_lacks(int abi) {
  static const struct {
    int since;
    const char *lack;
  } rows[] = {
      {6, "no scopes for signals and abstract sockets before ABI 6"},
      {5, "no ioctl rule for devices before ABI 5"},
      {3, "no truncate rule before ABI 3"},
  };
  const char *lack = "";
  for (size_t i = 0; i < ARRAY_SIZE(rows) && abi < rows[i].since; i++)
    lack = rows[i].lack;
  return lack;
}

void probe_landlock(const struct check *check, struct finding *finding) {
  (void)check;
  int abi = (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 0) {
    int errnum = errno;
    finding_of_call(finding, errnum);
    if (errnum == EOPNOTSUPP) {
      finding_set(finding, DOCTOR_MISSING, "built into the kernel, but off");
      finding_fix(finding, "add landlock to the list in the boot parameter lsm=");
    }
    return;
  }
  int errnum = restrict_and_check();
  const char *lack = landlock_lacks(abi);
  if (errnum)
    finding_of_call(finding, errnum);
  else
    finding_set(finding, *lack ? DOCTOR_DEGRADED : DOCTOR_OK, "ABI %d%s%s", abi, *lack ? ": " : "",
                lack);
}

void probe_no_new_privs(const struct check *check, struct finding *finding) {
  (void)check;
  if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
    finding_set(finding, DOCTOR_DEGRADED, "already set: setuid tools will not work");
  else
    finding_set(finding, DOCTOR_OK, "not set");
}

/* Reads a byte of a child that has not been told about us, as the gate and a debugger do. */
static int read_memory_of_child(void) {
  static char secret = 's';
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) < 0)
    return errno;
  pid_t pid = fork();
  if (pid < 0)
    return errno;
  if (pid == 0) {
    char byte;
    close(ends[1]);
    _exit((int)read(ends[0], &byte, 1)); /* until the parent is done */
  }
  char copy = 0;
  struct iovec local = {&copy, 1}, remote = {&secret, 1};
  int errnum = process_vm_readv(pid, &local, 1, &remote, 1, 0) == 1 ? 0 : errno;
  close(ends[0]);
  close(ends[1]);
  waitpid(pid, NULL, 0);
  return errnum;
}

void probe_ptrace(const struct check *check, struct finding *finding) {
  (void)check;
  long scope = probe_read_number("/proc/sys/kernel/yama/ptrace_scope", -1);
  int errnum = read_memory_of_child();
  finding_of_call(finding, errnum);
  if (errnum == 0 && scope < 0)
    finding_set(finding, DOCTOR_OK, "children can be read; no Yama");
  else if (errnum == 0)
    finding_set(finding, DOCTOR_OK, "children can be read; kernel.yama.ptrace_scope is %ld", scope);
  else if (scope >= 2) {
    finding_set(finding, DOCTOR_RESTRICTED, "kernel.yama.ptrace_scope is %ld", scope);
    finding_fix(finding,
                scope == 2 ? "%ssysctl -w kernel.yama.ptrace_scope=1"
                           : "%ssed -i s/ptrace_scope.*/ptrace_scope=1/ /etc/sysctl.d/*, then "
                             "reboot: 3 cannot be undone while running",
                probe_sudo());
  }
}
