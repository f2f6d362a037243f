/* Calls made by a thread that is held; see errand.h. It is stopped behind the instruction that made
 * its call: so that is run again, with other registers. */
#include "gate/errand.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/alloc.h"
#include "core/cleanup.h"
#include "core/file.h"
#include "gate/hand-back.h"

/* Signals are blocked meanwhile; what can still stop it comes seldom. */
#define STOPS_LIMIT 64

struct errand {
  pid_t thread;
  struct user_regs_struct registers;
  sigset_t signals;
  int result;    /* of making the path ready */
  uint64_t path; /* in its memory, in a page of its own: no other thread of it may be disturbed */
};

#define ARGUMENTS 6

#if defined(__x86_64__)
static const unsigned char instruction[] = {0x0f, 0x05}; /* syscall */

static uint64_t *counter_of(struct user_regs_struct *registers) {
  return (uint64_t *)&registers->rip;
}

static uint64_t result_of(const struct user_regs_struct *registers) {
  return registers->rax;
}

static void set_call(struct user_regs_struct *registers, long number,
                     const uint64_t arguments[ARGUMENTS]) {
  registers->orig_rax = (uint64_t)-1; /* it is in no call any more that could begin anew */
  registers->rax = (uint64_t)number;
  registers->rdi = arguments[0];
  registers->rsi = arguments[1];
  registers->rdx = arguments[2];
  registers->r10 = arguments[3];
  registers->r8 = arguments[4];
  registers->r9 = arguments[5];
}
#elif defined(__aarch64__)
static const unsigned char instruction[] = {0x01, 0x00, 0x00, 0xd4}; /* svc #0 */

static uint64_t *counter_of(struct user_regs_struct *registers) {
  return (uint64_t *)&registers->pc;
}

static uint64_t result_of(const struct user_regs_struct *registers) {
  return registers->regs[0];
}

static void set_call(struct user_regs_struct *registers, long number,
                     const uint64_t arguments[ARGUMENTS]) {
  registers->regs[8] = (uint64_t)number;
  memcpy(registers->regs, arguments, ARGUMENTS * sizeof *arguments);
}
#else
#error "how does a thread make a system call?"
#endif

/* ---- its state ---- */

static int get_registers(pid_t thread, struct user_regs_struct *ret_registers) {
  struct iovec place = {ret_registers, sizeof *ret_registers};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) < 0)
    return -errno;
  return place.iov_len == sizeof *ret_registers ? 0 : -ENOSYS; /* a 32-bit program's are fewer */
}

static int set_registers(pid_t thread, const struct user_regs_struct *registers) {
  struct iovec place = {(void *)registers, sizeof *registers};
  return ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &place) < 0 ? -errno : 0;
}

/* In the call that failed by our word: if the thread died, its number may be another's. */
static bool is_behind_call(const struct target *target, struct user_regs_struct *registers) {
  unsigned char bytes[sizeof instruction];
  return (int)result_of(registers) == -HAND_BACK_ERROR &&
         target_read(target, *counter_of(registers) - sizeof bytes, bytes, sizeof bytes) == 0 &&
         memcmp(bytes, instruction, sizeof bytes) == 0;
}

#define MASK_SIZE 8 /* as the kernel has it */

static int block_signals(struct errand *errand) {
  sigset_t all;
  sigfillset(&all);
  /* If we are killed meanwhile, it must not go on with what we made of it. */
  if (ptrace(PTRACE_GETSIGMASK, errand->thread, MASK_SIZE, &errand->signals) < 0 ||
      ptrace(PTRACE_SETOPTIONS, errand->thread, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) <
          0)
    return -errno;
  return ptrace(PTRACE_SETSIGMASK, errand->thread, MASK_SIZE, &all) < 0 ? -errno : 0;
}

/* ---- a call ---- */

/* The next stop; the signal that it is about goes on with it. False: it is gone. */
static bool go_on(pid_t thread, int *signal) {
  int status;
  pid_t got;
  if (ptrace(PTRACE_SYSCALL, thread, NULL, (long)*signal) < 0)
    return false;
  do
    got = waitpid(thread, &status, __WALL);
  while (got < 0 && errno == EINTR);
  bool stopped = got == thread && WIFSTOPPED(status);
  bool of_signal = stopped && status >> 16 == 0 && WSTOPSIG(status) != (SIGTRAP | 0x80);
  *signal = of_signal ? WSTOPSIG(status) : 0;
  return stopped;
}

