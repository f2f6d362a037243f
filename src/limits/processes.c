/* Usage where no cgroup counts it: by looking at the session's processes in /proc. What lies in
 * /proc was chosen by hostile processes, names included; everything is parsed defensively and the
 * number of descriptors looked at is bounded. */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/cleanup.h"
#include "core/file.h"
#include "core/folder.h"
#include "core/in-time.h"
#include "limits/sample.h"

enum { DESCRIPTORS_MAX = 4096, UNLINKED_MAX = 1024, PATIENCE_MS = 1000 };

/* A file that has no name any more, seen through some descriptor. */
struct unlinked {
  dev_t device;
  ino_t inode;
};

struct survey {
  const struct limit_group *group;
  bool descriptors;
  uint64_t ticks, threads;
  uint64_t anonymous_bytes, shared_bytes; /* an upper bound: shared pages count for each process */
  uint64_t exact_anonymous_bytes, exact_shared_bytes;
  uint64_t memory_file_bytes, unlinked_bytes;
  uint64_t read_bytes, write_bytes;
  dev_t memory_device; /* of memfds */
  size_t descriptors_seen, unlinked_count;
  struct unlinked unlinked[UNLINKED_MAX];
};

bool sample_parse_stat(const char *text, uint64_t *ret_ticks) {
  const char *name_end = strrchr(text, ')');
  uint64_t ticks[4];
  /* Fields 3 to 17 of proc(5): the last four are utime, stime, cutime and cstime. */
  if (!name_end || sscanf(name_end + 1,
                          " %*c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %" SCNu64 " %" SCNu64
                          " %" SCNu64 " %" SCNu64,
                          &ticks[0], &ticks[1], &ticks[2], &ticks[3]) != 4)
    return false;
  *ret_ticks = ticks[0] + ticks[1] + ticks[2] + ticks[3];
  return true;
}

