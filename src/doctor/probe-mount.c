/* Mounts, tried in a user and mount namespace of the probe's own, so that they vanish with it. The
 * file systems are mounted over "/": always there, and nobody looks below it afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/mount.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "doctor/mounts.h"
#include "doctor/probe.h"

/* Some glibc versions and kernel headers cannot be included together for these. */
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

static int clone_root(void) {
  return (int)syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | AT_RECURSIVE | O_CLOEXEC);
}

int mounts_try_open_tree(void) {
  _cleanup_close_ int tree = clone_root();
  return tree < 0 ? errno : 0;
}

int mounts_try_move_mount(void) {
  _cleanup_close_ int tree = clone_root();
  if (tree < 0)
    return errno;
  return syscall(SYS_move_mount, tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH) < 0 ? errno : 0;
}

int mounts_try_mount_setattr(void) {
  _cleanup_close_ int tree = clone_root();
  if (tree < 0)
    return errno;
  struct mount_attr attributes = {.attr_set =
                                      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
  return syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes,
                 sizeof attributes) < 0
             ? errno
             : 0;
}

int mounts_try_fsopen(void) {
  _cleanup_close_ int context = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
  if (context < 0)
    return errno;
  if (syscall(SYS_fsconfig, context, FSCONFIG_SET_STRING, "size", "64k", 0) < 0 ||
      syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
    return errno;
  _cleanup_close_ int mounted = (int)syscall(SYS_fsmount, context, FSMOUNT_CLOEXEC, 0);
  return mounted < 0 ? errno : 0;
}

void probe_mount_call(const struct check *check, struct finding *finding) {
  const struct call_spec *spec = check->argument;
  if (probe_enter_userns(finding, CLONE_NEWNS))
    finding_of_call(finding, spec->try());
}

static int mount_over_root(void *context) {
  const struct filesystem_spec *spec = context;
  return mount("sandbox-doctor", "/", spec->type, 0, spec->options) < 0 ? errno : 0;
}

void probe_mount_filesystem(const struct check *check, struct finding *finding) {
  const struct filesystem_spec *spec = check->argument;
  if (!probe_enter_userns(finding, CLONE_NEWNS | spec->namespaces))
    return;
  int errnum = probe_in_child(mount_over_root, (void *)spec);
  finding_of_call(finding, errnum);
  if (spec->masked_in_containers && (errnum == EPERM || errnum == EACCES)) {
    finding_set(finding, DOCTOR_DEGRADED, "refused: the /%s we see is masked (a container)",
                strcmp(spec->type, "sysfs") == 0 ? "sys" : spec->type);
    finding_fix(finding, "%s", check->fix);
  }
}

/* Overlay: needs folders on a real disk, for that is where a session keeps its upper folder. */
static const char *temporary_parent(void) {
  const char *folder = getenv("TMPDIR");
  return folder && *folder == '/' ? folder : "/tmp";
}

static int try_overlay(void *context) {
  const char *base = context;
  struct finding ignored;
  if (!probe_enter_userns(&ignored, CLONE_NEWNS))
    return ENOTSUP;
  if (chdir(base) < 0 || mkdir("lower", 0700) < 0 || mkdir("upper", 0700) < 0 ||
      mkdir("work", 0700) < 0)
    return errno;
  if (mount("sandbox-doctor", "lower", "overlay", 0,
            "lowerdir=lower,upperdir=upper,workdir=work,userxattr") < 0)
    return errno;
  return mkdir("lower/written", 0700) < 0 ? errno : 0;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place) {
  (void)status, (void)kind, (void)place;
  remove(path);
  return 0;
}

void probe_overlay(const struct check *check, struct finding *finding) {
  (void)check;
  _cleanup_free_ char *base = xasprintf("%s/sandbox-doctor-XXXXXX", temporary_parent());
  /* If the doctor is interrupted, this process still lives on to remove the folder. */
  prctl(PR_SET_PDEATHSIG, 0);
  if (!mkdtemp(base)) {
    finding_set(finding, DOCTOR_RESTRICTED, "not tried: no temporary folder in %s: %s",
                temporary_parent(), strerror(errno));
    finding_fix(finding, "set TMPDIR to a writable folder");
    return;
  }
  int errnum = probe_in_child(try_overlay, base);
  nftw(base, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
  finding_of_call(finding, errnum);
  if (errnum == ENOTSUP) {
    finding_set(finding, DOCTOR_MISSING, "not tried: no user namespace");
    finding_fix(finding, "first the fix of \"user namespaces\"");
  }
}

/* The mount succeeds before the server has said anything; closing the descriptor aborts it. */
void probe_fuse_mount(const struct check *check, struct finding *finding) {
  (void)check;
  if (!probe_enter_userns(finding, CLONE_NEWNS))
    return;
  /* The kernel wants the descriptor opened in the user namespace that mounts. */
  _cleanup_close_ int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (device < 0) {
    finding_set(finding, finding_state_of_errno(errno), "/dev/fuse: %s", strerror(errno));
    finding_fix(finding, "first the fix of \"/dev/fuse\"");
    return;
  }
  char options[128];
  snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=%u,group_id=%u", device,
           geteuid(), getegid());
  finding_of_call(finding, mount("sandbox-doctor", "/", "fuse", 0, options) < 0 ? errno : 0);
}
