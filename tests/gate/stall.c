/* stall SECONDS FILE [PATH]: maps a file (of zeros) and lets other threads throw its page away as
 * fast as they can, so that whoever looks at it has to wait for its file system. So long, PATH is
 * opened as the page says; without one, the page is looked at while another thread changes the
 * memory of the process, and nobody else may. */
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096

static volatile char *page;
static int file;

static void *throw_away(void *ignored) {
  for (;;) {
    madvise((void *)page, PAGE, MADV_DONTNEED);
    posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  }
  return ignored;
}

static void *look(void *ignored) {
  while (page[0] == '\0')
    ;
  return ignored;
}

static void *change_memory(void *ignored) {
  for (;;)
    munmap(mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), PAGE);
  return ignored;
}

static void start(void *(*function)(void *)) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, function, NULL) == 0)
    pthread_detach(thread);
}

static bool is_over(int seconds) {
  static time_t begun;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  begun = begun ? begun : now.tv_sec;
  return now.tv_sec >= begun + seconds;
}

int main(int argc, char **argv) {
  const char *path = argc > 3 ? argv[3] : NULL;
  file = argc > 2 ? open(argv[2], O_RDONLY) : -1;
  page = file < 0 ? MAP_FAILED : mmap(NULL, PAGE, PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED)
    return 1;
  start(throw_away);
  if (!path) {
    start(throw_away);
    start(look);
    start(look);
    start(change_memory);
  }
  while (!is_over(atoi(argv[1]))) {
    int fd = path ? (int)syscall(SYS_openat2, AT_FDCWD, path, page, sizeof(struct open_how)) : -1;
    if (fd >= 0)
      close(fd);
    else if (!path)
      usleep(1000);
  }
  puts("done");
  fflush(stdout);
  _exit(0);
}