/* Reads a file of one process into a buffer. False if the process is gone. */
static bool read_process_file(int process, const char *name, char *buffer, size_t size) {
  _cleanup_close_ int fd = openat(process, name, O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : read(fd, buffer, size - 1);
  if (got < 0)
    return false;
  buffer[got] = '\0';
  return true;
}

/* A process chooses its name, which stands in the first line of `status`. Newlines in it come
 * escaped, but only whole lines count anyway. */
static uint64_t kilobytes(const char *text, const char *line) {
  const char *at = strstr(text, line);
  return at ? strtoull(at + strlen(line), NULL, 10) * 1024 : 0;
}

static uint64_t anonymous_in(const char *status) {
  return kilobytes(status, "\nRssAnon:") + kilobytes(status, "\nVmSwap:");
}

static uint64_t shared_in(const char *status) {
  return kilobytes(status, "\nRssShmem:");
}

/* One file for all that limits need: each further one costs as much again. False: not to be had. */
static bool count_status(struct survey *survey, int process) {
  char text[4096];
  if (!read_process_file(process, "status", text, sizeof text))
    return false;
  survey->anonymous_bytes += anonymous_in(text);
  survey->shared_bytes += shared_in(text);
  survey->threads += kilobytes(text, "\nThreads:") / 1024;
  return true;
}

static void count_time(struct survey *survey, int process) {
  char text[1024];
  uint64_t ticks;
  if (read_process_file(process, "stat", text, sizeof text) && sample_parse_stat(text, &ticks))
    survey->ticks += ticks;
}

static void count_io(struct survey *survey, int process) {
  char text[512];
  uint64_t value;
  if (!read_process_file(process, "io", text, sizeof text))
    return;
  if (sample_find(text, "read_bytes", &value))
    survey->read_bytes += value;
  if (sample_find(text, "write_bytes", &value))
    survey->write_bytes += value;
}

/* The kernel waits for whoever is changing the process's memory, and that one perhaps for us. */
static bool read_memory(int process, char *buffer, size_t size) {
  _cleanup_close_ int fd = openat(process, "smaps_rollup", O_RDONLY | O_CLOEXEC);
  ssize_t got = fd < 0 ? -1 : in_time_read(fd, buffer, size - 1, PATIENCE_MS);
  if (got < 0)
    return false;
  buffer[got] = '\0';
  return true;
}

/* Each page divided by the number of processes that share it. Costs the kernel a walk over the
 * page tables, so only done if the cheap upper bound is over the limit. Of who does not let us look
 * that bound counts. */
static void count_memory_exactly(struct survey *survey, int process) {
  char text[4096];
  if (read_memory(process, text, sizeof text)) {
    survey->exact_anonymous_bytes += kilobytes(text, "\nPss_Anon:") + kilobytes(text, "\nSwapPss:");
    survey->exact_shared_bytes += kilobytes(text, "\nPss_Shmem:");
  } else if (read_process_file(process, "status", text, sizeof text)) {
    survey->exact_anonymous_bytes += anonymous_in(text);
    survey->exact_shared_bytes += shared_in(text);
  }
}

/* ---- files without a name ---- */

static bool is_new(struct survey *survey, const struct stat *status) {
  for (size_t i = 0; i < survey->unlinked_count; i++) {
    if (survey->unlinked[i].inode == status->st_ino && survey->unlinked[i].device == status->st_dev)
      return false;
  }
  if (survey->unlinked_count == UNLINKED_MAX)
    return false;
  survey->unlinked[survey->unlinked_count++] =
      (struct unlinked){.device = status->st_dev, .inode = status->st_ino};
  return true;
}

/* memfds are memory that shows in nobody's pages while it is not mapped; a file that was unlinked
 * while open is disk space that no walk finds. */
static void count_descriptor(struct survey *survey, int folder, const char *name) {
  struct stat status;
  if (fstatat(folder, name, &status, 0) < 0 || !S_ISREG(status.st_mode) || status.st_nlink > 0 ||
      !is_new(survey, &status))
    return;
  uint64_t bytes = (uint64_t)status.st_blocks * 512;
  if (status.st_dev == survey->memory_device)
    survey->memory_file_bytes += bytes;
  else
    survey->unlinked_bytes += bytes;
}

static void count_descriptors(struct survey *survey, int process) {
  int fd = openat(process, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  _cleanup_stream_ DIR *folder = folder_stream(fd);
  if (!folder)
    return;
  for (struct dirent *entry;
       survey->descriptors_seen < DESCRIPTORS_MAX && (entry = readdir(folder));) {
    survey->descriptors_seen++;
    if (entry->d_name[0] != '.')
      count_descriptor(survey, fd, entry->d_name);
  }
}

/* ---- which processes ---- */

/* The session's /proc shows nothing else. The host's shows all; ours are in init's namespace. */
static bool is_ours(const struct survey *survey, int process) {
  struct stat status;
  return !survey->group->proc_is_host || (fstatat(process, "ns/pid", &status, 0) == 0 &&
                                          status.st_ino == survey->group->pid_namespace);
}

static void count_process(struct survey *survey, int process) {
  if (!is_ours(survey, process) || !count_status(survey, process))
    return;
  if (survey->group->metrics) {
    count_time(survey, process);
    count_io(survey, process);
  }
  if (survey->descriptors)
    count_descriptors(survey, process);
}

static void count_exactly(struct survey *survey, int process) {
  if (is_ours(survey, process))
    count_memory_exactly(survey, process);
}

static bool for_each_process(struct survey *survey,
                             void (*visit)(struct survey *survey, int process)) {
  int fd = openat(survey->group->proc, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  _cleanup_stream_ DIR *folder = folder_stream(fd);
  if (!folder)
    return false;
  for (struct dirent *entry; (entry = readdir(folder));) {
    if (entry->d_name[0] < '1' || entry->d_name[0] > '9')
      continue;
    _cleanup_close_ int process = openat(fd, entry->d_name, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (process >= 0)
      visit(survey, process);
  }
  return true;
}

static dev_t memory_file_device(void) {
  _cleanup_close_ int fd = memfd_create("sandbox-probe", MFD_CLOEXEC);
  struct stat status;
  return fd >= 0 && fstat(fd, &status) == 0 ? status.st_dev : 0;
}

/* Never less than what there is, if the cheap figure is within the limit; else exact, but for
 * memory that is both shared without a file and held in files: the larger of the two counts. */
static uint64_t memory_of(struct survey *survey, uint64_t limit) {
  uint64_t bound = survey->anonymous_bytes + survey->shared_bytes + survey->memory_file_bytes;
  if (!limit || bound <= limit)
    return bound;
  for_each_process(survey, count_exactly);
  uint64_t shared = survey->exact_shared_bytes > survey->memory_file_bytes
                        ? survey->exact_shared_bytes
                        : survey->memory_file_bytes;
  return survey->exact_anonymous_bytes + shared;
}

void sample_processes(const struct limit_group *group, uint64_t memory_limit, bool descriptors,
                      struct usage *usage, uint64_t *ret_unlinked_bytes) {
  struct survey survey = {.group = group, .descriptors = descriptors};
  *ret_unlinked_bytes = 0;
  if (group->proc < 0)
    return;
  if (descriptors)
    survey.memory_device = memory_file_device();
  if (!for_each_process(&survey, count_process))
    return;
  usage->processes = survey.threads;
  usage->memory_bytes = memory_of(&survey, memory_limit);
  *ret_unlinked_bytes = survey.unlinked_bytes;
  if (!group->metrics)
    return;
  usage->cpu_ns = survey.ticks * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK));
  usage->io_read_bytes = survey.read_bytes;
  usage->io_write_bytes = survey.write_bytes;
}
