/* Leaving something behind that the host will run later. Mostly verbs: the tests say on which
 * names they are tried, and look at the host afterwards. */
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attempt.h"

#define PAYLOAD "PAYLOAD\n"

static int put(int fd) {
  int result;

  if (fd < 0)
    return errno;
  result = answer(write(fd, PAYLOAD, strlen(PAYLOAD)));
  close(fd);
  return result;
}

static int append(char **arguments) {
  return put(open(arguments[0], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0755));
}

static int make_parents(const char *path) {
  char *copy = strdup(path);

  for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    if (mkdir(copy, 0755) < 0 && errno != EEXIST && errno != EROFS)
      return errno;
    *slash = '/';
  }
  free(copy);
  return OPENED;
}

static int create(char **arguments) {
  int result = make_parents(arguments[0]);

  return result != OPENED ? result : append(arguments);
}

static int make_folder(char **arguments) {
  return answer(mkdir(arguments[0], 0755));
}

static int make_symlink(char **arguments) {
  return answer(symlink(arguments[0], arguments[1]));
}

static int make_link(char **arguments) {
  return answer(link(arguments[0], arguments[1]));
}

/* A second name for a protected file, then written through it. */
static int link_and_write(char **arguments) {
  if (link(arguments[0], arguments[1]) < 0)
    return errno;
  return append(arguments + 1);
}

static int move(char **arguments) {
  return answer(rename(arguments[0], arguments[1]));
}

static int exchange(char **arguments) {
  return answer(renameat2(AT_FDCWD, arguments[0], AT_FDCWD, arguments[1], RENAME_EXCHANGE));
}

static int move_with_whiteout(char **arguments) {
  return answer(renameat2(AT_FDCWD, arguments[0], AT_FDCWD, arguments[1], RENAME_WHITEOUT));
}

static int remove_file(char **arguments) {
  return answer(unlink(arguments[0]));
}

static int remove_folder(char **arguments) {
  return answer(rmdir(arguments[0]));
}

static int make_executable(char **arguments) {
  return answer(chmod(arguments[0], 0777));
}

static int make_setuid(char **arguments) {
  int fd = open(arguments[0], O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
  struct stat status;

  if (fd < 0)
    return errno;
  if (fchmod(fd, (mode_t)number(arguments[1])) < 0)
    return errno;
  if (fstat(fd, &status) < 0)
    return errno;
  return status.st_mode & (S_ISUID | S_ISGID) ? OPENED : DENIED_EMPTY;
}

static int set_file_capability(char **arguments) {
  /* Version 2, effective, CAP_SYS_ADMIN permitted. */
  static const unsigned char value[20] = {1, 0, 0, 2, 0, 0, 0x20};

  if (append(arguments) != OPENED)
    return errno;
  return answer(setxattr(arguments[0], "security.capability", value, sizeof(value), 0));
}

static int unnamed_file(char **arguments) {
  char name[64];
  int fd = open(arguments[0], O_TMPFILE | O_RDWR | O_CLOEXEC, 0755);

  if (fd < 0)
    return errno;
  if (write(fd, PAYLOAD, strlen(PAYLOAD)) < 0)
    return errno;
  snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
  return answer(linkat(AT_FDCWD, name, AT_FDCWD, arguments[1], AT_SYMLINK_FOLLOW));
}

static int make_fifo(char **arguments) {
  return answer(mkfifo(arguments[0], 0600));
}

static int make_device(char **arguments) {
  mode_t kind = arguments[1][0] == 'b' ? S_IFBLK : S_IFCHR;
  dev_t device = makedev((unsigned)number(arguments[2]), (unsigned)number(arguments[3]));

  return answer(mknod(arguments[0], kind | 0666, device));
}

static int set_flags(char **arguments) {
  int fd = open(arguments[0], O_RDONLY | O_CLOEXEC), flags = 0;

  if (fd < 0)
    return errno;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) < 0)
    unsupported("file system without flags");
  flags |= FS_APPEND_FL;
  return answer(ioctl(fd, FS_IOC_SETFLAGS, &flags));
}

static int open_for_writing(char **arguments) {
  return answer(open(arguments[0], O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

const struct attempt persistence_attempts[] = {
    {"write", 1, "PATH: append to it, creating it", append},
    {"create", 1, "PATH: the same, with missing parents", create},
    {"openw", 1, "PATH: open what exists for writing, write nothing", open_for_writing},
    {"mkdir", 1, "PATH", make_folder},
    {"symlink", 2, "TARGET PATH", make_symlink},
    {"link", 2, "PATH NAME", make_link},
    {"linkwrite", 2, "PATH NAME: link, then write through the link", link_and_write},
    {"rename", 2, "FROM TO", move},
    {"exchange", 2, "A B: RENAME_EXCHANGE", exchange},
    {"whiteout", 2, "FROM TO: RENAME_WHITEOUT", move_with_whiteout},
    {"unlink", 1, "PATH", remove_file},
    {"rmdir", 1, "PATH", remove_folder},
    {"chmod", 1, "PATH", make_executable},
    {"tmpfile", 2, "FOLDER PATH: O_TMPFILE and linkat", unnamed_file},
    {"E48.mode", 2, "PATH MODE: leave a setuid or setgid file", make_setuid},
    {"E48.cap", 1, "PATH: give a file a capability", set_file_capability},
    {"E49.fifo", 1, "PATH: leave a FIFO", make_fifo},
    {"mknod", 4, "PATH b|c MAJOR MINOR", make_device},
    {"E51.flags", 1, "PATH: chattr +a", set_flags},
    {NULL, 0, NULL, NULL},
};
