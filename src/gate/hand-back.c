/* A result for a waiting thread; see hand-back.h. */
#include "gate/hand-back.h"

#include <elf.h>
#include <errno.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

static int trace(enum __ptrace_request request, pid_t thread, unsigned long data) {
  return ptrace(request, thread, NULL, data) < 0 ? -errno : 0;
}

int hand_back_begin(pid_t thread) {
  return trace(PTRACE_SEIZE, thread, 0);
}

int hand_back_prepare(pid_t thread) {
  return trace(PTRACE_INTERRUPT, thread, 0);
}

/* 32-bit programs have other registers, and a smaller set of them. */
#if defined(__x86_64__)
#define RESULT offsetof(struct user_regs_struct, rax)
#define AGAIN  (-513) /* ERESTARTNOINTR: the kernel looks for it after this stop */

static void replace_result(pid_t thread, long value) {
  errno = 0;
  long result = ptrace(PTRACE_PEEKUSER, thread, RESULT, NULL);
  if (errno == 0 && (int)result == -HAND_BACK_ERROR)
    (void)ptrace(PTRACE_POKEUSER, thread, RESULT, value);
}

static void repeat_call(pid_t thread, uint64_t first) {
  (void)first; /* the kernel keeps it */
  replace_result(thread, AGAIN);
}

/* Not a 32-bit program's: such a one is sent on no errand. */
#define INSTRUCTION 2

static void restart_call(pid_t thread, uint64_t first) {
  struct user_regs_struct registers;
  struct iovec place = {&registers, sizeof registers};
  (void)first;
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) < 0 ||
      (int)registers.rax != -HAND_BACK_ERROR)
    return;
  registers.rax = registers.orig_rax;
  registers.rip -= INSTRUCTION;
  (void)ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &place);
}
#elif defined(__aarch64__)
#define INSTRUCTION 4

static void change(pid_t thread, uint64_t value, uint64_t back) {
  struct user_regs_struct registers;
  struct iovec place = {&registers, sizeof registers};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) < 0 ||
      place.iov_len != sizeof registers || (int)registers.regs[0] != -HAND_BACK_ERROR)
    return;
  registers.regs[0] = value;
  registers.pc -= back;
  (void)ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &place);
}

static void replace_result(pid_t thread, long value) {
  change(thread, (uint64_t)value, 0);
}

/* The kernel has looked for its own error before this stop, and the argument is overwritten. */
static void repeat_call(pid_t thread, uint64_t first) {
  change(thread, first, INSTRUCTION);
}

static void restart_call(pid_t thread, uint64_t first) {
  change(thread, first, INSTRUCTION);
}
#else
#error "which register holds the result of a system call?"
#endif

static void let_go(pid_t thread, int signal) {
  (void)trace(PTRACE_DETACH, thread, (unsigned long)signal);
}

bool hand_back_wait(pid_t thread) {
  int status;
  pid_t got;
  do
    got = waitpid(thread, &status, __WALL);
  while (got < 0 && errno == EINTR);
  if (got != thread || !WIFSTOPPED(status))
    return false;
  /* The stop that was asked for comes before any signal is taken. */
  if (status >> 16 == PTRACE_EVENT_STOP)
    return true;
  let_go(thread, WSTOPSIG(status));
  return false;
}

void hand_back_value(pid_t thread, long value) {
  replace_result(thread, value);
  let_go(thread, 0);
}

void hand_back_again(pid_t thread, uint64_t first) {
  repeat_call(thread, first);
  let_go(thread, 0);
}

void hand_back_restart(pid_t thread, uint64_t first) {
  restart_call(thread, first);
  let_go(thread, 0);
}
