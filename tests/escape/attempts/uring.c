/* io_uring opens and reads without a system call that a filter could see. Raw, no library. */
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attempt.h"

struct ring {
  int fd;
  struct io_uring_params parameters;
  char *submission, *completion;
  struct io_uring_sqe *entries;
};

static unsigned *field(char *base, unsigned offset) {
  return (unsigned *)(void *)(base + offset);
}

static void *map(struct ring *ring, size_t length, off_t offset) {
  return mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED, ring->fd, offset);
}

static int start(struct ring *ring) {
  long fd = syscall(SYS_io_uring_setup, 4, &ring->parameters);
  struct io_uring_params *p = &ring->parameters;

  if (fd < 0)
    return errno;
  ring->fd = (int)fd;
  ring->submission =
      map(ring, p->sq_off.array + p->sq_entries * sizeof(unsigned), IORING_OFF_SQ_RING);
  ring->completion =
      map(ring, p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe), IORING_OFF_CQ_RING);
  ring->entries = map(ring, p->sq_entries * sizeof(struct io_uring_sqe), IORING_OFF_SQES);
  if (ring->submission == MAP_FAILED || ring->completion == MAP_FAILED ||
      (void *)ring->entries == MAP_FAILED)
    return errno;
  return OPENED;
}

/* Submits one entry and waits for its result. */
static int perform(struct ring *ring, const struct io_uring_sqe *entry) {
  struct io_uring_params *p = &ring->parameters;
  unsigned *tail = field(ring->submission, p->sq_off.tail);
  unsigned *head = field(ring->completion, p->cq_off.head);
  unsigned slot = *tail & *field(ring->submission, p->sq_off.ring_mask);
  struct io_uring_cqe *done;
  int result;

  ring->entries[slot] = *entry;
  field(ring->submission, p->sq_off.array)[slot] = slot;
  __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
  if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
    return -errno;
  done = (struct io_uring_cqe *)(void *)(ring->completion + p->cq_off.cqes);
  result = done[*head & *field(ring->completion, p->cq_off.ring_mask)].res;
  __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
  return result;
}

static int read_by_uring(char **arguments) {
  static struct ring ring;
  static char buffer[256];
  struct io_uring_sqe open_entry = {.opcode = IORING_OP_OPENAT,
                                    .fd = AT_FDCWD,
                                    .addr = (uint64_t)(uintptr_t)arguments[0],
                                    .open_flags = O_RDONLY};
  struct io_uring_sqe read_entry = {
      .opcode = IORING_OP_READ, .addr = (uint64_t)(uintptr_t)buffer, .len = sizeof(buffer) - 1};
  int result = start(&ring), fd;

  if (result != OPENED)
    return result;
  fd = perform(&ring, &open_entry);
  if (fd < 0)
    return -fd;
  read_entry.fd = fd;
  result = perform(&ring, &read_entry);
  detail("%.60s", buffer);
  return result < 0 ? -result : OPENED;
}

static int set_up_uring(char **arguments) {
  struct ring ring = {0};

  (void)arguments;
  return start(&ring);
}

static int register_uring(char **arguments) {
  (void)arguments;
  /* A bad descriptor: EBADF says that the call itself is there. */
  if (syscall(SYS_io_uring_register, -1, IORING_REGISTER_BUFFERS, NULL, 0) < 0)
    return errno == ENOSYS || errno == EPERM ? errno : OPENED;
  return OPENED;
}

const struct attempt uring_attempts[] = {
    {"E26", 1, "PATH: open and read by io_uring", read_by_uring},
    {"E26.setup", 0, "io_uring_setup", set_up_uring},
    {"E26.register", 0, "io_uring_register is there", register_uring},
    {NULL, 0, NULL, NULL},
};
