/* race HOW SECONDS MARKER PATH...: tries for so long to read what holds the marker, by changing
 * something between the moment that somebody looks and the moment that the kernel does. Prints how
 * often it tried and how often it got the marker. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double end_at;
static const char *marker;
static long tries, leaks, opened;
static atomic_bool stop;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static bool is_over(void) {
  return now() >= end_at;
}

static void look(const char *path) {
  char text[256];
  tries++;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return;
  ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  text[length < 0 ? 0 : length] = '\0';
  opened++;
  if (strstr(text, marker))
    leaks++;
}

static void against(void *(*flip)(void *), void *data, const char *path) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, flip, data) != 0)
    exit(3);
  while (!is_over())
    look(path);
  atomic_store(&stop, true);
  pthread_join(thread, NULL);
}

/* ---- the path in memory ---- */

static char shared_path[4096];

static void *flip_path(void *data) {
  char **paths = data;
  while (!atomic_load(&stop)) {
    strcpy(shared_path, paths[1]);
    strcpy(shared_path, paths[0]);
  }
  return NULL;
}

/* ALLOWED DENIED */
static void race_pointer(char **paths) {
  strcpy(shared_path, paths[0]);
  against(flip_path, paths, shared_path);
}

/* ---- the working folder ---- */

static void *flip_folder(void *data) {
  char **paths = data;
  while (!atomic_load(&stop)) {
    (void)!chdir(paths[1]);
    (void)!chdir(paths[0]);
  }
  return NULL;
}

/* FOLDER FOLDER NAME */
static void race_cwd(char **paths) {
  against(flip_folder, paths, paths[2]);
}

/* ---- a link ---- */

static void *flip_link(void *data) {
  char **paths = data, other[4096];
  snprintf(other, sizeof other, "%s.new", paths[2]);
  for (unsigned i = 0; !atomic_load(&stop); i++) {
    if (symlink(paths[i % 2], other) == 0)
      (void)rename(other, paths[2]);
  }
  return NULL;
}

/* ALLOWED DENIED LINK */
static void race_link(char **paths) {
  against(flip_link, paths, paths[2]);
}

/* ---- plain reading; somebody outside changes what is there ---- */

static void race_read(char **paths) {
  while (!is_over()) {
    look(paths[0]);
    usleep(2000);
  }
}

/* ---- a number that another process has next ---- */

/* Has nothing open above 2, and must never have. */
static int watch_descriptors(void) {
  for (long seen = 0;; seen++) {
    for (int fd = 3; fd < 16; fd++) {
      if (fcntl(fd, F_GETFD) >= 0)
        return 1;
    }
  }
}

static void race_killed(char **paths) {
  unsigned seed = 1;
  while (!is_over()) {
    pid_t pid = fork();
    if (pid == 0) {
      int fd = open(paths[0], O_RDONLY);
      pause();
      _exit(fd);
    }
    usleep(rand_r(&seed) % 4000);
    pid_t next = 0;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    next = fork();
    if (next == 0)
      _exit(watch_descriptors());
    usleep(rand_r(&seed) % 2000);
    kill(next, SIGKILL);
    int status;
    waitpid(next, &status, 0);
    tries++;
    opened++;
    if (WIFEXITED(status))
      leaks++;
  }
}

/* One process is allowed to look, once, and ends. The next one with its number opens the file. */
static void race_reused(char **paths) {
  while (!is_over()) {
    struct stat status;
    pid_t first = fork();
    if (first == 0)
      _exit(stat(paths[0], &status) < 0);
    int ended = 1;
    waitpid(first, &ended, 0);
    pid_t next = 0; /* the lowest numbers never come again: not for ever */
    for (int i = 0; ended == 0 && next != first && i < 1000; i++) {
      next = fork();
      if (next == 0) {
        leaks = 0;
        if (getpid() == first)
          look(paths[0]);
        _exit(leaks > 0);
      }
      int leaked = 0;
      waitpid(next, &leaked, 0);
      tries += next == first;
      leaks += leaked != 0;
    }
  }
}

/* ---- how far it came, where others can see it ---- */

/* PATH PROGRESS: the count of tries goes to a file of eight bytes. */
static void race_count(char **paths) {
  int fd = open(paths[1], O_RDWR | O_CREAT, 0644);
  if (fd < 0 || ftruncate(fd, 8) < 0)
    exit(3);
  volatile uint64_t *count = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  while (!is_over()) {
    look(paths[0]);
    *count = (uint64_t)tries;
  }
}

static const struct {
  const char *name;
  void (*run)(char **paths);
  int paths;
} races[] = {
    {"pointer", race_pointer, 2}, {"cwd", race_cwd, 3},       {"link", race_link, 3},
    {"read", race_read, 1},       {"killed", race_killed, 1}, {"reused", race_reused, 1},
    {"count", race_count, 2},
};

int main(int argc, char **argv) {
  for (size_t i = 0; argc > 4 && i < sizeof races / sizeof races[0]; i++) {
    if (strcmp(argv[1], races[i].name) != 0 || argc != 4 + races[i].paths)
      continue;
    end_at = now() + atof(argv[2]);
    marker = argv[3];
    races[i].run(argv + 4);
    printf("tries %ld opened %ld leaks %ld\n", tries, opened, leaks);
    return 0;
  }
  return 2;
}
