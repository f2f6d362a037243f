/* A result for a waiting thread; see hand-back.h. */
#include "gate/hand-back.h"

#include <elf.h>
#include <errno.h>
#include <stdbool.h>
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

static void replace_result(pid_t thread, long value) {
  errno = 0;
  long result = ptrace(PTRACE_PEEKUSER, thread, RESULT, NULL);
  if (errno == 0 && (int)result == -HAND_BACK_ERROR)
    (void)ptrace(PTRACE_POKEUSER, thread, RESULT, value);
}
#elif defined(__aarch64__)
static void replace_result(pid_t thread, long value) {
  struct user_regs_struct registers;
  struct iovec place = {&registers, sizeof registers};
  if (ptrace(PTRACE_GETREGSET, thread, NT_PRSTATUS, &place) < 0 ||
      place.iov_len != sizeof registers || (int)registers.regs[0] != -HAND_BACK_ERROR)
    return;
  registers.regs[0] = (unsigned long long)value;
  (void)ptrace(PTRACE_SETREGSET, thread, NT_PRSTATUS, &place);
}
#else
#error "which register holds the result of a system call?"
#endif

/* The stop that was asked for comes before any signal is taken. */
static bool has_stopped(int status) {
  return WIFSTOPPED(status) && status >> 16 == PTRACE_EVENT_STOP;
}

void hand_back_finish(pid_t thread, long value) {
  int status;
  pid_t got;
  do
    got = waitpid(thread, &status, __WALL);
  while (got < 0 && errno == EINTR);
  if (got != thread || !WIFSTOPPED(status))
    return; /* it is dead */
  if (has_stopped(status))
    replace_result(thread, value);
  (void)trace(PTRACE_DETACH, thread, has_stopped(status) ? 0 : (unsigned long)WSTOPSIG(status));
}
