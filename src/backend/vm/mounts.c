/* The guest's root: the host's view by 9p, read-only and cached; over it what may be written,
 * through a second connection that caches nothing it could miss; and the kernel's own. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backend/vm/guest.h"

#define ROOT  "/root"
#define WRITE "/write"
#define P9    "trans=virtio,version=9p2000.L,msize=512000,"

static void make_folder(const struct guest *guest, const char *path, mode_t mode) {
  if (mkdir(path, mode) < 0 && errno != EEXIST)
    guest_fail(guest, errno, "making the folder", path);
}

static void mount_new(const struct guest *guest, const char *type, const char *source,
                      const char *target, unsigned long flags, const char *options) {
  if (mount(source, target, type, flags, options) < 0)
    guest_fail(guest, errno, "mounting", target);
}

void guest_mount_early(const struct guest *guest) {
  static const char *const folders[] = {"/proc", "/sys", "/dev", ROOT, WRITE, "/group"};
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++)
    make_folder(guest, folders[i], 0755);
  mount_new(guest, "proc", "proc", "/proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_new(guest, "sysfs", "sysfs", "/sys", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  mount_new(guest, "devtmpfs", "devtmpfs", "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755");
}

/* ---- devices ---- */

static void make_device(const struct guest *guest, const char *name, unsigned major_,
                        unsigned minor_) {
  char path[64];
  snprintf(path, sizeof path, ROOT "/dev/%s", name);
  if (mknod(path, S_IFCHR | 0666, makedev(major_, minor_)) < 0)
    guest_fail(guest, errno, "making the device", path);
  chmod(path, 0666);
}

/* A folder of our own: the ports to the host are not in it. */
static void make_devices(const struct guest *guest) {
  static const struct {
    const char *name;
    unsigned major_, minor_;
  } devices[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                 {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};
  static const char *const links[][2] = {{"/proc/self/fd", ROOT "/dev/fd"},
                                         {"/proc/self/fd/0", ROOT "/dev/stdin"},
                                         {"/proc/self/fd/1", ROOT "/dev/stdout"},
                                         {"/proc/self/fd/2", ROOT "/dev/stderr"},
                                         {"pts/ptmx", ROOT "/dev/ptmx"}};
  mount_new(guest, "tmpfs", "dev", ROOT "/dev", MS_NOSUID | MS_NOEXEC, "mode=0755,size=64k");
  for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++)
    make_device(guest, devices[i].name, devices[i].major_, devices[i].minor_);
  for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
    if (symlink(links[i][0], links[i][1]) < 0)
      guest_fail(guest, errno, "making the link", links[i][1]);
  }
  make_folder(guest, ROOT "/dev/pts", 0755);
  make_folder(guest, ROOT "/dev/shm", 0755);
  mount_new(guest, "devpts", "devpts", ROOT "/dev/pts", MS_NOSUID | MS_NOEXEC,
            "newinstance,ptmxmode=0666,mode=0620");
}

/* ---- private places ---- */

static void mount_private(const struct guest *guest, const char *target, const char *mode) {
  char options[96];
  struct stat status;
  if (stat(target, &status) < 0 || !S_ISDIR(status.st_mode))
    return; /* this host has no such folder */
  snprintf(options, sizeof options, "mode=%s%s%s", mode, guest->tmpfs_size ? ",size=" : "",
           guest->tmpfs_size ? guest->tmpfs_size : "");
  mount_new(guest, "tmpfs", "private", target, MS_NOSUID | MS_NODEV, options);
}

static void make_private_places(const struct guest *guest) {
  char runtime[64];
  mount_private(guest, ROOT "/tmp", "1777");
  mount_private(guest, ROOT "/var/tmp", "1777");
  mount_private(guest, ROOT "/run", "0755");
  mount_private(guest, ROOT "/dev/shm", "1777");
  make_folder(guest, ROOT "/run/lock", 01777);
  make_folder(guest, ROOT "/run/user", 0755);
  snprintf(runtime, sizeof runtime, ROOT "/run/user/%u", (unsigned)guest->user);
  make_folder(guest, runtime, 0700);
  if (chown(runtime, guest->user, guest->group) < 0)
    guest_fail(guest, errno, "giving away", runtime);
}