static long run(const struct errand *errand) {
  int signal = 0;
  for (int stops = 0; stops < STOPS_LIMIT && go_on(errand->thread, &signal); stops++) {
    struct __ptrace_syscall_info info = {0};
    if (ptrace(PTRACE_GET_SYSCALL_INFO, errand->thread, sizeof info, &info) < 0)
      return -errno;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT)
      return (long)info.exit.rval;
  }
  return -ESRCH;
}

static long call(const struct errand *errand, long number, const uint64_t arguments[ARGUMENTS]) {
  struct user_regs_struct registers = errand->registers;
  set_call(&registers, number, arguments);
  *counter_of(&registers) -= sizeof instruction;
  int result = set_registers(errand->thread, &registers);
  return result < 0 ? result : run(errand);
}

/* ---- its path ---- */

static int place_path(const struct target *target, const char *path, struct errand *errand) {
  _cleanup_close_ int memory = target_open_memory(target);
  long page = memory < 0
                  ? memory
                  : call(errand, SYS_mmap,
                         (const uint64_t[ARGUMENTS]){0, PATH_MAX, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, (uint64_t)-1});
  if (page < 0 && page > -PATH_MAX)
    return (int)page;
  errand->path = (uint64_t)page;
  size_t size = strlen(path) + 1;
  return pwrite(memory, path, size, (off_t)page) == (ssize_t)size ? 0 : -EFAULT;
}

struct errand *errand_begin(const struct target *target, const char *path) {
  struct errand *errand = xcalloc(1, sizeof *errand);
  errand->thread = target->thread;
  if (get_registers(target->thread, &errand->registers) < 0 ||
      !is_behind_call(target, &errand->registers) || block_signals(errand) < 0) {
    free(errand);
    return NULL;
  }
  errand->result = place_path(target, path, errand);
  return errand;
}

void errand_end(struct errand *errand) {
  if (errand->path)
    (void)call(errand, SYS_munmap, (const uint64_t[ARGUMENTS]){errand->path, PATH_MAX});
  (void)set_registers(errand->thread, &errand->registers);
  (void)ptrace(PTRACE_SETSIGMASK, errand->thread, MASK_SIZE, &errand->signals);
  (void)ptrace(PTRACE_SETOPTIONS, errand->thread, NULL, 0L);
  free(errand);
}

/* ---- what it is sent for ---- */

int errand_enter(struct errand *errand) {
  if (errand->result < 0)
    return errand->result;
  return (int)call(errand, SYS_chdir, (const uint64_t[ARGUMENTS]){errand->path});
}

/* As it was opened, so that it can be used for the same. */
static int flags_of(pid_t thread, int descriptor) {
  char name[64];
  _cleanup_free_ char *text = NULL;
  snprintf(name, sizeof name, "/proc/%d/fdinfo/%d", thread, descriptor);
  int result = file_read_at(AT_FDCWD, name, 4096, &text, NULL);
  if (result < 0)
    return result;
  const char *line = strstr(text, "flags:");
  return line ? (int)strtol(line + strlen("flags:"), NULL, 8) : -EINVAL;
}

int errand_replace(struct errand *errand, int descriptor) {
  int flags = errand->result < 0 ? errand->result : flags_of(errand->thread, descriptor);
  if (flags < 0)
    return flags;
  uint64_t open_flags = (uint64_t)(flags & (O_PATH | O_CLOEXEC)) | O_DIRECTORY;
  long opened = call(errand, SYS_openat,
                     (const uint64_t[ARGUMENTS]){(uint64_t)AT_FDCWD, errand->path, open_flags});
  if (opened < 0)
    return (int)opened;
  long result = call(errand, SYS_dup3,
                     (const uint64_t[ARGUMENTS]){(uint64_t)opened, (uint64_t)descriptor,
                                                 (uint64_t)(flags & O_CLOEXEC)});
  (void)call(errand, SYS_close, (const uint64_t[ARGUMENTS]){(uint64_t)opened});
  return result < 0 ? (int)result : 0;
}
