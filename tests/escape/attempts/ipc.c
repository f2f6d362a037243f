/* System V and POSIX objects that have names of their own, outside every file system. */
#include <fcntl.h>
#include <mqueue.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <unistd.h>

#include "attempt.h"

static int find_memory(char **arguments) {
  int id = shmget((key_t)number(arguments[0]), 0, 0);
  const char *text;

  if (id < 0)
    return errno;
  text = shmat(id, NULL, SHM_RDONLY);
  if ((const void *)text == (const void *)-1)
    return errno;
  detail("%.60s", text);
  return OPENED;
}

static int find_queue(char **arguments) {
  return answer(msgget((key_t)number(arguments[0]), 0));
}

static int find_semaphore(char **arguments) {
  return answer(semget((key_t)number(arguments[0]), 0, 0));
}

static int find_posix_queue(char **arguments) {
  return answer(mq_open(arguments[0], O_RDONLY));
}

static int find_posix_memory(char **arguments) {
  return answer(shm_open(arguments[0], O_RDONLY, 0));
}

/* The ground for the others: makes one of each and waits on stdin; then removes them. */
static int plant(char **arguments) {
  key_t key = (key_t)number(arguments[0]);
  int memory = shmget(key, 4096, IPC_CREAT | 0600), queue = msgget(key, IPC_CREAT | 0600);
  int semaphore = semget(key, 1, IPC_CREAT | 0600);
  mqd_t posix = mq_open(arguments[1], O_RDWR | O_CREAT, 0600, NULL);
  int posix_memory = shm_open(arguments[1], O_RDWR | O_CREAT, 0600);
  char *text = shmat(memory, NULL, 0), byte;

  if ((void *)text != (void *)-1)
    strncpy(text, arguments[2], 100);
  if (write(1, "ready\n", 6) < 0 || read(0, &byte, 1) < 0)
    return errno;
  shmctl(memory, IPC_RMID, NULL);
  msgctl(queue, IPC_RMID, NULL);
  semctl(semaphore, 0, IPC_RMID);
  mq_unlink(arguments[1]);
  shm_unlink(arguments[1]);
  if (memory < 0 || queue < 0 || semaphore < 0 || posix < 0 || posix_memory < 0)
    return errno;
  return OPENED;
}

const struct attempt ipc_attempts[] = {
    {"ipc.plant", 3, "KEY NAME TEXT: make one object of each kind until stdin ends", plant},
    {"ipc.shm", 1, "KEY: shared memory", find_memory},
    {"ipc.msg", 1, "KEY: message queue", find_queue},
    {"ipc.sem", 1, "KEY: semaphores", find_semaphore},
    {"ipc.mq", 1, "NAME: POSIX message queue", find_posix_queue},
    {"ipc.posix", 1, "NAME: POSIX shared memory", find_posix_memory},
    {NULL, 0, NULL, NULL},
};