/* ---- what may be written ---- */

/* In a private place nothing is there yet to mount on. */
static void make_mount_point(const char *path, bool folder) {
  char *copy = strdup(path);
  for (char *slash = copy ? strchr(copy + 1, '/') : NULL; slash; slash = strchr(slash + 1, '/')) {
    *slash = '\0';
    mkdir(copy, 0755);
    *slash = '/';
  }
  free(copy);
  if (folder) {
    mkdir(path, 0755);
  } else {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd >= 0)
      close(fd);
  }
}

static void bind_places(const struct guest *guest, char **places, bool folder) {
  for (; places && *places; places++) {
    char source[4200], target[4200];
    snprintf(source, sizeof source, WRITE "%s", *places);
    snprintf(target, sizeof target, ROOT "%s", *places);
    if (access(target, F_OK) < 0)
      make_mount_point(target, folder);
    if (mount(source, target, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV, NULL) < 0)
      guest_fail(guest, errno, "making writable", *places);
  }
}

/* Names are asked for over the network, not at a loopback that is the guest's own. */
static void bind_resolver(const struct guest *guest) {
  char target[4200];
  if (!guest->resolver || !guest->names)
    return;
  int fd = open("/resolver", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0)
    guest_fail(guest, errno, "making the file", "/resolver");
  guest_write_all(fd, guest->names, strlen(guest->names));
  close(fd);
  snprintf(target, sizeof target, ROOT "%s", guest->resolver);
  if (access(target, F_OK) < 0)
    make_mount_point(target, false);
  if (mount("/resolver", target, NULL, MS_BIND, NULL) < 0 ||
      mount(NULL, target, NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) < 0)
    guest_fail(guest, errno, "mounting", guest->resolver);
}

/* ---- the whole ---- */

/* Numbers of the kernel's own files say more than a session needs, or can be written by root. */
static void mount_kernel_files(const struct guest *guest) {
  unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  mount_new(guest, "proc", "proc", ROOT "/proc", flags, NULL);
  mount_new(guest, "sysfs", "sysfs", ROOT "/sys", flags | MS_RDONLY, NULL);
  mount_new(guest, NULL, ROOT "/proc/sys", ROOT "/proc/sys", MS_BIND, NULL);
  mount_new(guest, NULL, NULL, ROOT "/proc/sys", flags | MS_REMOUNT | MS_BIND | MS_RDONLY, NULL);
}

static void write_setting(const struct guest *guest, const char *file, const char *value) {
  int fd = open(file, O_WRONLY | O_CLOEXEC);
  if (fd < 0 || write(fd, value, strlen(value)) < 0)
    guest_fail(guest, errno, "limiting processes by", file);
  close(fd);
}

/* Outside of the new root: nobody in it can change what is set here. */
void guest_limit_processes(struct guest *guest) {
  if (!guest->processes)
    return;
  mount_new(guest, "cgroup2", "cgroup2", "/group", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
  write_setting(guest, "/group/cgroup.subtree_control", "+pids");
  make_folder(guest, "/group/command", 0755);
  write_setting(guest, "/group/command/pids.max", guest->processes);
  guest->limits = open("/group/command/cgroup.procs", O_WRONLY | O_CLOEXEC);
  if (guest->limits < 0)
    guest_fail(guest, errno, "limiting processes by", "/group/command/cgroup.procs");
}

void guest_enter_root(const struct guest *guest) {
  mount_new(guest, "9p", VM_TAG_ROOT, ROOT, MS_RDONLY | MS_NOSUID | MS_NODEV, P9 "cache=loose");
  mount_new(guest, "9p", VM_TAG_WRITE, WRITE, MS_NOSUID | MS_NODEV, P9 "cache=mmap");
  make_devices(guest);
  make_private_places(guest);
  mount_kernel_files(guest);
  bind_places(guest, guest->folders, true);
  bind_places(guest, guest->files, false);
  bind_resolver(guest);
  /* The first file system cannot be left by pivot_root; a root moved over it is as good, and the
   * command is in no chroot. */
  if (chdir(ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
      chdir("/") < 0)
    guest_fail(guest, errno, "entering", "the root");
}
