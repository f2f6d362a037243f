/* Two threads against anyone who decides on a name and then lets the kernel look again. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "attempt.h"

struct race {
  const char *allowed, *denied;
  char path[4096];
  atomic_bool stop;
};

static double now(void) {
  struct timespec time;

  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void *flip_path(void *data) {
  struct race *race = data;

  while (!atomic_load(&race->stop)) {
    strcpy(race->path, race->denied);
    strcpy(race->path, race->allowed);
  }
  return NULL;
}

static void *flip_folder(void *data) {
  struct race *race = data;

  while (!atomic_load(&race->stop)) {
    if (chdir(race->denied) < 0 || chdir(race->allowed) < 0)
      continue;
  }
  return NULL;
}

/* The marker is what only the denied file holds. */
static int leaked(const char *path, const char *marker) {
  char buffer[256];
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t length;

  if (fd < 0)
    return 0;
  length = read(fd, buffer, sizeof(buffer) - 1);
  close(fd);
  buffer[length < 0 ? 0 : length] = '\0';
  return strstr(buffer, marker) != NULL;
}

static int run_race(struct race *race, void *(*flip)(void *), const char *path, const char *marker,
                    double seconds) {
  double end = now() + seconds;
  long tries = 0;
  pthread_t thread;
  int result = EACCES;

  if (pthread_create(&thread, NULL, flip, race) != 0)
    return EAGAIN;
  while (result != OPENED && now() < end) {
    tries++;
    if (leaked(path, marker))
      result = OPENED;
  }
  atomic_store(&race->stop, true);
  pthread_join(thread, NULL);
  detail("after %ld tries", tries);
  return result;
}

static int race_path(char **arguments) {
  static struct race race;

  race.allowed = arguments[0];
  race.denied = arguments[1];
  strcpy(race.path, race.allowed);
  return run_race(&race, flip_path, race.path, arguments[2], (double)number(arguments[3]) / 1000);
}

static int race_folder(char **arguments) {
  static struct race race;

  race.allowed = arguments[0];
  race.denied = arguments[1];
  return run_race(&race, flip_folder, arguments[2], arguments[3],
                  (double)number(arguments[4]) / 1000);
}

const struct attempt race_attempts[] = {
    {"E30", 4, "ALLOWED DENIED MARKER MS: flip the path while opening it", race_path},
    {"E31", 5, "ALLOWED DENIED NAME MARKER MS: flip the folder while opening in it", race_folder},
    {NULL, 0, NULL, NULL},
};
