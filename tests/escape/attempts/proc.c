/* What procfs and sysfs give away or let be changed. Files are opened for writing, not written:
 * the tests also run this unsandboxed, as root. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/klog.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attempt.h"

static int walk_answer;

static int try_writable(const char *path, const struct stat *status, int type, struct FTW *where) {
  int fd;

  (void)status;
  (void)where;
  if (type != FTW_F)
    return 0;
  fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    walk_answer = errno;
    return 0;
  }
  close(fd);
  detail("%s", path);
  walk_answer = OPENED;
  return 1;
}

/* The first file of a tree that opens for writing. */
static int walk_writable(char **arguments) {
  walk_answer = ENOENT;
  nftw(arguments[0], try_writable, 32, FTW_PHYS);
  return walk_answer;
}

/* True symbol addresses; the kernel shows zeros to those who may not know. */
static int kernel_symbols(char **arguments) {
  FILE *file = fopen("/proc/kallsyms", "re");
  unsigned long address = 0;

  (void)arguments;
  if (!file)
    return errno;
  if (fscanf(file, "%lx", &address) != 1) {
    fclose(file);
    return DENIED_EMPTY;
  }
  for (int lines = 0; address == 0 && lines < 1000; lines++)
    if (fscanf(file, "%*[^\n]\n%lx", &address) != 1)
      break;
  fclose(file);
  return address ? OPENED : DENIED_EMPTY;
}

static int kernel_log(char **arguments) {
  char buffer[4096];
  int length;

  (void)arguments;
  length = klogctl(3 /* SYSLOG_ACTION_READ_ALL */, buffer, sizeof(buffer));
  if (length < 0)
    return errno;
  return length == 0 ? DENIED_EMPTY : OPENED;
}

static int hardware_addresses(char **arguments) {
  DIR *folder = opendir("/sys/class/net");
  struct dirent *entry;

  (void)arguments;
  if (!folder)
    return errno;
  while ((entry = readdir(folder))) {
    char path[512];
    if (entry->d_name[0] == '.' || strcmp(entry->d_name, "lo") == 0)
      continue;
    snprintf(path, sizeof(path), "/sys/class/net/%s/address", entry->d_name);
    if (read_path(path) == OPENED) {
      closedir(folder);
      return OPENED;
    }
  }
  closedir(folder);
  return DENIED_EMPTY;
}

static int contains(const char *path, const char *marker) {
  static char buffer[1 << 17];
  size_t used = 0;
  ssize_t length;
  int fd = open(path, O_RDONLY | O_CLOEXEC);

  if (fd < 0)
    return 0;
  while (used < sizeof(buffer) - 1 &&
         (length = read(fd, buffer + used, sizeof(buffer) - 1 - used)) > 0)
    used += (size_t)length;
  close(fd);
  return memmem(buffer, used, marker, strlen(marker)) != NULL;
}

/* Looks for a marker in one file of every visible process. It comes in two halves, or we would
 * find it in the command line of whoever started us. */
static int other_processes(char **arguments) {
  char marker[256];
  DIR *folder = opendir("/proc");
  struct dirent *entry;

  if (!folder)
    return errno;
  snprintf(marker, sizeof(marker), "%s%s", arguments[1], arguments[2]);
  while ((entry = readdir(folder))) {
    char path[512];
    if (!isdigit((unsigned char)entry->d_name[0]) || atoi(entry->d_name) == getpid())
      continue;
    snprintf(path, sizeof(path), "/proc/%s/%s", entry->d_name, arguments[0]);
    if (contains(path, marker)) {
      detail("%s", path);
      closedir(folder);
      return OPENED;
    }
  }
  closedir(folder);
  return ENOENT;
}

static int lower_oom_score(char **arguments) {
  int fd = open(arguments[0], O_WRONLY | O_CLOEXEC), result;

  if (fd < 0)
    return errno;
  result = answer(write(fd, "-1000", 5));
  close(fd);
  return result;
}

static int lower_oom_score_in_child(char **arguments) {
  return in_child(lower_oom_score, arguments);
}

const struct attempt proc_attempts[] = {
    {"walkw", 1, "FOLDER: any file below that opens for writing", walk_writable},
    {"E34", 3, "FILE MARK ER: in any process but us", other_processes},
    {"E72.kallsyms", 0, "addresses of kernel symbols", kernel_symbols},
    {"E72.dmesg", 0, "the kernel's log", kernel_log},
    {"E73.mac", 0, "hardware addresses of the host", hardware_addresses},
    {"oom", 1, "PATH: write -1000 to it", lower_oom_score_in_child},
    {NULL, 0, NULL, NULL},
};
