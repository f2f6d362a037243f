/* Looks at a waiting process; see target.h. */
#include "gate/target.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/in-time.h"
#include "core/status.h"

#define PAGE          4096u /* the smallest of any machine: a read up to its end never fails half-way */
#define FIRST_PIECE   256u
#define PATIENCE_MS   100
#define PF_FORKNOEXEC 0x40 /* linux/sched.h: forked, no exec yet */

struct reading {
  const struct target *target;
  uint64_t address;
  void *data;
  size_t size;
  int result;
};

static void read_memory(void *context) {
  struct reading *reading = context;
  struct iovec ours = {reading->data, reading->size},
               theirs = {(void *)(uintptr_t)reading->address, reading->size};
  ssize_t got = process_vm_readv(reading->target->thread, &ours, 1, &theirs, 1, 0);
  reading->result = got < 0                        ? (errno == ESRCH ? -EPERM : -errno)
                    : (size_t)got == reading->size ? 0
                                                   : -EFAULT;
}

int target_read(const struct target *target, uint64_t address, void *ret_data, size_t size) {
  struct reading reading = {target, address, ret_data, size, -EFAULT};
  if (target->may_stall)
    (void)in_time(read_memory, &reading, PATIENCE_MS);
  else
    read_memory(&reading);
  return reading.result;
}

int target_read_path(const struct target *target, uint64_t address, char ret_path[PATH_MAX]) {
  for (size_t have = 0; have < PATH_MAX;) {
    size_t size = PAGE - (size_t)((address + have) % PAGE);
    size_t most = have == 0 ? FIRST_PIECE : PATH_MAX - have;
    if (size > most)
      size = most;
    int result = target_read(target, address + have, ret_path + have, size);
    if (result < 0)
      return result;
    if (memchr(ret_path + have, '\0', size))
      return 0;
    have += size;
  }
  return -ENAMETOOLONG;
}

int target_open_memory(const struct target *target) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/mem", target->thread);
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  return fd < 0 ? -errno : fd;
}

static int read_proc(const struct target *target, const char *name, char **ret_text) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/%s", target->thread, name);
  return file_read_at(AT_FDCWD, path, 64 << 10, ret_text, NULL);
}

bool target_read_name(const struct target *target, char ret_name[TARGET_NAME_SIZE]) {
  _cleanup_free_ char *text = NULL;
  if (read_proc(target, "comm", &text) < 0)
    return false;
  snprintf(ret_name, TARGET_NAME_SIZE, "%.*s", (int)strcspn(text, "\n"), text);
  return true;
}

/* "4711 (name) S 1 2 3 4 5 FLAGS …": the name may hold anything, also parentheses. */
bool target_is_ours(const struct target *target) {
  _cleanup_free_ char *text = NULL;
  unsigned flags = 0;
  if (read_proc(target, "stat", &text) < 0)
    return false;
  const char *after = strrchr(text, ')');
  return after && sscanf(after + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) == 1 &&
         flags & PF_FORKNOEXEC;
}

bool target_name(const struct target *target, int fd, const char *path, char ret_name[PATH_MAX]) {
  int length = fd == AT_FDCWD
                   ? snprintf(ret_name, PATH_MAX, "/proc/%d/cwd/%s", target->thread, path)
                   : snprintf(ret_name, PATH_MAX, "/proc/%d/fd/%d/%s", target->thread, fd, path);
  return length < PATH_MAX;
}

int target_open_descriptor(const struct target *target, int fd) {
  char name[64];
  snprintf(name, sizeof name, "/proc/%d/fd/%d", target->thread, fd);
  int opened = open(name, O_PATH | O_CLOEXEC);
  return opened < 0 ? -errno : opened;
}

int target_open_folder(const struct target *target, int fd) {
  char name[PATH_MAX];
  target_name(target, fd, "", name);
  int folder = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
  return folder < 0 ? -errno : folder;
}

int target_folder(const struct target *target, int fd, int *ret_fd, char ret_path[PATH_MAX]) {
  char name[64];
  _cleanup_close_ int folder = target_open_folder(target, fd);
  if (folder < 0)
    return folder;
  snprintf(name, sizeof name, "/proc/self/fd/%d", folder);
  ssize_t length = readlink(name, ret_path, PATH_MAX);
  if (length < 0 || length >= PATH_MAX)
    return length < 0 ? -errno : -ENAMETOOLONG;
  ret_path[length] = '\0';
  *ret_fd = steal_fd(&folder);
  return 0;
}

pid_t target_process(const struct target *target) {
  _cleanup_free_ char *status = NULL;
  return read_proc(target, "status", &status) < 0 ? 0 : status_innermost(status, "Tgid:", NULL);
}

bool target_is_traced(const struct target *target) {
  _cleanup_free_ char *status = NULL;
  return read_proc(target, "status", &status) == 0 &&
         status_innermost(status, "TracerPid:", NULL) != 0;
}

void target_inside(const struct target *target, pid_t *ret_process, pid_t *ret_thread) {
  _cleanup_free_ char *status = NULL;
  *ret_process = *ret_thread = 0;
  if (read_proc(target, "status", &status) < 0)
    return;
  *ret_process = status_innermost(status, "NStgid:", NULL);
  *ret_thread = status_innermost(status, "NSpid:", NULL);
}
