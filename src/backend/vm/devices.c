/* Modules and ports of the guest. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backend/vm/guest.h"

#define COMPRESSED_FILE                                                                            \
  4 /* MODULE_INIT_COMPRESSED_FILE: the kernel unpacks .xz and .zst itself                         \
     */

static int load_module(const char *file) {
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return -1;
  const char *suffix = strrchr(file, '.');
  int flags = suffix && strcmp(suffix, ".ko") != 0 ? COMPRESSED_FILE : 0;
  int result = (int)syscall(SYS_finit_module, fd, "", flags);
  int errnum = errno;
  close(fd);
  errno = errnum;
  return result < 0 && errnum != EEXIST ? -1 : 0;
}

void guest_load_modules(const struct guest *guest) {
  for (char **file = guest->modules; file && *file; file++) {
    if (load_module(*file) < 0)
      guest_fail(guest, errno, "loading the module", *file);
  }
}

/* ---- ports ---- */

static bool has_name(const char *port, const char *wanted) {
  char path[300], name[64] = "";
  snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", port);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return false;
  ssize_t length = read(fd, name, sizeof name - 1);
  close(fd);
  if (length > 0 && name[length - 1] == '\n')
    name[length - 1] = '\0';
  return strcmp(name, wanted) == 0;
}

static int open_port(const char *wanted, int mode) {
  DIR *folder = opendir("/sys/class/virtio-ports");
  int fd = -1;
  for (struct dirent *entry; folder && fd < 0 && (entry = readdir(folder));) {
    char path[300];
    if (entry->d_name[0] == '.' || !has_name(entry->d_name, wanted))
      continue;
    snprintf(path, sizeof path, "/dev/%s", entry->d_name);
    fd = open(path, mode | O_CLOEXEC);
  }
  if (folder)
    closedir(folder);
  return fd;
}

/* The names come with messages from the other side, a little after the device. */
static int wait_for_port(const struct guest *guest, const char *name, int mode) {
  for (int attempt = 0; attempt < 2000; attempt++) {
    int fd = open_port(name, mode);
    if (fd >= 0)
      return fd;
    usleep(5000);
  }
  guest_fail(guest, errno, "waiting for the port", name);
}

void guest_open_ports(struct guest *guest) {
  guest->control = wait_for_port(guest, VM_PORT_CONTROL, O_RDWR);
  guest->input = wait_for_port(guest, VM_PORT_STDIN, O_RDONLY);
  guest->output = wait_for_port(guest, VM_PORT_STDOUT, O_WRONLY);
  guest->error = wait_for_port(guest, VM_PORT_STDERR, O_WRONLY);
}

/* ---- reading and writing ---- */

void guest_read_exactly(const struct guest *guest, int fd, void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t got = read(fd, (char *)data + done, size - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0)
      guest_fail(guest, got < 0 ? errno : EPIPE, "reading", "what the host says");
    done += (size_t)got;
  }
}

void guest_write_all(int fd, const void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t written = write(fd, (const char *)data + done, size - done);
    if (written < 0 && errno != EINTR && errno != EAGAIN)
      return; /* the host has gone; so will we */
    done += written > 0 ? (size_t)written : 0;
  }
}

void guest_send(const struct guest *guest, struct vm_message message) {
  guest_write_all(guest->control, &message, sizeof message);
}
